"""List the dead letters of a topic that are not redriven yet: their number by reason, and the newest of them."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.config.model import Topic
from lakehouse.core.offsets.batch import Batch
from lakehouse.core.tables.letter_columns import PLACE
from lakehouse.pipeline.dead_letters import filters
from resources.iceberg.catalog import Catalog

COLUMNS = (
    "error_timestamp",
    "error_reason",
    "error_message",
    "error_details",
    "source_record.topic",
    *PLACE,
)
"""The columns to read; the records' bytes are not among them."""


@dataclass(frozen=True)
class DeadLetter:
    """A dead letter without its bytes, which may be sensitive.

    Attributes:
        partition: The Kafka partition of the record.
        offset: The Kafka offset of the record.
        reason: The stable name of the reason.
        check: The check that quarantined the row; empty for other reasons.
        message: The reason as a sentence.
        bytes: The size of the value in bytes.
        at: Time at which the record became a dead letter.
    """

    partition: int
    offset: int
    reason: str
    check: str
    message: str
    bytes: int
    at: datetime


@dataclass(frozen=True)
class PendingDeadLetters:
    """Dead letters that are not rows yet: their number by reason or check, and the newest of them."""

    by_reason: dict[str, int]
    newest: list[DeadLetter]


def pending_dead_letters(catalog: Catalog, namespace: str, topic: Topic, newest: int) -> PendingDeadLetters:
    """Return the dead letters that are not rows yet.

    The reasons and offsets of all dead letters are read, one record batch at a time; their bytes are not.

    Args:
        catalog: The catalog with the table of dead letters.
        namespace: The namespace of the table.
        topic: The topic.
        newest: The maximum number of dead letters to return.

    Raises:
        Unreachable: The catalog does not answer.
    """
    ref, _ = catalog.chain(topic.table_in(namespace)).newest
    table = catalog.load(ref.dead_letters)
    if table is None or table.current_snapshot() is None:
        return PendingDeadLetters({}, [])
    scan = table.scan(row_filter="redriven_timestamp IS NULL", selected_fields=COLUMNS)
    with catalog.translate_errors():
        return _pending(scan.to_arrow_batch_reader(), topic, newest)


def reasons_of_batch(catalog: Catalog, namespace: str, topic: Topic, batch: Batch) -> Counter[str]:
    """Return the number of dead letters of a batch's offsets by reason, redriven ones included.

    Raises:
        Unreachable: The catalog does not answer.
    """
    ref, _ = catalog.chain(topic.table_in(namespace)).newest
    table = catalog.load(ref.dead_letters)
    if table is None or table.current_snapshot() is None:
        return Counter()
    with catalog.translate_errors():
        letters = table.scan(row_filter=filters.of_batch(batch), selected_fields=("error_reason",)).to_arrow()
    return Counter(letters["error_reason"].to_pylist())


def _pending(batches: pa.RecordBatchReader, topic: Topic, newest: int) -> PendingDeadLetters:
    counts: Counter[str] = Counter()
    newest_letters: list[DeadLetter] = []
    for batch in batches:
        letters = batch.filter(pc.equal(pc.struct_field(batch["source_record"], "topic"), topic.topic))
        details = letters["error_details"]
        check, size = (
            pc.map_lookup(details, pa.scalar(key, details.type.key_type), "first") for key in ("check", "bytes")
        )
        for group in pc.value_counts(pc.coalesce(check, letters["error_reason"])).to_pylist():
            counts[group["values"]] += group["counts"]
        rows = pa.table([*letters.columns, check, size], [*letters.schema.names, "check", "bytes"])
        rows = rows.sort_by([("error_timestamp", "descending")]).slice(0, newest)
        newest_letters = sorted(
            [*newest_letters, *map(_letter, rows.to_pylist())], key=lambda letter: letter.at, reverse=True
        )[:newest]
    return PendingDeadLetters(dict(counts.most_common()), newest_letters)


def _letter(row: dict[str, Any]) -> DeadLetter:
    place = row["source_record"]
    return DeadLetter(
        place["partition"],
        place["offset"],
        row["error_reason"],
        row["check"] or "",
        row["error_message"],
        int(row["bytes"] or 0),
        row["error_timestamp"],
    )
