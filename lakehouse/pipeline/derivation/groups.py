"""Messages of groups: each group that has new rows is derived again from all its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lakehouse.config.model import Topic
from lakehouse.config.sources import Derived
from lakehouse.core.errors import UnclearState
from lakehouse.core.offsets.batch import Batch
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.pipeline.derivation.derived_topic import DerivedTopic
from lakehouse.pipeline.derivation.late_rows import derived_snapshots, lost_rows
from lakehouse.pipeline.derivation.positions import Position
from lakehouse.pipeline.derivation.progress import Part, Pending, Progress
from lakehouse.pipeline.derivation.source_table import SourceTable
from lakehouse.pipeline.engine import Engine
from lakehouse.pipeline.engine_values import (
    ChangedColumns,
    GroupRows,
    IsEmpty,
    LateRows,
    Rows,
    RowsBetween,
    RowsInColumnsOf,
    SnapshotRows,
    Transform,
)
from resources.iceberg.bookmarked_table import has_recreated_topic
from resources.iceberg.table_chain import has_rows_of
from resources.kafka.transactions import Outgoing, split


@dataclass(frozen=True)
class Groups:
    """The derivation of groups. Deriving one again replaces its message by an equal one."""

    target: DerivedTopic
    source: SourceTable
    position: Position
    transform: Transform

    def bookmark(self, newest: Batch) -> Bookmark | None:
        bookmark = self.target.read_bookmark(self.source.chain)
        if bookmark is None or not bookmark.is_of(newest):
            return None
        return bookmark if has_rows_of(self.source.chain, bookmark) else None

    def pending(self, progress: Progress) -> Pending:
        bookmark = progress.bookmark
        if bookmark is None or not bookmark.offsets:
            # All rows are new: those of a topic that was recreated may be at offsets after the newest batch.
            lost = self._rows_with_lost(bookmark) if bookmark else ()
            return Pending(progress, [self.source.rows, *lost], replace(progress.reached, further={}))
        if not progress.may_have_late_rows:
            return Pending(progress, [], progress.reached)
        late = [self._late_rows(bookmark), *self._rows_with_lost(bookmark)]
        return Pending(progress, late, replace(progress.reached, further={}))

    def _late_rows(self, bookmark: Bookmark) -> Rows:
        """Return the rows behind the bookmark that were added after the last derivation; all if they are unknown."""
        # From the others, a derivation may have produced some groups only before it failed.
        snapshots = bookmark.snapshots_of(self.source.uuid)
        complete = {id_: end for id_, end in snapshots.items() if id_ == bookmark.snapshot_id}
        derived = derived_snapshots(self.source, self.position, bookmark, complete)
        return self.source.rows if derived.lost else derived.late_rows(self.source)

    def _rows_with_lost(self, bookmark: Bookmark) -> Iterator[Rows]:
        """Yield the rows that the table may lack now, whose groups have fewer rows."""
        for id_, end in lost_rows(self.source, bookmark, is_restorable=False).items():
            if self.source.has(id_):
                rows = self.source.rows_of(id_)
                # Rows of a recreated topic may have the same offsets, so any of them may be missing.
                is_unknown = has_recreated_topic(self.source.table)
                yield rows if is_unknown else LateRows(rows, [(self.source.rows, end)], end)

    def parts(self, pending: Pending) -> Iterator[Part]:
        # All at once, because a group may have rows in every part.
        bookmark, rest, reached = pending.progress.bookmark, pending.progress.rest, pending.reached
        new = RowsBetween(self.source.rows, rest.start, rest.end)
        computation = GroupComputation(self.source.engine, self.target.topic, self.transform)
        inputs = computation.rows_of_groups(self.source.rows, [new, *pending.late], self.source.closed_rows())
        messages = self.target.encode(self.source.engine.derive(inputs, self.transform))
        # Of several transactions, the first one records whose messages they are, the settings that made them, and the
        # snapshot, whose rows the table may lack later.
        before = bookmark or replace(reached, offsets={})
        begun = before.with_further(self.source.snapshot_id, rest.end)
        yield Part(messages, replace(reached, offsets=rest.end), begun)

    def transactions(self, messages: Iterable[Outgoing]) -> Iterable[Iterable[Outgoing]]:
        # Groups may be produced twice, so only the last of their transactions needs the new bookmark.
        return split(messages)


@dataclass(frozen=True)
class GroupComputation:
    """The computation of a topic's groups by a transform."""

    engine: Engine
    topic: Topic
    transform: Transform

    def rows_of_groups(self, rows: Rows, touched: Sequence[Rows], earlier: Sequence[SnapshotRows]) -> GroupRows:
        """Return all rows of the touched groups, including those of the tables before a roll-over.

        Args:
            rows: The rows of the table.
            touched: Rows of the groups.
            earlier: The rows of the tables that it continues.

        Raises:
            UnclearState: The rows of a group cannot be computed together, because a column has values of another type.
        """
        assert isinstance(self.topic.source, Derived)
        group_by, parts = self.topic.source.group_by, list[Rows]([rows])
        for closed in earlier:
            changed = self.engine.count(ChangedColumns(rows, closed))
            if {*group_by} & {*changed}:
                # Values of different types are different groups.
                continue
            part = RowsInColumnsOf(closed, rows)
            is_ambiguous = bool(changed) and self.engine.derive(rows, self.transform).reads(changed)
            if is_ambiguous and not self.engine.count(IsEmpty(GroupRows([part], touched, group_by))):
                raise UnclearState(
                    f"Groups of '{self.topic.name}' have rows in table {closed.ref} and in the table that continues "
                    f"it, in which {', '.join(changed)} has another type, and the transform reads it, so their results "
                    f"are unknown. Nothing was produced. Skip the new rows with `lakehouse bookmark {self.topic.name} "
                    f"--at latest --reason …`, or let the transform read another column"
                )
            parts.append(part)
        return GroupRows(parts, touched, group_by)
