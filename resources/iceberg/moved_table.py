"""Markers in place of tables that were moved to another catalog.

A marker is a table of its own, with the name of the moved one, another UUID and another folder. A writer of the old
catalog that had loaded the table can therefore not commit, and whoever drops the marker, also with its files, deletes
none of the table. It has no rows, and its only property says where the table is.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lakehouse.core.errors import UnclearState
from lakehouse.core.table_protocol import MOVED
from lakehouse.core.tables.naming import TableRef

if TYPE_CHECKING:
    from pyiceberg.table import StaticTable, Table


@dataclass(frozen=True)
class Moved:
    """The move of a table, as its marker stores it."""

    metadata_location: str
    """The last metadata file in the old catalog, at which the table is registered in the new one."""
    table_uuid: str
    """The UUID of the table."""
    source: str
    """The environment of the old catalog."""
    target: str
    """The environment of the new catalog."""
    address: str
    """The address of the new catalog, without a login."""
    at: str
    """The time of the move (UTC)."""
    by: str
    """The user who moved it."""


def moved_of(table: Table | None) -> Moved | None:
    """Return the move that a marker stores; None for any other table."""
    text = table.properties.get(MOVED) if table else None
    return Moved(**json.loads(text)) if text else None


def move_command(source: str, target: str) -> str:
    """Return the command that moves the tables of an environment to the catalog of another one."""
    return f"lakehouse --env {target} move --from {source}"


def require_not_moved(table: Table, address: str) -> None:
    """Require that a table is no marker.

    Args:
        table: The table as loaded.
        address: The address of its catalog.

    Raises:
        UnclearState: It is one.
    """
    if moved := moved_of(table):
        raise UnclearState(
            f"Table {'.'.join(table.name())} was moved from the catalog {address} (environment '{moved.source}') to "
            f"{moved.address} (environment '{moved.target}') by {moved.by} at {moved.at}. Nothing was changed. Use "
            f"that environment; `{move_command(moved.source, moved.target)} --plan` shows whether the move is complete"
        )


def write_marker(table: Table, location: str, moved: Moved) -> StaticTable:
    """Write the metadata file of a marker, and return the marker, which is in no catalog yet.

    Args:
        table: The table that is moved.
        location: A folder that no table has.
        moved: The move.
    """
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
    from pyiceberg.schema import Schema
    from pyiceberg.serializers import ToOutputFile
    from pyiceberg.table import StaticTable
    from pyiceberg.table.metadata import new_table_metadata
    from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
    from pyiceberg.types import NestedField, StringType

    # Columns of another name let Spark refuse rows that a batch in progress would append.
    column = NestedField(1, "moved", StringType(), doc=f"The property {MOVED} says where the table is", required=False)
    properties = {MOVED: json.dumps(asdict(moved)), "format-version": "2"}
    metadata = new_table_metadata(
        Schema(column), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, location, properties
    )
    file = f"{location}/metadata/00000-{uuid.uuid4()}.metadata.json"
    ToOutputFile.table_metadata(metadata, table.io.new_output(file))
    return StaticTable(TableRef(*table.name()).identifier, metadata, file, table.io, NoopCatalog("moved"))
