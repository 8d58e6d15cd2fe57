"""A derived topic: what new rows of a published table change, produced to Kafka in one transaction with the bookmark.

The bookmark is a consumer group's position on the source topic: it commits with the messages or not at all, and any
Kafka tool shows it. Losing it (Kafka forgets idle groups) costs a full computation, whose messages replace themselves.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from lakehouse.batch import REPLAYS, Batch, Positions, split
from lakehouse.config import Config
from lakehouse.errors import ConfigError, UnclearState
from lakehouse.topic import Derived, Topic
from resources.kafka import Bookmark
from resources.snapshots import last_batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

    from assets.ingestion import Systems


@dataclass(frozen=True)
class Produced:
    """What one derivation did. `messages` is how many were produced: one a group that was computed again, or what the
    transform makes of single rows; `upto` is the bookmark (exclusive); `lineage` are the source's columns that each
    column is made from."""

    messages: int
    source_snapshot_id: int | None
    upto: Positions
    lineage: Mapping[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """What is noted with the bookmark: which snapshot of the source was read, and its count of replays."""

    snapshot_id: int
    replays: int


def derive(config: Config, topic: Topic, systems: Systems) -> Produced:
    """Compute and produce what new rows of the source make of the topic: every group they touch, or each row once.

    Rows behind the bookmark that a redrive or a replay brought meanwhile are new, too.

    Raises: Unreachable; ConfigError when the transform cannot be imported; SchemaError when its columns have no Avro
    type; UnclearState when nothing tells any more which rows came late. In every case a read_committed consumer sees
    exactly what the bookmark says.
    """
    from spark.derive import own_columns, published
    from spark.lineage import columns_read

    assert isinstance(topic.source, Derived)
    source = config.topic(topic.source.from_topic)
    group = bookmark(topic)
    producer = systems.kafka.producer(transactional_id=group)
    # First of all: from here on, an older process that still computes is fenced off and can produce nothing.
    producer.init_transactions()
    found = systems.kafka.committed(group, source.topic)
    since, seen = found.offsets, Seen(**json.loads(found.note)) if found.note else None
    source = systems.catalog.current(config.namespace, source)
    table = systems.catalog.load(config.namespace, source.table)
    snapshot, last = table.current_snapshot() if table else None, last_batch(table)
    if table is None or snapshot is None or last is None:
        return Produced(0, snapshot.snapshot_id if snapshot else None, since)
    now = Seen(snapshot.snapshot_id, int(table.properties.get(REPLAYS, 0)))
    is_late = seen is not None and seen.replays != now.replays
    if since == last.end and not is_late:
        return Produced(0, now.snapshot_id, since)
    spark = systems.spark.session(systems.catalog.spark_settings())
    read = partial(published, spark, config.namespace, source.table, names=source.metadata.names)
    rows, late = read(now.snapshot_id), None
    if seen is not None and is_late:
        late = _late(topic, table, rows, read, since, seen)
    produced = 0
    for new, end in _steps(topic, rows, late, replace(last, start={p: since.get(p, 0) for p in last.end})):
        result = _messages(config, topic, systems, rows, new)
        position = Bookmark(end, json.dumps(asdict(now)))
        systems.kafka.transaction(producer, topic.topic, pairs(result), (group, source.topic, position))
        produced += result.num_rows
    made_from = columns_read(own_columns(transform(topic.source)(rows)), rows.columns)
    return Produced(produced, now.snapshot_id, last.end, made_from)


def _late(
    topic: Topic, table: Table, rows: DataFrame, read: Callable[[int], DataFrame], since: Positions, seen: Seen
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
        f"snapshot {seen.snapshot_id}, which would tell them from the others, is expired. Nothing was produced. Make "
        f"'{topic.name}' anew: delete the topic '{topic.topic}', its table and the consumer group '{bookmark(topic)}'"
    )


def _steps(topic: Topic, rows: DataFrame, late: DataFrame | None, rest: Batch) -> Iterator[tuple[DataFrame, Positions]]:
    """What is new and where the bookmark is after it: of single rows a bounded part at a time; of groups all at once,
    as a group may have rows in every part."""
    from spark.derive import rows_between

    assert isinstance(topic.source, Derived)
    if topic.source.group_by:
        new = rows_between(rows, rest.start, rest.end)
        yield new.unionByName(late) if late else new, rest.end
        return
    if late:
        yield late, rest.start
    while rest.offsets:
        part = split(rest, topic.max_records_per_batch)
        yield rows_between(rows, part.start, part.end), part.end
        rest = replace(rest, start=part.end)


def _messages(config: Config, topic: Topic, systems: Systems, rows: DataFrame, new: DataFrame) -> pa.Table:
    """The messages for new rows of the source, whose rows are `rows`."""
    from spark.derive import messages, own_columns, rows_of_touched_groups

    source = topic.source
    assert isinstance(source, Derived)
    wanted = rows_of_touched_groups(rows, new, source.group_by) if source.group_by else new
    result = own_columns(transform(source)(wanted))
    value = _registered(config, topic, systems, "value", source.value_schema_file, result)
    keyed = topic.key if topic.key_format == "avro" else ()
    key = _registered(config, topic, systems, "key", source.key_schema_file, result.select(*keyed)) if keyed else None
    return messages(result, key, value)


def _registered(
    config: Config, topic: Topic, systems: Systems, side: Literal["key", "value"], file: str, rows: DataFrame
) -> tuple[int, str]:
    """The registry's id of one side's schema, and the schema: that of the file, else one made from the rows."""
    from spark.avro_schema import avro_schema

    schema = config.text(file) if file else avro_schema(rows.schema, f"{topic.name}_{side}")
    return systems.schema_registry.register(topic.subject(side), schema), schema


def bookmark(topic: Topic) -> str:
    """The consumer group whose offsets say which of the source's records a derived topic was computed from."""
    return f"lakehouse.{topic.name}"


def pairs(messages: pa.Table) -> Iterator[tuple[bytes | None, bytes]]:
    """(key, value) of each row, one record batch in memory as Python objects at a time."""
    for batch in messages.to_batches():
        yield from zip(*(batch.column(name).to_pylist() for name in ("key", "value")), strict=True)


def transform(source: Derived) -> Callable[[DataFrame], DataFrame]:
    """The function that lakehouse.yaml names.

    Raises: ConfigError when it does not exist.
    """
    module, _, function = source.transform.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"lakehouse.yaml: transform '{source.transform}' cannot be imported: {error}") from error
