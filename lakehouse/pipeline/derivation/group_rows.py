"""The rows from which groups of a derived topic are computed, in the tables of a source that rolled over."""

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.config.model import Topic
from lakehouse.config.sources import Derived
from lakehouse.core.errors import UnclearState
from lakehouse.pipeline.engine import Engine
from lakehouse.pipeline.engine_values import (
    ChangedColumns,
    GroupRows,
    IsEmpty,
    Rows,
    RowsInColumnsOf,
    SnapshotRows,
    Transform,
)


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
