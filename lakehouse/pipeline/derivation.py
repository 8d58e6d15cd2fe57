"""A derived topic: what new rows of a published table change, produced to Kafka in one transaction with the bookmark.

The bookmark (lakehouse/core/bookmark.py) is a message of a compacted topic: it commits with the messages or not at all.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from lakehouse.config.loader import Config
from lakehouse.config.sources.derived import Derived
from lakehouse.config.topic import Topic
from lakehouse.core.batch import Batch, Positions, split
from lakehouse.core.bookmark import Bookmark
from lakehouse.core.errors import ConfigError, LakehouseError, UnclearState
from lakehouse.pipeline.bookmarks import bookmark_of, going_on, of_derived
from resources import bookmarks
from resources.snapshots import last_batch
from resources.transactions import MOST_BYTES, MOST_MESSAGES, Outgoing, begin, commit, message_limit, parts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

    from lakehouse.pipeline.clients import Clients


@dataclass(frozen=True)
class Produced:
    """What one derivation did. `messages` is how many were produced: one a group that was computed again, or what the
    transform makes of single rows; `upto` is the bookmark (exclusive); `lineage` are the source's columns that each
    column is made from."""

    messages: int
    source_snapshot_id: int | None
    upto: Positions
    lineage: Mapping[str, list[str]] = field(default_factory=dict)


def derive(config: Config, topic: Topic, systems: Clients) -> Produced:
    """Compute and produce what new rows of the source make of the topic: every group they touch, or each row once.

    Rows behind the bookmark that a redrive or a replay brought meanwhile are new, too. A table that was rolled back
    behind the bookmark is waited for.

    Raises: Unreachable; ConfigError when the transform cannot be imported; SchemaError when its columns have no Avro
    type; LakehouseError when the topic does not take a message; UnclearState when nothing tells any more which rows
    were derived, or came late. In every case a read_committed consumer sees exactly what the bookmark says, but for
    groups, of which it may see some before the bookmark has passed them.
    """
    from spark.derive import own_columns, published
    from spark.lineage import columns_read

    assert isinstance(topic.source, Derived)
    source, kafka = config.topic(topic.source.from_topic), systems.kafka
    bookmarks.ensure(kafka)
    # First of all: from here on, an older process that still computes is fenced off and can produce nothing.
    producer = begin(kafka, of_derived(topic))
    source, table = systems.catalog.resolve_table(config.namespace, source)
    snapshot, last = table.current_snapshot() if table else None, last_batch(table)
    if table is None or snapshot is None or last is None:
        return Produced(0, snapshot.snapshot_id if snapshot else None, {})
    seen = going_on(config, topic, source, systems, table, last)
    since = seen.offsets if seen else {}
    now = bookmark_of(last.cluster_id, last.topic_id, kafka.describe([topic.topic])[topic.topic].topic_id, table, since)
    is_late = seen is not None and seen.replays != now.replays
    if seen and (seen.is_past(last.end) or since == last.end and not is_late):
        return Produced(0, now.snapshot_id, since)
    spark = systems.spark.session(systems.catalog.spark_settings())
    read = partial(published, spark, config.namespace, source.table, names=source.metadata.names)
    rows, late = read(now.snapshot_id), None
    if seen is not None and is_late:
        late = _late(topic, table, rows, read, since, seen)
    limit, produced = message_limit(kafka, topic.topic), 0
    rest = replace(last, start={p: since.get(p, 0) for p in last.end})
    for result, end in _steps(config, topic, systems, rows, late, rest):
        messages = _outgoing(topic, result, limit)
        mark = bookmarks.message(kafka, of_derived(topic), replace(now, offsets=end))
        whole = itertools.chain(messages, [mark])
        # Producing a group again changes nothing, so that the bookmark may come with the last of them.
        for part in parts(whole) if topic.source.group_by else [whole]:
            commit(kafka, producer, part)
        produced += result.num_rows
    made_from = columns_read(own_columns(transform(topic.source)(rows)), rows.columns)
    return Produced(produced, now.snapshot_id, last.end, made_from)


def _late(
    topic: Topic, table: Table, rows: DataFrame, read: Callable[[int], DataFrame], since: Positions, seen: Bookmark
) -> DataFrame:
    """The rows behind the bookmark that were not there when the topic was last derived.

    Raises: UnclearState when that snapshot is forgotten and a message could not replace the one before it.
    """
    from spark.derive import late_rows

    assert isinstance(topic.source, Derived)
    if table.snapshot_by_id(seen.snapshot_id):
        return late_rows(rows, read(seen.snapshot_id), since)
    if topic.source.group_by:
        return rows
    raise UnclearState(
        f"Rows of '{topic.source.from_topic}' came behind the bookmark of '{topic.name}' by a redrive or a replay, and "
        f"snapshot {seen.snapshot_id}, which would tell them from the others, is expired. Nothing was produced. Leave "
        f"them out with `lakehouse bookmark {topic.name} --at POSITION --reason …`, or make '{topic.name}' anew: "
        f"delete the topic '{topic.topic}' and its table"
    )


def _steps(
    config: Config, topic: Topic, systems: Clients, rows: DataFrame, late: DataFrame | None, rest: Batch
) -> Iterator[tuple[pa.Table, Positions]]:
    """The messages for what is new, and where the bookmark is after them.

    Of single rows a bounded part at a time, each for one transaction; of groups all at once, as a group may have rows
    in every part.
    """
    from spark.derive import rows_between

    assert isinstance(topic.source, Derived)
    if topic.source.group_by:
        new = rows_between(rows, rest.start, rest.end)
        yield _messages(config, topic, systems, rows, new.unionByName(late) if late else new), rest.end
        return
    if late:
        yield _messages(config, topic, systems, rows, late), rest.start
    most = min(topic.max_records_per_batch, MOST_MESSAGES)
    while rest.offsets:
        part = split(rest, most)
        result = _messages(config, topic, systems, rows, rows_between(rows, part.start, part.end))
        if result.nbytes > MOST_BYTES and part.offsets > 1:
            most = max(1, part.offsets * MOST_BYTES // (2 * result.nbytes))
            continue
        yield result, part.end
        rest = replace(rest, start=part.end)


def _messages(config: Config, topic: Topic, systems: Clients, rows: DataFrame, new: DataFrame) -> pa.Table:
    """The messages for new rows of the source, whose rows are `rows`."""
    from spark.derive import messages, own_columns, rows_of_touched_groups

    source = topic.source
    assert isinstance(source, Derived)
    wanted = rows_of_touched_groups(rows, new, source.group_by) if source.group_by else new
    result = own_columns(transform(source)(wanted))
    value = _registered(config, topic, systems, "value", source.value_schema_file, result)
    keyed = topic.key if topic.key_format else ()
    key = _registered(config, topic, systems, "key", source.key_schema_file, result.select(*keyed)) if keyed else None
    return messages(result, key, value)


def _registered(
    config: Config, topic: Topic, systems: Clients, side: Literal["key", "value"], file: str, rows: DataFrame
) -> tuple[int, str]:
    """The registry's id of one side's schema, and the schema: that of the file, else one made from the rows."""
    from spark.avro_schema import avro_schema

    schema = config.text(file) if file else avro_schema(rows.schema, f"{topic.name}_{side}")
    return systems.schema_registry.register(topic.subject(side), schema), schema


def _outgoing(topic: Topic, result: pa.Table, limit: int) -> Iterator[Outgoing]:
    """The messages, one record batch in memory as Python objects at a time.

    Raises: LakehouseError for one that the topic does not take.
    """
    for batch in result.to_batches():
        for key, value in zip(*(batch.column(name).to_pylist() for name in ("key", "value")), strict=True):
            message = Outgoing(topic.topic, key, value)
            if message.size > limit:
                raise LakehouseError(
                    f"A message of '{topic.name}' has {message.size:,} bytes, and topic '{topic.topic}' takes "
                    f"{limit:,} (max.message.bytes). Nothing of its transaction was produced. Raise that setting with "
                    f"kafka-configs, or make the rows that its transform returns smaller"
                )
            yield message


def transform(source: Derived) -> Callable[[DataFrame], DataFrame]:
    """The function that lakehouse.yaml names.

    Raises: ConfigError when it does not exist.
    """
    module, _, function = source.transform.partition(":")
    try:
        found: Callable[[DataFrame], DataFrame] = getattr(importlib.import_module(module), function)
        return found
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"lakehouse.yaml: transform '{source.transform}' cannot be imported: {error}") from error
