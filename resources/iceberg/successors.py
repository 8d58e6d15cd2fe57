"""Tables that continue each other after an incompatible schema change; each names the next one in a property."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.core.errors import UnclearState
from lakehouse.core.tables.table_ref import TableRef

if TYPE_CHECKING:
    from pyiceberg.table import Table

SUCCESSOR = "lakehouse.successor"
"""Table property: name of the table that continues this one."""

_OLD_SUCCESSOR = "lakehouse.continued-in"
"""The same property of earlier releases, in which the next table had dead letters of its own."""


def successor(first: TableRef, table: Table) -> TableRef | None:
    """Return the table that continues a table; None if none does.

    Args:
        first: The topic's first table.
        table: The table as loaded.

    Raises:
        UnclearState: An earlier release created the next table.
    """
    if old := table.properties.get(_OLD_SUCCESSOR):
        raise UnclearState(
            f"Table {'.'.join(table.name())} was continued in '{old}' by an earlier release, which stored the dead "
            f"letters of each table separately. Nothing was changed. Rename or drop both tables and those of their "
            f"dead letters, and ingest the topic again"
        )
    name = table.properties.get(SUCCESSOR)
    return TableRef(first.namespace, name, first=first.name) if name else None
