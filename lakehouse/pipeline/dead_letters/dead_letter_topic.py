"""Produce dead letters to a Kafka topic, each once, with the key, value and headers of the record.

The bookmark (lakehouse/core/offsets/bookmark.py) is committed in one Kafka transaction with the messages. The table of
dead letters remains complete whether or not producing succeeds.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace

from pyiceberg.table import Table

from lakehouse.config.checks import DEAD_LETTER_TOPIC
from lakehouse.config.model import Topic
from lakehouse.core.errors import LakehouseError, UnclearState, reason, trace
from lakehouse.core.offsets.batch import Batch, Positions
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.core.table_protocol import ENTRY, LETTER_IDENTITY
from lakehouse.core.text import pluralize
from lakehouse.pipeline.batches.poison import listed
from lakehouse.pipeline.batches.positions import topic_id
from lakehouse.pipeline.bookmark_owners import foreign_error, is_foreign
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits.audit import CheckResult
from lakehouse.pipeline.dead_letters import letters
from lakehouse.pipeline.dead_letters.letter_messages import letter_messages
from lakehouse.pipeline.dead_letters.renamed_entries import rename_bookmark
from lakehouse.pipeline.engine_values import Place
from resources.iceberg.bookmarked_table import bookmark_of
from resources.iceberg.catalog import Catalog
from resources.iceberg.table_chain import TableChain
from resources.kafka import bookmark_topic
from resources.kafka.bookmark_topic import dead_letter_bookmark_name
from resources.kafka.transactions import Outgoing, begin, commit, message_limit, split
from resources.protocols import KafkaClient

_LOG = logging.getLogger(__name__)

MOST_NAMED = 10
"""Maximum number of dead letters that an error names."""


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

    A record is produced once. The dead letters of a recreated topic are new ones. If the topic has those of another
    table for an entry of this name, such as one of another environment, or one that was dropped, none are produced.

    Raises:
        LakehouseError: Some were skipped, because their topic accepts only messages that are even shorter.
        TransientError: A newer process produces the same dead letters, or their topic was recreated meanwhile.
        UnclearState: It is unknown which were produced, or the topic has those of another table.
        Unreachable: A system does not answer.
    """
    kafka, name = clients.kafka, dead_letter_bookmark_name(topic)
    # Dead letters past the table's offsets belong to an unpublished batch, and may turn out not to be dead letters.
    chain = clients.catalog.chain(topic.table_in(namespace))
    ref, last = chain.newest[0], chain.last_batch
    table = letters.load(clients.catalog, topic, ref.dead_letters)
    if last is None or table is None or table.current_snapshot() is None:
        return 0
    target = topic.dead_letter_topic
    known, present = bookmark_topic.read(kafka, name, settled=False), kafka.describe([target]).get(target)
    is_own = known and known.identity == chain.identity and present and known.target_id == present.topic_id
    if not _may_lack(clients.catalog, known if is_own else None, table, last):
        return 0
    kafka.ensure_topic(target, topic.partitions, min_partitions=1)
    bookmark_topic.ensure(kafka)
    # The processes of another table must not be fenced off.
    _require_own(known, topic, topic_id(kafka, target), chain)
    rename_bookmark(kafka, topic, chain)
    limit = message_limit(kafka, target)
    # Before the bookmark is read: this fences off any older process, which can produce nothing from now on.
    producer = begin(kafka, name, limit)
    bookmark, target_id = bookmark_topic.read(kafka, name), topic_id(kafka, target)
    _require_own(bookmark, topic, target_id, chain)
    if bookmark and bookmark.target_id != target_id:
        # It is of the topic that this one replaced.
        bookmark = None
    if bookmark is None and _has_letters_of(topic, kafka, chain.identity):
        raise UnclearState(
            f"Topic '{target}' has dead letters of '{topic.name}', but no bookmark records which. Nothing was "
            f"produced. Set the position to resume from with `lakehouse bookmark {topic.name} --dead-letters --at "
            f"POSITION --reason …`"
        )
    since = _since(bookmark, last) if bookmark else {}
    upto = {p: max(end, since.get(p, 0)) for p, end in last.end.items()}
    new = clients.engine.letters.read(ref.dead_letters, last.topic_id, since, upto)
    produced, remaining, skipped = dict(since), new.num_rows, list[Place]()
    owner, source = str(chain.existing[0][0]), chain.identity

    def with_bookmark(part: Iterator[Outgoing]) -> Iterator[Outgoing]:
        nonlocal remaining
        for message in part:
            assert message.source is not None
            yield message
            produced[message.source[0]] = message.source[1] + 1
            remaining -= 1
        offsets = dict(produced) if remaining > len(skipped) else upto
        # Its snapshot is of the table of dead letters, and its identity that of the table of rows.
        bookmark = replace(bookmark_of(last, target_id, table, offsets, topic.name), table=owner, identity=source)
        yield bookmark_topic.message(kafka, name, bookmark)

    if new.num_rows:
        for part in split(letter_messages(new, topic, chain.identity, limit, skipped)):
            commit(kafka, producer, with_bookmark(part), {target: target_id})
    if skipped:
        more = f", and {len(skipped) - MOST_NAMED:,} more" if len(skipped) > MOST_NAMED else ""
        raise LakehouseError(
            f"{pluralize(len(skipped), 'dead letter')} of '{topic.name}' ({listed(skipped[:MOST_NAMED])}{more}) cannot "
            f"be produced to '{target}', which accepts messages of at most {limit:,} bytes (max.message.bytes). All "
            f"others were produced. Raise that setting for later ones, and read these in table {ref.dead_letters}"
        )
    return int(new.num_rows)


def _require_own(bookmark: Bookmark | None, topic: Topic, target_id: str, chain: TableChain) -> None:
    if bookmark and is_foreign(bookmark, target_id, chain):
        raise foreign_error(bookmark, topic, topic.dead_letter_topic, chain)


def _has_letters_of(topic: Topic, kafka: KafkaClient, identity: str) -> bool:
    """Return whether the topic of dead letters has some of this entry, or of its table under another entry's name."""
    target = topic.dead_letter_topic
    for partition, offsets in kafka.offsets([target])[target].items():
        for message in kafka.messages(target, partition, offsets.start, offsets.end):
            headers = dict(message.headers)
            if headers.get(LETTER_IDENTITY) == identity.encode():
                return True
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
