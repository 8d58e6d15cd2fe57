"""The two ways to determine which rows of a table were derived: by offsets, and by a snapshot.

Ingestion writes batches in the order of offsets, and records them in the table's snapshots: rows behind the offsets of
a bookmark are new only after a redrive, a replay or a rollback. Tableflow commits rows in any order, and its snapshots
have no offsets: the rows that the snapshot of a bookmark does not have are new.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from lakehouse.config.model import Topic
from lakehouse.core.errors import UnclearState
from lakehouse.core.offsets.batch import Batch, Positions, furthest, nearest
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.pipeline.batches.positions import topic_id
from lakehouse.pipeline.derivation.derived_topic import DerivedTopic
from lakehouse.pipeline.derivation.source_table import SourceTable
from lakehouse.pipeline.engine_values import Ends
from resources.iceberg.bookmarked_table import has_recreated_topic, is_continued, replays
from resources.iceberg.snapshots import batch_of, history, is_rolled_back, last_batch
from resources.protocols import KafkaClient


class Position(Protocol):
    """The position in a table up to which its rows were derived."""

    is_restorable: ClassVar[bool]
    """Whether a replay may add rows again that were derived and then deleted."""

    def newest(self) -> Batch | None:
        """Return the batch with the newest rows of the table; None if it has none.

        Raises:
            LakehouseError: The source topic does not exist, so it is unknown whose offsets the rows have.
            UnclearState: The table has rows, and its position is unknown.
        """

    def reachable(self, newest: Batch, since: Positions) -> Batch:
        """Return the newest batch, up to the offsets of the bookmark where the table never has rows of these.

        Args:
            newest: The newest batch.
            since: The offsets of the bookmark.
        """

    def may_have_late_rows(self, bookmark: Bookmark) -> bool:
        """Return whether rows behind a bookmark may have been added to the table since."""

    def not_skipped(self, bookmark: Bookmark) -> Positions | None:
        """Return the offsets before which rows that the bookmark's snapshot lacks are late; None if they are unknown.

        An operator may have skipped rows up to later offsets.
        """

    def may_have_rows_of_recreated(self, bookmark: Bookmark) -> bool:
        """Return whether the table may have rows of a topic that was recreated, of which the bookmark is."""

    def unclear_state(self, topic: Topic, snapshot_id: int, since: Positions) -> UnclearState:
        """Return the error that it is unknown which rows are late, because a snapshot is expired.

        Args:
            topic: The derived topic.
            snapshot_id: The snapshot.
            since: The offsets of the bookmark.
        """


def position_in(source: SourceTable, target: DerivedTopic) -> Position:
    """Return the position of a derived topic in a table, by the program that writes the table."""
    if source.topic.is_ingested:
        return OffsetPosition(source, bool(target.derived.group_by))
    return SnapshotPosition(source, target.clients.kafka)


@dataclass(frozen=True)
class OffsetPosition:
    """The position in a table that this project ingests, whose snapshots have the offsets of their batches."""

    source: SourceTable
    is_grouped: bool
    is_restorable: ClassVar[bool] = True

    def newest(self) -> Batch | None:
        return last_batch(self.source.table)

    def reachable(self, newest: Batch, since: Positions) -> Batch:
        # A table that rolled over does not catch up with a bookmark that an operator set after the last row of a
        # partition.
        return _extended(newest, since) if is_continued(self.source.table) else newest

    def may_have_late_rows(self, bookmark: Bookmark) -> bool:
        # A bookmark of the table before this one counts the replays of that table. Its dead letters may be rows here.
        return (
            bookmark.replays_of(self.source.uuid) != replays(self.source.table)
            or is_rolled_back(self.source.table, bookmark.snapshot_id)
            or bool(bookmark.further and self.is_grouped)
        )

    def not_skipped(self, bookmark: Bookmark) -> Positions | None:
        batches = map(batch_of, history(self.source.table, bookmark.snapshot_id))
        ingested = next((batch for batch in batches if batch), None)
        if ingested is None:
            return None
        # An operator may have set the bookmark after the last row of that snapshot: the rows between were skipped.
        return nearest(bookmark.offsets, ingested.end if bookmark.is_of(ingested) else {})

    def may_have_rows_of_recreated(self, bookmark: Bookmark) -> bool:
        return has_recreated_topic(self.source.table)

    def unclear_state(self, topic: Topic, snapshot_id: int, since: Positions) -> UnclearState:
        named = ",".join(f"{p}:{offset}" for p, offset in sorted(since.items()))
        return UnclearState(
            f"A redrive, a replay, or ingestion after a rollback added rows of '{topic.source.upstream}' behind the "
            f"bookmark of '{topic.name}', but snapshot {snapshot_id}, which is needed to identify them, is expired. "
            f"Nothing was produced. Skip them with `lakehouse bookmark {topic.name} --at {named} --reason …`, or "
            f"delete topic '{topic.topic}' and its table to derive everything again"
        )


@dataclass(frozen=True)
class SnapshotPosition:
    """The position in a table that Tableflow writes, which reads no record again."""

    source: SourceTable
    kafka: KafkaClient
    is_restorable: ClassVar[bool] = False

    def newest(self) -> Batch | None:
        end = self.source.engine.count(Ends(self.source.rows))
        name = self.source.topic.topic
        id_ = topic_id(self.kafka, name)
        return Batch(self.kafka.cluster_id(), name, id_, dict.fromkeys(end, 0), end)

    def reachable(self, newest: Batch, since: Positions) -> Batch:
        # The retention of Tableflow may have deleted the last rows of a partition, which is no rollback.
        return _extended(newest, since)

    def may_have_late_rows(self, bookmark: Bookmark) -> bool:
        return bookmark.snapshot_id != self.source.snapshot_id

    def not_skipped(self, bookmark: Bookmark) -> Positions | None:
        return bookmark.offsets

    def may_have_rows_of_recreated(self, bookmark: Bookmark) -> bool:
        # The table continues after the topic was recreated, unless it is a new one.
        return has_recreated_topic(self.source.table) or bookmark.table_uuid == self.source.uuid

    def unclear_state(self, topic: Topic, snapshot_id: int, since: Positions) -> UnclearState:
        return UnclearState(
            f"'{topic.name}' was derived from snapshot {snapshot_id} of '{topic.source.upstream}', which is "
            f"expired, so the rows that Tableflow added since are unknown. Nothing was produced. Skip all rows of the "
            f"newest snapshot with `lakehouse bookmark {topic.name} --at latest --reason …`, or delete topic "
            f"'{topic.topic}' and its table to derive everything again"
        )


def _extended(newest: Batch, since: Positions) -> Batch:
    end = furthest(newest.end, since)
    return replace(newest, start=dict.fromkeys(end, 0), end=end)
