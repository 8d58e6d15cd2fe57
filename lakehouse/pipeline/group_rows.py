"""The rows from which groups of a derived topic are computed, in the tables of a source that rolled over."""

from collections.abc import Sequence

from lakehouse.config.model import Topic
from lakehouse.config.sources import Derived
from lakehouse.core.errors import UnclearState
from lakehouse.pipeline.engine import DerivationEngine
from lakehouse.pipeline.engine_values import GroupRows, Rows, RowsInColumnsOf, SnapshotRows, Transform


def rows_of_groups(
    engine: DerivationEngine,
    topic: Topic,
    transform: Transform,
    rows: Rows,
    touched: Sequence[Rows],
    earlier: Sequence[SnapshotRows],
) -> GroupRows:
    """Return all rows of the touched groups, including those of the tables before a roll-over.

    Args:
        engine: The engine.
        topic: The derived topic.
        transform: Its transform.
        rows: The rows of the table.
        touched: Rows of the groups.
        earlier: The rows of the tables that it continues.

    Raises:
        UnclearState: The rows of a group cannot be computed together, because a column has values of another type.
    """
    assert isinstance(topic.source, Derived)
    group_by, parts = topic.source.group_by, list[Rows]([rows])
    for closed in earlier:
        changed = engine.changed_columns(rows, closed)
        if {*group_by} & {*changed}:
            # Values of different types are different groups.
            continue
        part = RowsInColumnsOf(closed, rows)
        is_ambiguous = bool(changed) and engine.is_read(transform, rows, changed)
        if is_ambiguous and not engine.is_empty(GroupRows([part], touched, group_by)):
            raise UnclearState(
                f"Groups of '{topic.name}' have rows in table {closed.ref} and in the table that continues it, in "
                f"which {', '.join(changed)} has another type, and the transform reads it, so their results are "
                f"unknown. Nothing was produced. Skip the new rows with `lakehouse bookmark {topic.name} --at latest "
                f"--reason …`, or let the transform read another column"
            )
        parts.append(part)
    return GroupRows(parts, touched, group_by)
