"""Messages of single rows: each row is derived once."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from lakehouse.config.model import Topic
from lakehouse.core.errors import UnclearState
from lakehouse.core.offsets.batch import Batch, Positions, furthest, head
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.pipeline.derivation.derived_topic import DerivedTopic
from lakehouse.pipeline.derivation.late_rows import derived_snapshots, lost_rows
from lakehouse.pipeline.derivation.positions import Position
from lakehouse.pipeline.derivation.progress import Part, Pending, Progress
from lakehouse.pipeline.derivation.source_table import SourceTable
from lakehouse.pipeline.engine_values import Ends, FirstRows, Rows, RowsBetween, Transform
from resources.iceberg.bookmarked_table import has_recreated_topic
from resources.iceberg.snapshots import may_lack_rows_of
from resources.iceberg.table_chain import has_rows_of
from resources.kafka.transactions import MAX_BYTES, MAX_MESSAGES, Outgoing


@dataclass(frozen=True)
class SingleRows:
    """The derivation of single rows. A message does not replace another one, so none is produced twice."""

    target: DerivedTopic
    source: SourceTable
    position: Position
    transform: Transform

    def bookmark(self, newest: Batch) -> Bookmark | None:
        topic, source, remedy = self.target.topic, self.source.topic, self.target.remedy
        bookmark = self.target.read_bookmark(self.source.chain)
        if bookmark is None:
            return None
        if not bookmark.is_of(newest):
            if not self.position.may_have_rows_of_recreated(bookmark):
                # All rows of the table are from the new topic.
                return None
            raise UnclearState(
                f"Topic '{source.topic}' was recreated, and its table has rows of both topics at the same offsets, so "
                f"it is unknown which of them '{topic.name}' was derived from. Nothing was produced. {remedy}"
            )
        if not has_rows_of(self.source.chain, bookmark):
            raise UnclearState(
                f"The table of '{source.name}' is not the one that '{topic.name}' was derived from, or was rolled back "
                f"before it rolled over to a new one, and may have other rows. Nothing was produced. {remedy}"
            )
        return bookmark

    def pending(self, progress: Progress) -> Pending:
        bookmark, is_late = progress.bookmark, progress.may_have_late_rows
        if bookmark is None:
            require_one_topic(self.target.topic, self.source, progress.rest.end)
            return Pending(progress, [], progress.reached)
        # A replay may add rows again that were derived and then deleted.
        is_restorable = self.position.is_restorable
        if not is_late and not (is_restorable and may_lack_rows_of(self.source.table, bookmark.snapshot_id)):
            return Pending(progress, [], progress.reached)
        late = [self._late_rows(bookmark)] if is_late else []
        lost = lost_rows(self.source, bookmark, is_restorable=is_restorable)
        return Pending(progress, late, replace(progress.reached, further=lost))

    def _late_rows(self, bookmark: Bookmark) -> Rows:
        """Return the rows behind the bookmark that were added after the last derivation.

        Raises:
            UnclearState: They are unknown, and messages of single rows cannot replace each other.
        """
        snapshots, since = bookmark.snapshots_of(self.source.uuid), bookmark.offsets
        derived = derived_snapshots(self.source, self.position, bookmark, snapshots)
        late = derived.late_rows(self.source)
        # Rows after all that was derived from the lost snapshots are new.
        ends = {p: max((end.get(p, 0) for end in derived.lost.values()), default=0) for p in since}
        if derived.lost and bool(self.source.engine.count(Ends(RowsBetween(late, {}, ends)))):
            raise self.position.unclear_state(self.target.topic, next(iter(derived.lost)), since)
        return late

    def parts(self, pending: Pending) -> Iterator[Part]:
        most = min(self.target.topic.max_records_per_batch, MAX_MESSAGES)
        for rows in pending.late:
            most = yield from self._late_parts(rows, pending, most)
            yield Part(pa.table({"key": [], "value": []}), pending.reached)
        yield from self._new_parts(pending, most)

    def _late_parts(self, late: Rows, pending: Pending, most: int) -> Generator[Part, None, int]:
        """Yield parts of the late rows, and return the number of rows of a part, which is less if messages are large.

        Until all late rows are derived, the bookmark stays at the snapshot that lacks them.
        """
        bookmark, start = pending.progress.bookmark, pending.progress.rest.start
        assert bookmark is not None
        while last := self.source.engine.count(Ends(first := FirstRows(late, most))):
            messages = self._encoded(first)
            if (fitting := fitting_rows(most, messages.nbytes)) < most:
                most = fitting
                continue
            ends = ends_of_first(last, start)
            yield Part(messages, bookmark.with_further(self.source.snapshot_id, ends))
            late = RowsBetween(late, ends, start)
        return most

    def _new_parts(self, pending: Pending, most: int) -> Iterator[Part]:
        """Yield parts of the rows after the bookmark."""
        rest = pending.progress.rest
        while rest.offsets:
            part = head(rest, most)
            messages = self._encoded(RowsBetween(self.source.rows, part.start, part.end))
            if (fitting := fitting_rows(part.offsets, messages.nbytes)) < part.offsets:
                most = fitting
                continue
            yield Part(messages, replace(pending.reached, offsets=part.end))
            rest = replace(rest, start=part.end)

    def _encoded(self, rows: Rows) -> pa.Table:
        return self.target.encode(self.source.engine.derive(rows, self.transform))

    def transactions(self, messages: Iterable[Outgoing]) -> Iterable[Iterable[Outgoing]]:
        return [messages]


def require_one_topic(topic: Topic, source: SourceTable, since: Positions) -> None:
    """Require that no row from a position on is of a topic that was recreated, because its offsets do not identify it.

    Args:
        topic: The topic that is derived from single rows.
        source: The table of the source.
        since: The offsets by partition up to which rows were derived or skipped.

    Raises:
        UnclearState: Such rows would be derived with the new rows of the same offsets.
    """
    if not has_recreated_topic(source.table):
        return
    end = source.engine.count(Ends(source.rows))
    if any(offset > since.get(p, 0) for p, offset in end.items()):
        named = ",".join(f"{p}:{offset}" for p, offset in furthest(end, since).items())
        raise UnclearState(
            f"Topic '{source.topic.topic}' was recreated, and its table has rows of the previous topic at offsets that "
            f"'{topic.name}' would derive with later rows. Nothing was changed. Continue after them with `lakehouse "
            f"bookmark {topic.name} --at {named} --reason …`, which skips the new rows before these offsets"
        )


def fitting_rows(number: int, size: int) -> int:
    """Return a number of rows whose messages fit into one transaction, if those of `number` rows have `size` bytes."""
    return number if size <= MAX_BYTES or number <= 1 else max(1, number * MAX_BYTES // (2 * size))


def ends_of_first(last: Positions, start: Positions) -> Positions:
    """Return the offsets before which late rows were derived, after the first of them by partition and offset were.

    Args:
        last: The offset after the last one of those rows, by partition.
        start: The offset after the late rows of each partition.
    """
    return {p: start[p] if p < max(last) else last.get(p, 0) for p in start}
