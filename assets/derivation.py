"""A derived topic: what new rows of a published table change, produced to Kafka in one transaction with the bookmark.

The bookmark is a consumer group's position on the source topic: it commits with the messages or not at all, and any
Kafka tool shows it. Losing it (Kafka forgets idle groups) costs a full computation, whose messages replace themselves.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from lakehouse.batch import Batch, Positions, split
from lakehouse.config import Config
from lakehouse.errors import ConfigError
from lakehouse.topic import Derived, Topic
from resources.catalog import last_batch

if TYPE_CHECKING:
    import pyarrow as pa
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


def derive(config: Config, topic: Topic, systems: Systems) -> Produced:
    """Compute and produce what new rows of the source make of the topic: every group they touch, or each row once.

    Raises: Unreachable; ConfigError when the transform cannot be imported; SchemaError when its columns have no Avro
    type. In every case a read_committed consumer sees exactly what the bookmark says.
    """
    from spark.derive import own_columns, published
    from spark.lineage import columns_read

    assert isinstance(topic.source, Derived)
    source = config.topic(topic.source.from_topic)
    group = bookmark(topic)
    producer = systems.kafka.producer(transactional_id=group)
    # First of all: from here on, an older process that still computes is fenced off and can produce nothing.
    producer.init_transactions()
    since = systems.kafka.committed(group, source.topic)
    source = systems.catalog.current(config.namespace, source)
    table = systems.catalog.load(config.namespace, source.table)
    snapshot = table.current_snapshot() if table else None
    last = last_batch(table)
    if snapshot is None or last is None or since == last.end:
        return Produced(0, snapshot.snapshot_id if snapshot else None, since)
    spark = systems.spark.session(systems.catalog.spark_settings())
    rows = published(spark, config.namespace, source.table, snapshot.snapshot_id, source.metadata.names)
    produced = 0
    for start, end in _steps(topic, last, since):
        result = _messages(config, topic, systems, rows, start, end)
        systems.kafka.transaction(producer, topic.topic, pairs(result), (group, source.topic, end))
        produced += result.num_rows
    made_from = columns_read(own_columns(transform(topic.source)(rows)), rows.columns)
    return Produced(produced, snapshot.snapshot_id, last.end, made_from)


def _steps(topic: Topic, last: Batch, since: Positions) -> Iterator[tuple[Positions, Positions]]:
    """The way from the bookmark to the source's position, as (first offsets, next offsets): of single rows a bounded
    part at a time; of groups all at once, as a group may have rows in every part."""
    assert isinstance(topic.source, Derived)
    rest = replace(last, start={p: since.get(p, 0) for p in last.end})
    if topic.source.group_by:
        yield rest.start, rest.end
        return
    while rest.offsets:
        part = split(rest, topic.max_records_per_batch)
        yield part.start, part.end
        rest = replace(rest, start=part.end)


def _messages(
    config: Config, topic: Topic, systems: Systems, rows: DataFrame, start: Positions, end: Positions
) -> pa.Table:
    """The messages for rows of the source from `start` (inclusive) to `end` (exclusive)."""
    from spark.derive import messages, own_columns, rows_between, rows_of_touched_groups

    source = topic.source
    assert isinstance(source, Derived)
    new = rows_of_touched_groups(rows, start, source.group_by) if source.group_by else rows_between(rows, start, end)
    result = own_columns(transform(source)(new))
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
