"""Produce dead letters to a Kafka topic, each once, with the key, value and headers of the record.

The bookmark (lakehouse/core/offsets/bookmark.py) is committed in one Kafka transaction with the messages. The table of
dead letters remains complete whether or not producing succeeds.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from lakehouse.config.checks import DEAD_LETTER_TOPIC
from lakehouse.config.model import Topic
from lakehouse.core.errors import UnclearState, reason, trace
from lakehouse.core.offsets.batch import Batch, Positions
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.core.table_protocol import ENTRY
from lakehouse.core.tables import arrow_values
from lakehouse.pipeline.batches.positions import topic_id
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits.audit import CheckResult
from lakehouse.pipeline.dead_letters import letters
from resources.iceberg.bookmarked_table import bookmark_of
from resources.iceberg.catalog import Catalog
from resources.kafka import bookmark_topic
from resources.kafka.bookmark_topic import dead_letter_bookmark_name
from resources.kafka.transactions import Outgoing, begin, commit, message_limit, split
from resources.protocols import KafkaClient

_LOG = logging.getLogger(__name__)


def try_publish_dead_letters(namespace: str, topic: Topic, clients: Clients) -> list[CheckResult]:
    """Produce new dead letters, and report a failure as a warning: the table has them, so the batch need not wait.

    Returns:
        One check result; none for a topic without `dead_letter_topic`.
    """
    if not topic.dead_letter_topic:
        return []
    try:
        count = publish_dead_letters(namespace, topic, clients)
    except Exception as error:
        _LOG.error("The dead letters of %s were not produced. %s", topic.name, trace(error) or error)
        message = f"{reason(error)}. The table has all dead letters; producing them is retried after each batch"
        return [CheckResult(DEAD_LETTER_TOPIC, False, message, severity="warn")]
    message = f"{count:,} new dead letters produced to {topic.dead_letter_topic}"
    return [CheckResult(DEAD_LETTER_TOPIC, True, message, severity="warn")]


def publish_dead_letters(namespace: str, topic: Topic, clients: Clients) -> int:
    """Produce the dead letters that the bookmark does not cover yet, and return their number.

    A record is produced once, even if it becomes a dead letter again after its table was dropped. The dead letters of a
    recreated topic are new ones.

    Raises:
        TransientError: A newer process produces the same dead letters.
        UnclearState: It is unknown which were produced.
        Unreachable: A system does not answer.
    """
    kafka, name = clients.kafka, dead_letter_bookmark_name(topic)
    # Dead letters past the table's offsets belong to an unpublished batch, and may turn out not to be dead letters.
    chain = clients.catalog.chain(topic.table_in(namespace))
    ref, last = chain.newest[0], chain.last_batch
    table = letters.load(clients.catalog, topic, ref.dead_letters)
    if last is None or table is None or table.current_snapshot() is None:
        return 0
    if not _may_lack(clients.catalog, bookmark_topic.read(kafka, name, settled=False), table, last):
        return 0
    target = topic.dead_letter_topic
    kafka.ensure_topic(target, topic.partitions, min_partitions=1)
    bookmark_topic.ensure(kafka)
    # First: this fences off any older process, which can produce nothing from now on.
    producer = begin(kafka, name)
    bookmark, target_id = bookmark_topic.read(kafka, name), topic_id(kafka, target)
    if bookmark is None and _has_letters_of(topic, kafka):
        raise UnclearState(
            f"Topic '{target}' has dead letters of '{topic.name}', but no bookmark records which. Nothing was "
            f"produced. Set the position to resume from with `lakehouse bookmark {topic.name} --dead-letters --at "
            f"POSITION --reason …`"
        )
    since = _since(bookmark, last) if bookmark and bookmark.target_id == target_id else {}
    upto = {p: max(end, since.get(p, 0)) for p, end in last.end.items()}
    new = clients.engine.letters.read(ref.dead_letters, last.topic_id, since, upto)
    produced, remaining = dict(since), new.num_rows

    def with_bookmark(part: Iterator[Outgoing]) -> Iterator[Outgoing]:
        nonlocal remaining
        for message in part:
            assert message.source is not None
            yield message
            produced[message.source[0]] = message.source[1] + 1
            remaining -= 1
        offsets = dict(produced) if remaining else upto
        bookmark = bookmark_of(last, target_id, table, offsets)
        yield bookmark_topic.message(kafka, name, bookmark)

    if new.num_rows:
        for part in split(_messages(new, topic, message_limit(kafka, target))):
            commit(kafka, producer, with_bookmark(part))
    return int(new.num_rows)


def _has_letters_of(topic: Topic, kafka: KafkaClient) -> bool:
    """Return whether the topic of dead letters has some of this entry."""
    target = topic.dead_letter_topic
    for partition, offsets in kafka.offsets([target])[target].items():
        for message in kafka.messages(target, partition, offsets.start, offsets.end):
            headers = dict(message.headers)
            # Messages of earlier releases name the record's topic only, so they may be of any of its entries.
            name, of = (ENTRY, topic.name) if ENTRY in headers else ("lakehouse.topic", topic.topic)
            if headers.get(name) == of.encode():
                return True
    return False


def _may_lack(catalog: Catalog, bookmark: Bookmark | None, table: Table, last: Batch) -> bool:
    """Return whether the statistics of the table's files allow dead letters that the bookmark does not cover."""
    since = _since(bookmark, last) if bookmark else {}
    start = {p: min(since.get(p, 0), end) for p, end in last.end.items()}
    return letters.may_hold(catalog, table, replace(last, start=start))


def _since(bookmark: Bookmark, last: Batch) -> Positions:
    return bookmark.offsets if bookmark.is_of(last) else {}


def _messages(letters: pa.Table, topic: Topic, limit: int) -> Iterator[Outgoing]:
    """Yield the messages by partition and offset; one record batch at a time exists as Python objects.

    A value that exceeds the topic's limit is left out, and a header reports that: the table has the value.
    """
    for batch in letters.to_batches():
        for letter in arrow_values.rows(batch):
            record = letter["source_record"]
            headers, source = (*_headers(record), *_origin(letter, topic)), (record["partition"], record["offset"])
            message = Outgoing(topic.dead_letter_topic, record["key"], record["value"], headers, source=source)
            if message.size > limit:
                message = _shortened(message, limit)
            yield message


def _shortened(message: Outgoing, limit: int) -> Outgoing:
    """Return a message without its value; if it is still too large, also without its key and the record's own
    headers."""
    left_out = {"lakehouse.value_left_out": str(len(message.value or b""))}
    short = replace(message, value=None, headers=(*message.headers, *_encoded(left_out)))
    if short.size > limit:
        project_headers = tuple(header for header in message.headers if header[0].startswith("lakehouse."))
        left_out |= {"lakehouse.key_left_out": str(len(message.key or b"")), "lakehouse.headers_left_out": "true"}
        short = replace(short, key=None, headers=(*project_headers, *_encoded(left_out)))
    return short


def _headers(record: dict[str, Any]) -> Iterator[tuple[str, bytes | None]]:
    for header in record["headers"] or ():
        yield header["key"], header["value"]


def _origin(letter: dict[str, Any], topic: Topic) -> Iterator[tuple[str, bytes | None]]:
    """Yield headers with the entry and the record's origin, and the reason why it is a dead letter."""
    record = letter["source_record"]
    values = {name: letter[name] for name in ("error_reason", "error_message")}
    values |= {name: record[name] for name in ("topic", "partition", "offset")}
    return _encoded({ENTRY: topic.name, **{f"lakehouse.{name}": str(value) for name, value in values.items()}})


def _encoded(headers: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    for name, value in headers.items():
        yield name, value.encode()
