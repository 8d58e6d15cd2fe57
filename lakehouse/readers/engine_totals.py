"""Row counts and column sums of one snapshot, which are equal in all engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from lakehouse.config import sensitive
from lakehouse.config.model import Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.core.sql import DUCKDB
from lakehouse.core.tables.naming import TableRef
from resources.iceberg.catalog import published_table
from resources.iceberg.snapshots import require_position_deletes
from resources.protocols import Resources

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table


MAX_DIGITS = 28
"""Maximum precision of a summed decimal; sums have 38 digits in every engine, which leaves room for 10 billion rows."""


@dataclass(frozen=True)
class TableTotals:
    """Row count and column sums that one engine computed of one snapshot."""

    engine: str
    snapshot_id: int
    rows: int
    sums: Mapping[str, Decimal | None]
    """The sum of each column; None if it has no values."""
    scales: Mapping[str, int]
    """The number of digits after the decimal point of each column."""

    @staticmethod
    def of(engine: str, snapshot_id: int, scales: Mapping[str, int], row: Sequence[object]) -> TableTotals:
        """Return the totals in a row of numbers: COUNT(*), then one SUM per column of `scales`."""
        rows, *sums = row
        exact = (None if value is None else Decimal(str(value)) for value in sums)
        return TableTotals(engine, snapshot_id, int(str(rows)), dict(zip(scales, exact, strict=True)), scales)


def summable_columns(schema: Schema) -> dict[str, int]:
    """Return the columns to sum, with the number of digits after the decimal point.

    These are the columns whose sum is exact in any order; decimals only if the sum of ten billion rows fits.
    """
    from pyiceberg.types import DecimalType, IntegerType, LongType

    scales = {}
    for column in schema.fields:
        match column.field_type:
            case IntegerType() | LongType():
                scales[column.name] = 0
            case DecimalType() as decimal if decimal.precision <= MAX_DIGITS:
                scales[column.name] = decimal.scale
    return scales


def differences(reference: TableTotals, totals: TableTotals) -> list[str]:
    """Return the differences between two engines' totals of the same snapshot, one sentence each."""
    sentences = []
    if totals.rows != reference.rows:
        sentences.append(f"{totals.engine} has {totals.rows:,} rows, {reference.engine} {reference.rows:,}")
    for column, expected in reference.sums.items():
        actual = totals.sums[column]
        if actual != expected:
            sentences.append(f"{totals.engine} sums {column} to {actual}, {reference.engine} to {expected}")
    return sentences


def query_totals(engine: str, topic: Topic, ref: TableRef, metadata_location: str, resources: Resources) -> TableTotals:
    """Count the rows of a metadata file's table and sum its columns: pyiceberg reads them, DuckDB adds them up."""
    import duckdb

    table, snapshot_id = served(engine, topic, ref, metadata_location, resources)
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


def served(label: str, topic: Topic, ref: TableRef, metadata_location: str, resources: Resources) -> tuple[Table, int]:
    """Return the table as a metadata file describes it, with the columns of that time, and its snapshot id."""
    table = resources.catalog.table_at(metadata_location, ref)
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
    """
    table = published_table(resources.catalog, ref)
    if topic.sensitive and served.metadata.table_uuid != table.metadata.table_uuid:
        # Column ids of a recreated table do not identify the same columns.
        return {}
    allowed = sensitive.visible_columns(topic, table, served.schema())
    return {column: scale for column, scale in summable_columns(served.schema()).items() if column in allowed}
