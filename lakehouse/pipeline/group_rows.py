"""The rows from which groups of a derived topic are computed, in the tables of a source that rolled over."""

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame

from lakehouse.config.model import Topic
from lakehouse.config.sources import Derived
from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.core.tables.naming import TableRef
from spark import derive as derived_rows


def rows_of_groups(
    topic: Topic,
    compute: Callable[[DataFrame], DataFrame],
    rows: DataFrame,
    touched: DataFrame,
    earlier: Sequence[tuple[TableRef, DataFrame]],
) -> DataFrame:
    """Return all rows of the touched groups, including those of the tables before a roll-over.

    Args:
        topic: The derived topic.
        compute: Its transform.
        rows: The rows of the table.
        touched: The columns of groups of some rows.
        earlier: The tables that it continues, and their rows.

    Raises:
        UnclearState: The rows of a group cannot be computed together, because a column has values of another type.
    """
    assert isinstance(topic.source, Derived)
    group_by = topic.source.group_by
    inputs = derived_rows.rows_of_touched_groups(rows, touched, group_by)
    for ref, closed in earlier:
        changed = derived_rows.changed_columns(rows, closed)
        if {*group_by} & {*changed}:
            # Values of different types are different groups.
            continue
        of_groups = derived_rows.rows_of_touched_groups(derived_rows.as_rows_of(rows, closed), touched, group_by)
        if changed and _is_read(compute, rows, changed) and not of_groups.isEmpty():
            raise UnclearState(
                f"Groups of '{topic.name}' have rows in table {ref} and in the table that continues it, in which "
                f"{', '.join(changed)} has another type, and the transform reads it, so their results are unknown. "
                f"Nothing was produced. Skip the new rows with `lakehouse bookmark {topic.name} --at latest --reason "
                f"…`, or let the transform read another column"
            )
        inputs = derived_rows.union(inputs, of_groups)
    return inputs


def _is_read(compute: Callable[[DataFrame], DataFrame], rows: DataFrame, columns: Sequence[str]) -> bool:
    """Return whether the result of a transform depends on any of some columns."""
    try:
        return compute(rows.drop(*columns)).schema != compute(rows).schema
    except LakehouseError:
        raise
    except Exception:  # Whatever the transform raises without a column, it reads it.
        return True
