"""Dead letters as messages of a topic, beside their table: each once, with the record's own key, value and headers.

The bookmark is a consumer group's position on the source topic; it commits in one Kafka transaction with the messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lakehouse import naming
from lakehouse.topic import Topic
from resources.kafka import Bookmark, Message
from resources.snapshots import last_batch

if TYPE_CHECKING:
    import pyarrow as pa

    from assets.ingestion import Systems


def mirror(namespace: str, topic: Topic, systems: Systems) -> int:
    """Produce the dead letters that the bookmark has not passed; returns how many.

    Raises: Unreachable; UnclearState when a newer process does the same.
    """
    from spark import dead_letters

    table = systems.catalog.load(namespace, naming.dead_letter_table(topic.table))
    last = last_batch(table)
    group = f"lakehouse.{topic.name}.dead_letters"
    if last is None or systems.kafka.committed(group, topic.topic).offsets == last.end:
        return 0
    systems.kafka.ensure_topic(topic.dead_letter_topic, topic.partitions)
    producer = systems.kafka.producer(transactional_id=group)
    # First of all: from here on, an older process is fenced off and can produce nothing.
    producer.init_transactions()
    since = systems.kafka.committed(group, topic.topic).offsets
    spark = systems.spark.session(systems.catalog.spark_settings())
    letters = dead_letters.between(spark, namespace, naming.dead_letter_table(topic.table), topic, since, last.end)
    position = group, topic.topic, Bookmark(last.end)
    systems.kafka.transaction(producer, topic.dead_letter_topic, _messages(letters), position)
    return letters.num_rows


def _messages(letters: pa.Table) -> Iterator[Message]:
    """One record batch in memory as Python objects at a time."""
    for batch in letters.to_batches():
        for letter in batch.to_pylist():
            record = letter["source_record"]
            yield record["key"], record["value"], [*_headers(record), *_reasons(letter)]


def _headers(record: dict[str, Any]) -> Iterator[tuple[str, bytes | None]]:
    for header in record["headers"] or ():
        yield header["key"], header["value"]


def _reasons(letter: dict[str, Any]) -> Iterator[tuple[str, bytes | None]]:
    """Where the record is from and what is wrong with it."""
    record = letter["source_record"]
    said = {name: letter[name] for name in ("error_reason", "error_message")}
    said |= {name: record[name] for name in ("topic", "partition", "offset")}
    for name, value in said.items():
        yield f"lakehouse.{name}", str(value).encode()
