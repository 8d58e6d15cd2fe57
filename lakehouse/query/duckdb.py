"""Query tables of the Iceberg catalog with DuckDB in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb
from pyiceberg.table import Table

from lakehouse.core.errors import LakehouseError
from lakehouse.core.sql.quoting import DUCKDB
from lakehouse.core.tables.table_ref import TableRef
from lakehouse.query.result import Result
from resources.by_key import Resources
from resources.iceberg.catalog import Catalog


def query(statement: str, resources: Resources) -> Result:
    """Run one SELECT. Tables are named `namespace.table`, and are read into memory completely.

    Args:
        statement: The SELECT.
        resources: Include the catalog.

    Raises:
        LakehouseError: DuckDB refuses the statement, or a table does not exist.
        Unreachable: The catalog does not answer.
    """
    # A name in the statement must only resolve to a table of the catalog, never to a Python variable or a file.
    options: dict[str, str | bool | int | float | list[str]] = {
        "python_enable_replacements": "false",
        "enable_external_access": "false",
    }
    catalog = resources.catalog.for_readers()
    with duckdb.connect(config=options) as connection:
        try:
            connection.execute("SET TimeZone = 'UTC'")
            for number, identifier in enumerate(sorted(_referenced_tables(connection, statement))):
                rows = _load(catalog, TableRef(*identifier)).scan().to_arrow()
                connection.register(f"arrow_{number}", rows)
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {DUCKDB.identifier(identifier[0])}")
                view = DUCKDB.identifier(*identifier)
                connection.execute(f"CREATE VIEW {view} AS SELECT * FROM memory.main.arrow_{number}")  # noqa: S608 (the name is quoted, the number generated)
            return Result.of_arrow(connection.sql(statement).to_arrow_table())
        except duckdb.Error as error:
            raise LakehouseError(
                f"DuckDB refused the statement: {error}. Correct the SQL and run `lakehouse query` again"
            ) from error


def _load(catalog: Catalog, ref: TableRef) -> Table:
    """Load a table.

    Raises:
        LakehouseError: It does not exist.
        Unreachable: The catalog does not answer.
    """
    table = catalog.load(ref)
    if table is None:
        raise LakehouseError(
            f"The catalog has no table {ref}. Nothing was run. List the topics with `lakehouse status`; each has a "
            f"table in the namespace of lakehouse.yaml"
        )
    return table


def _referenced_tables(connection: Any, statement: str) -> set[tuple[str, str]]:
    """Return the schema-qualified tables in a SELECT.

    Raises:
        LakehouseError: DuckDB does not recognize the statement as a SELECT.
    """
    [(serialized,)] = connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()
    tree = json.loads(serialized)
    if tree["error"]:
        raise LakehouseError(f"DuckDB refused the SQL: {tree['error_message']}. Nothing was run. Correct the SQL")

    def named(node: Any) -> Iterator[tuple[str, str]]:
        if isinstance(node, dict):
            if node.get("type") == "BASE_TABLE" and node["schema_name"]:
                yield node["schema_name"], node["table_name"]
            node = list(node.values())
        if isinstance(node, list):
            for part in node:
                yield from named(part)

    return set(named(tree["statements"]))
