"""Row counts and sums of tables that readers expose by a metadata file, as an engine that reads the file computes
them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

from lakehouse.config import sensitive
from lakehouse.config.topic import Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.core.sql.quoting import DUCKDB
from lakehouse.core.tables.table_ref import TableRef
from lakehouse.readers.engine_totals import TableTotals, summable_columns
from resources.by_key import Resources
from resources.iceberg.catalog import published_table
from resources.iceberg.snapshots import require_position_deletes

if TYPE_CHECKING:
    from pyiceberg.table import Table


def query_totals(engine: str, topic: Topic, ref: TableRef, metadata_location: str, resources: Resources) -> TableTotals:
    """Count the rows of a metadata file's table and sum its columns: pyiceberg reads them, DuckDB adds them up.

    Raises:
        ConfigError: An entry of the topic's `sensitive` is not a column.
        LakehouseError: The metadata file has no snapshot, or was deleted.
        Unreachable: The metadata file could not be read.
    """
    table, snapshot_id = served(engine, topic, metadata_location, resources)
    columns = scales(topic, ref, table, resources)
    require_position_deletes(table, snapshot_id)
    # If there is no column to sum, any column will do to count the rows.
    stream = table.scan(selected_fields=tuple(columns) or (table.schema().fields[0].name,)).to_arrow_batch_reader()
    sums = "".join(f", SUM({DUCKDB.identifier(column)}::DECIMAL(38,{scale}))" for column, scale in columns.items())
    with duckdb.connect() as connection:
        connection.register("stream", stream)
        row = connection.execute(f"SELECT COUNT(*){sums} FROM stream").fetchone()  # noqa: S608 (all quoted)
    assert row is not None
    return TableTotals.of(engine, snapshot_id, columns, row)


def served(label: str, topic: Topic, metadata_location: str, resources: Resources) -> tuple[Table, int]:
    """Return the table as a metadata file describes it, with the columns of that time, and its snapshot id.

    Raises:
        LakehouseError: The file has no snapshot, or was deleted.
        Unreachable: The file could not be read.
    """
    table = resources.catalog.table_at(metadata_location)
    if table is None or table.metadata.current_snapshot_id is None:
        fault = "has no snapshot" if table else "was deleted"
        raise LakehouseError(
            f"{label} exposes a metadata file of '{topic.name}' that {fault}: {metadata_location}. Nothing was "
            f"compared. Publish the table again"
        )
    return table, table.metadata.current_snapshot_id


def scales(topic: Topic, ref: TableRef, served: Table, resources: Resources) -> dict[str, int]:
    """Return the columns of a table to sum, with the number of digits after the decimal point.

    Sensitive columns are excluded: the sum of one row, or the difference between the sums of two tables, reveals a
    value.

    Raises:
        ConfigError: An entry of `sensitive` is not a column.
        LakehouseError: The table does not exist.
    """
    table = published_table(resources.catalog, ref)
    if topic.sensitive and served.metadata.table_uuid != table.metadata.table_uuid:
        # Column ids of a recreated table do not identify the same columns.
        return {}
    allowed = sensitive.visible_columns(topic, table, served.schema())
    return {column: scale for column, scale in summable_columns(served.schema()).items() if column in allowed}
