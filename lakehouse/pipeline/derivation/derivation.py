"""Derive a topic from the new rows of a published table.

Messages are produced to Kafka in one transaction with the bookmark (lakehouse/core/offsets/bookmark.py), a message of a
compacted topic, so that both are committed or neither.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakehouse.config.model import Config, Topic
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.pipeline.batches.positions import topic_id
from lakehouse.pipeline.derivation.derived_topic import DerivedTopic
from lakehouse.pipeline.derivation.groups import Groups
from lakehouse.pipeline.derivation.positions import Position, position_in
from lakehouse.pipeline.derivation.progress import Part, Progress, Strategy
from lakehouse.pipeline.derivation.single_rows import SingleRows
from lakehouse.pipeline.derivation.source_table import SourceTable, newest_source_table, source_chains
from lakehouse.pipeline.derivation.transforms import transform
from resources.iceberg.bookmarked_table import bookmark_of
from resources.iceberg.table_chain import TableChain
from resources.kafka import bookmark_topic
from resources.kafka.bookmark_topic import derived_bookmark_name
from resources.kafka.transactions import Outgoing, begin, commit, message_limit

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from lakehouse.core.offsets.batch import Batch
    from lakehouse.pipeline.clients import Clients


@dataclass(frozen=True)
class Produced:
    """Result of one derivation.

    Attributes:
        messages: The number of messages: one per group that was derived again, or all messages made from single rows.
        source_snapshot_id: The snapshot of the source's table; None if it had none.
        lineage: The columns of the source that each column was derived from.
    """

    messages: int
    source_snapshot_id: int | None
    lineage: Mapping[str, list[str]] = field(default_factory=dict)


def derive(config: Config, topic: Topic, clients: Clients) -> Produced:
    """Derive messages from the new rows of the source and produce them: each touched group again, or each row once.

    Rows behind the bookmark that a redrive or replay, or ingestion after a rollback, added since are new as well. If
    the table was rolled back behind the bookmark, nothing is produced until it has caught up. After every error,
    read_committed consumers see exactly what the bookmark covers; of groups, they may see some messages that the
    bookmark does not cover yet.

    If the source rolled over to a new table, the remaining rows of the tables before it are derived first. A group may
    have rows in several tables; its message has all of them.

    A table of Tableflow has no offsets in its snapshots. Its position is a snapshot: the rows that the snapshot of the
    bookmark does not have are new, by partition and offset, in whichever order Tableflow committed them.

    Raises:
        ConfigError: The transform cannot be imported.
        IncompatibleSettings: The topic has messages that were derived with other settings.
        LakehouseError: The topic does not accept a message.
        SchemaError: A column of the result has no Avro type, or the source has other names of metadata columns.
        TransientError: The topic was recreated meanwhile, or a newer process derives it.
        UnclearState: The rows that were already derived, or added late, are unknown; or a group has rows of two tables,
            and the transform reads a column whose type changed.
        Unreachable: A system does not answer.
    """
    kafka = clients.kafka
    bookmark_topic.ensure(kafka)
    # The processes of another table must not be fenced off.
    before = DerivedTopic(config, topic, clients, topic_id(kafka, topic.topic))
    chain = before.chain()
    if not before.has_rows(chain):
        # Nothing can be derived. An operator could not set a bookmark either, if the topic is that of another table.
        return Produced(0, None)
    before.require_own(chain)
    limit = message_limit(kafka, topic.topic)
    # Before the bookmark is read: this fences off any older process, which can produce nothing from now on.
    producer = begin(kafka, derived_bookmark_name(topic), limit)
    target = DerivedTopic(config, topic, clients, topic_id(kafka, topic.topic))
    produced = Produced(0, None)
    for chain in source_chains(target):
        of_table = _derive_table(target, chain, producer, limit)
        produced = replace(of_table, messages=produced.messages + of_table.messages)
    return produced


def _derive_table(target: DerivedTopic, chain: TableChain, producer: Producer, limit: int) -> Produced:
    """Derive messages from the new rows of the newest table of a chain, and produce them.

    Args:
        target: The derived topic.
        chain: The tables.
        producer: The producer.
        limit: The maximum bytes of a message in the topic.
    """
    source = newest_source_table(target.source, chain, target.clients)
    if source is None:
        return Produced(0, None)
    compute = transform(target.config, target.topic)
    position = position_in(source, target)
    strategy: Strategy = (Groups if target.derived.group_by else SingleRows)(target, source, position, compute)
    newest = position.newest()
    if newest is None:
        return Produced(0, source.snapshot_id)
    progress = _progress(target, source, position, newest, strategy.bookmark(newest))
    if progress.is_complete:
        return Produced(0, source.snapshot_id)
    pending = strategy.pending(progress)
    kafka, count = target.clients.kafka, 0
    for part in strategy.parts(pending):
        for messages in strategy.transactions(_messages(target, part, limit)):
            commit(kafka, producer, messages, {target.topic.topic: target.id})
        count += part.messages.num_rows
    return Produced(count, source.snapshot_id, source.engine.derive(source.rows, compute).lineage())


def _progress(
    target: DerivedTopic, source: SourceTable, position: Position, newest: Batch, bookmark: Bookmark | None
) -> Progress:
    """Return the progress in a table that has rows up to the newest batch, from the bookmark on."""
    since = bookmark.offsets if bookmark else {}
    end = position.reachable(newest, since)
    rest = replace(end, start={p: since.get(p, 0) for p in end.end})
    reached = bookmark_of(end, target.id, source.table, since, target.topic.name)
    if bookmark is None:
        return Progress(None, rest, reached, may_have_late_rows=False)
    reached = replace(reached, further=bookmark.further)
    return Progress(bookmark, rest, reached, position.may_have_late_rows(bookmark))


def _messages(target: DerivedTopic, part: Part, limit: int) -> Iterator[Outgoing]:
    """Return the messages of a part, after the bookmark before it and before the one that covers it."""
    covering = target.bookmark_message(part.reached)
    begun = [target.bookmark_message(part.begun)] if part.begun else []
    return itertools.chain(begun, target.messages(part.messages, limit), [covering])
