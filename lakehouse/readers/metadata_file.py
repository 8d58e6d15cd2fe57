"""Answers of readers that expose a metadata file: what an engine finds that reads the table by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehouse.config import sensitive
from lakehouse.config.topic import Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.core.sql import DUCKDB
from lakehouse.readers.truth import Answer, summed

if TYPE_CHECKING:
    from pyiceberg.table import Table


def answer(engine: str, namespace: str, topic: Topic, metadata_location: str, clients: Any) -> Answer:
    """Count and sum the rows of a metadata file: read by pyiceberg, summed by DuckDB.

    Raises:
        LakehouseError: The file has no snapshot.
        ConfigError: The topic's `sensitive` names no column.
    """
    import duckdb

    table, snapshot_id = served(engine, topic, metadata_location, clients)
    columns = scales(namespace, topic, table, clients)
    # Without a column to sum, any: rows are counted.
    stream = table.scan(selected_fields=tuple(columns) or (table.schema().fields[0].name,)).to_arrow_batch_reader()
    sums = "".join(f", SUM({DUCKDB.identifier(column)}::DECIMAL(38,{scale}))" for column, scale in columns.items())
    with duckdb.connect() as connection:
        connection.register("stream", stream)
        row = connection.execute(f"SELECT COUNT(*){sums} FROM stream").fetchone()  # noqa: S608 (all quoted)
    assert row is not None
    return Answer.of(engine, snapshot_id, columns, row)


def served(label: str, topic: Topic, metadata_location: str, clients: Any) -> tuple[Table, int]:
    """Return the table as a metadata file describes it, with the columns it had then, and its snapshot.

    Raises:
        LakehouseError: It has no snapshot.
    """
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(metadata_location, clients.catalog.file_io())
    if table.metadata.current_snapshot_id is None:
        raise LakehouseError(f"{label} shows metadata of '{topic.name}' without a snapshot: {metadata_location}")
    return table, table.metadata.current_snapshot_id


def scales(namespace: str, topic: Topic, served: Table, clients: Any) -> dict[str, int]:
    """Return the columns to sum of a table as a reader exposes it, with the digits behind their point.

    Of one row, or of two tables that differ by one, a sum is a value: sensitive columns have none.

    Raises:
        ConfigError: `sensitive` names no column.
        LakehouseError: The table is gone.
    """
    from resources.catalog import published_table

    table = published_table(clients.catalog, namespace, topic.table)
    if topic.sensitive and served.metadata.table_uuid != table.metadata.table_uuid:
        # Columns of a table that was created anew are not known by their ids.
        return {}
    allowed = sensitive.shown(topic, table, served.schema())
    return {column: scale for column, scale in summed(served.schema()).items() if column in allowed}
