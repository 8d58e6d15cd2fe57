"""A derived topic: what new rows of a published table change, produced to Kafka in one transaction with the bookmark.

The bookmark is a consumer group's position on the source topic: it commits with the messages or not at all, and any
Kafka tool shows it. Losing it (Kafka forgets idle groups) costs a full computation, whose messages replace themselves.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehouse.batch import Positions
from lakehouse.config import Config, Derived, Topic
from lakehouse.errors import ConfigError
from resources.catalog import last_batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from assets.ingestion import Systems


@dataclass(frozen=True)
class Produced:
    """What one derivation did. `messages` is the number of groups computed again; `upto` the bookmark (exclusive)."""

    messages: int
    source_snapshot_id: int | None
    upto: Positions


def derive(config: Config, topic: Topic, systems: Systems) -> Produced:
    """Compute and produce every group that changed since the bookmark.

    Raises: Unreachable; ConfigError when the transform cannot be imported. In every case the topic shows either all of
    the result or nothing of it to a read_committed consumer.
    """
    from spark.derive import messages, published, rows_of_touched_groups

    assert isinstance(topic.source, Derived)
    source = config.topic(topic.source.from_topic)
    group = bookmark(topic)
    key, value = (
        (systems.schema_registry.register(topic.subject(side), schema), schema)
        for side, schema in (
            ("key", config.text(topic.source.key_schema_file)),
            ("value", config.text(topic.source.value_schema_file)),
        )
    )
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
    touched = rows_of_touched_groups(rows, since, topic.source.group_by)
    result = messages(transform(topic.source)(touched), key, value)
    systems.kafka.transaction(producer, topic.topic, pairs(result), (group, source.topic, last.end))
    return Produced(result.num_rows, snapshot.snapshot_id, last.end)


def bookmark(topic: Topic) -> str:
    """The consumer group whose offsets say which of the source's records a derived topic was computed from."""
    return f"lakehouse.{topic.name}"


def pairs(messages: pa.Table) -> Iterator[tuple[bytes, bytes]]:
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
