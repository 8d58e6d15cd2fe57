"""A snapshot of a table in the forms of several libraries: Arrow, pandas, Polars, DuckDB and Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import duckdb
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from resources.iceberg.snapshots import require_position_deletes
from resources.protocols import SparkClient

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

    from lakehouse.core.tables.naming import TableRef


class TableSnapshot:
    """A snapshot of a table in the forms of several libraries."""

    def __init__(
        self, ref: TableRef, table: Table, snapshot_id: int, spark: SparkClient, settings: Mapping[str, str]
    ) -> None:
        """
        Args:
            settings: Settings of a Spark session that reads the table's catalog.
        """
        self._ref, self._table, self._id = ref, table, snapshot_id
        self._spark, self._settings = spark, settings

    def arrow(self) -> pa.Table:
        require_position_deletes(self._table, self._id)
        # pyiceberg reads a null list of structs as an empty list, and a null map to structs likewise.
        if any(_has_collection_of_structs(field.field_type) for field in self._table.schema().fields):
            return self.spark().toArrow()
        return self._table.scan(snapshot_id=self._id).to_arrow()

    def pandas(self) -> Any:
        return self.arrow().to_pandas()

    def polars(self) -> Any:
        import polars

        return polars.from_arrow(self.arrow())

    def lazy_polars(self) -> Any:
        return self.polars().lazy()

    def duckdb(self) -> Any:
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        return connection.from_arrow(self.arrow())

    def spark(self) -> Any:
        session = self._spark.session(self._settings)
        return session.sql(f"SELECT * FROM {self._ref.spark_path()} VERSION AS OF {self._id}")  # noqa: S608 (all quoted)


def _has_collection_of_structs(type_: IcebergType) -> bool:
    if isinstance(type_, StructType):
        return any(_has_collection_of_structs(field.field_type) for field in type_.fields)
    if isinstance(type_, ListType | MapType):
        element = type_.element_type if isinstance(type_, ListType) else type_.value_type
        return isinstance(element, StructType) or _has_collection_of_structs(element)
    return False
