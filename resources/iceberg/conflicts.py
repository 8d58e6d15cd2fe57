"""Changes of a table by other programs while a commit to it is prepared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakehouse.core.errors import CommitConflict, TransientError, UnclearState, Unreachable

if TYPE_CHECKING:
    from pyiceberg.table import Table


@contextmanager
def detect_conflict(table: Table) -> Iterator[None]:
    """Raise CommitConflict if a commit is refused because another program changed or dropped the table."""
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

    try:
        yield
    except NoSuchTableError as error:
        raise dropped_error(".".join(table.name())) from error
    except CommitFailedException as error:
        raise CommitConflict(
            f"Another writer changed {'.'.join(table.name())} ({error}). Nothing was changed. Retry the run or command"
        ) from error


def dropped_error(name: str) -> CommitConflict:
    """Return the error for a table that another program dropped while a commit to it was prepared."""
    return CommitConflict(
        f"Another program dropped table {name} while a commit to it was prepared. If another table has its name now, "
        f"that one was left unchanged. Retry the run or command"
    )


def not_iceberg_error(system: str, name: str) -> UnclearState:
    """Return the error for a table whose name another object has, such as a view or a table of Hive."""
    return UnclearState(
        f"{system} has an object {name} that is not an Iceberg table. It was left unchanged. Drop or rename it, or "
        f"choose another `table` or namespace in lakehouse.yaml"
    )


def unknown_outcome(name: str, unreachable: Unreachable) -> TransientError:
    """Return the error for a commit that failed, or whose response was lost, to a table that cannot be looked up."""
    return TransientError(
        f"The outcome of a commit to {name} is unknown: {unreachable.problem}",
        "The batch is either published or not; no part of it is",
        "Retry the run or command: it continues after the rows that are published",
    )
