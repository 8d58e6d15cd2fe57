"""What waits among a topic's dead letters: how many for which reason, and where the newest are from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lakehouse.config.topic import Topic
from lakehouse.core import naming
from resources.catalog import Catalog

COLUMNS = (
    "error_timestamp",
    "error_reason",
    "error_message",
    "error_details",
    "source_record.topic",
    "source_record.partition",
    "source_record.offset",
)
"""What is read of the table: no record's bytes."""


@dataclass(frozen=True)
class Letter:
    """One dead letter, without its bytes: they may be sensitive. `check` is the one that put it into quarantine."""

    partition: int
    offset: int
    reason: str
    check: str
    said: str
    bytes: int
    at: datetime


@dataclass(frozen=True)
class Waiting:
    """The letters that are no rows yet: how many by reason, or by check, and the newest of them."""

    by_reason: dict[str, int]
    newest: list[Letter]


def waiting(catalog: Catalog, namespace: str, topic: Topic, newest: int) -> Waiting:
    """What waits. Of all letters, reasons and places are read, part by part, and none of their bytes.

    Args:
        catalog: has the table of dead letters.
        namespace: the table's.
        topic: whose letters are counted.
        newest: how many of them are shown.

    Raises:
        Unreachable: The catalog does not answer.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    current, _ = catalog.resolve_table(namespace, topic)
    table = catalog.load(namespace, naming.dead_letter_table(current.table))
    if table is None or table.current_snapshot() is None:
        return Waiting({}, [])
    scan = table.scan(row_filter="redriven_timestamp IS NULL", selected_fields=COLUMNS)
    counts: Counter[str] = Counter()
    found: list[Letter] = []
    for batch in scan.to_arrow_batch_reader():
        letters = batch.filter(pc.equal(pc.struct_field(batch["source_record"], "topic"), topic.topic))
        details = letters["error_details"]
        check, size = (
            pc.map_lookup(details, pa.scalar(key, details.type.key_type), "first") for key in ("check", "bytes")
        )
        for group in pc.value_counts(pc.coalesce(check, letters["error_reason"])).to_pylist():
            counts[group["values"]] += group["counts"]
        rows = pa.table([*letters.columns, check, size], [*letters.schema.names, "check", "bytes"])
        rows = rows.sort_by([("error_timestamp", "descending")]).slice(0, newest)
        found = sorted([*found, *map(_letter, rows.to_pylist())], key=lambda letter: letter.at, reverse=True)[:newest]
    return Waiting(dict(counts.most_common()), found)


def _letter(row: dict[str, Any]) -> Letter:
    place = row["source_record"]
    return Letter(
        place["partition"],
        place["offset"],
        row["error_reason"],
        row["check"] or "",
        row["error_message"],
        int(row["bytes"] or 0),
        row["error_timestamp"],
    )
