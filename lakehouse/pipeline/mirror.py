"""Dead letters as messages of a topic, beside their table: each once, with the record's own key, value and headers.

The bookmark (lakehouse/core/bookmark.py) commits in one Kafka transaction with the messages.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakehouse.config.checks import MIRRORED
from lakehouse.config.topic import Topic
from lakehouse.core import arrow_values, naming
from lakehouse.core.batch import Batch, Positions
from lakehouse.core.bookmark import Bookmark
from lakehouse.core.errors import UnclearState, reason, trace
from lakehouse.pipeline import letters
from lakehouse.pipeline.audit import Finding
from lakehouse.pipeline.bookmarks import bookmark_of, has_messages, of_letters
from resources import bookmarks
from resources.snapshots import last_batch
from resources.transactions import Outgoing, begin, commit, message_limit, parts

_LOG = logging.getLogger(__name__)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

    from lakehouse.pipeline.clients import Clients


def mirrored(namespace: str, topic: Topic, systems: Clients) -> list[Finding]:
    """Produce new dead letters, and say whether that went well: the table has them, and its readers must not wait.

    Returns: one finding; none for a topic without `dead_letter_topic`.
    """
    if not topic.dead_letter_topic:
        return []
    try:
        current, _ = systems.catalog.resolve_table(namespace, topic)
        count = mirror(namespace, current, systems)
    except Exception as error:
        _LOG.error("Dead letters of %s were not produced. %s", topic.name, trace(error) or error)
        said = f"{reason(error)}. The table has all dead letters; producing them is tried again after each batch"
        return [Finding(MIRRORED, False, said, severity="warn")]
    return [
        Finding(MIRRORED, True, f"{count:,} new dead letters produced to {topic.dead_letter_topic}", severity="warn")
    ]


def mirror(namespace: str, topic: Topic, systems: Clients) -> int:
    """Produce the dead letters that the bookmark has not passed; returns how many.

    A record is produced once, though it may be a dead letter again when its table starts over. The letters of a topic
    that was recreated are new ones.

    Raises: Unreachable; UnclearState when a newer process does the same, or nothing tells which were produced.
    """
    from spark import dead_letters

    kafka, name = systems.kafka, of_letters(topic)
    # Letters behind the table's position are of a batch that was not published, and may yet be none.
    last = last_batch(systems.catalog.load(namespace, topic.table))
    table = letters.load(systems.catalog, namespace, topic)
    if last is None or table is None or table.current_snapshot() is None:
        return 0
    if not _may_lack(bookmarks.read(kafka, name, settled=False), table, last):
        return 0
    target = topic.dead_letter_topic
    kafka.ensure_topic(target, topic.partitions, fewest=1)
    bookmarks.ensure(kafka)
    # First of all: from here on, an older process is fenced off and can produce nothing.
    producer = begin(kafka, name)
    known, target_id = bookmarks.read(kafka, name), kafka.describe([target])[target].topic_id
    if known is None and has_messages(kafka, target, of=topic):
        raise UnclearState(
            f"Topic '{target}' has dead letters of '{topic.topic}', and no bookmark says which. Nothing was produced. "
            f"Say where it continues: `lakehouse bookmark {topic.name} --dead-letters --at POSITION --reason …`"
        )
    since = _since(known, last) if known and known.target_id == target_id else {}
    upto = {p: max(end, since.get(p, 0)) for p, end in last.end.items()}
    spark = systems.spark.session(systems.catalog.spark_settings())
    every = spark.table(naming.spark_table(namespace, naming.dead_letter_table(topic.table)))
    new = dead_letters.between(every, last.topic_id, since, upto).toArrow()
    passed, left = dict(since), new.num_rows

    def marked(part: Iterator[Outgoing]) -> Iterator[Outgoing]:
        nonlocal left
        for message in part:
            assert message.place is not None
            yield message
            passed[message.place[0]] = message.place[1] + 1
            left -= 1
        offsets = dict(passed) if left else upto
        bookmark = bookmark_of(last.cluster_id, last.topic_id, target_id, table, offsets)
        yield bookmarks.message(kafka, name, bookmark)

    if new.num_rows:
        for part in parts(_messages(new, topic, message_limit(kafka, target))):
            commit(kafka, producer, marked(part))
    return int(new.num_rows)


def _may_lack(known: Bookmark | None, table: Table, last: Batch) -> bool:
    """Whether the table may have letters that a bookmark has not passed, by the statistics of its files."""
    since = _since(known, last) if known else {}
    start = {p: min(since.get(p, 0), end) for p, end in last.end.items()}
    return letters.may_hold(table, replace(last, start=start))


def _since(known: Bookmark, last: Batch) -> Positions:
    return known.offsets if known.is_of(last.cluster_id, last.topic_id) else {}


def _messages(letters: pa.Table, topic: Topic, limit: int) -> Iterator[Outgoing]:
    """The messages in order of partition and offset, one record batch in memory as Python objects at a time.

    A value that the topic is too small for is left out, and a header says so: the table has it.
    """
    for batch in letters.to_batches():
        for letter in arrow_values.rows(batch):
            record = letter["source_record"]
            headers, place = (*_headers(record), *_reasons(letter)), (record["partition"], record["offset"])
            message = Outgoing(topic.dead_letter_topic, record["key"], record["value"], headers, place=place)
            if message.size > limit:
                message = _shortened(message, limit)
            yield message


def _shortened(message: Outgoing, limit: int) -> Outgoing:
    """A message without its value; and where that is not enough, without its key and the record's own headers."""
    left_out = {"lakehouse.value_left_out": str(len(message.value or b""))}
    short = replace(message, value=None, headers=(*message.headers, *_encoded(left_out)))
    if short.size > limit:
        own = tuple(header for header in message.headers if header[0].startswith("lakehouse."))
        left_out |= {"lakehouse.key_left_out": str(len(message.key or b"")), "lakehouse.headers_left_out": "true"}
        short = replace(short, key=None, headers=(*own, *_encoded(left_out)))
    return short


def _headers(record: dict[str, Any]) -> Iterator[tuple[str, bytes | None]]:
    for header in record["headers"] or ():
        yield header["key"], header["value"]


def _reasons(letter: dict[str, Any]) -> Iterator[tuple[str, bytes | None]]:
    """Where the record is from and what is wrong with it."""
    record = letter["source_record"]
    said = {name: letter[name] for name in ("error_reason", "error_message")}
    said |= {name: record[name] for name in ("topic", "partition", "offset")}
    return _encoded({f"lakehouse.{name}": str(value) for name, value in said.items()})


def _encoded(headers: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    for name, value in headers.items():
        yield name, value.encode()
