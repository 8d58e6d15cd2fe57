"""Query tables of the Iceberg catalog with DuckDB in this process."""

import json
from collections.abc import Iterator
from typing import Any

import duckdb
from pyiceberg.table import Table

from lakehouse.core.errors import LakehouseError
from lakehouse.core.sql import DUCKDB
from lakehouse.core.tables.naming import TableRef
from lakehouse.query.result import QueryResult
from resources.iceberg.catalog import Catalog
from resources.iceberg.snapshots import require_position_deletes
from resources.protocols import Resources

NOT_IN_ARROW = ("BIGNUM", "BIT", "INTERVAL", "TIME WITH TIME ZONE", "UHUGEINT", "VARIANT")
"""Types whose values DuckDB changes or encodes when it converts them to Arrow. They are printed as DuckDB's text."""


def query(statement: str, resources: Resources) -> QueryResult:
    """Run one SELECT. Tables are named `namespace.table`, and are read into memory completely."""
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
                with catalog.translate_errors():
                    table = _load(catalog, TableRef(*identifier))
                    require_position_deletes(table)
                    rows = table.scan().to_arrow()
                connection.register(f"arrow_{number}", rows)
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {DUCKDB.identifier(identifier[0])}")
                view = DUCKDB.identifier(*identifier)
                connection.execute(f"CREATE VIEW {view} AS SELECT * FROM memory.main.arrow_{number}")  # noqa: S608 (the name is quoted, the number generated)
            return QueryResult.of_arrow(_exact(connection.sql(statement)).to_arrow_table())
        except duckdb.Error as error:
            raise LakehouseError(
                f"DuckDB refused the statement: {error}. Correct the SQL and run `lakehouse query` again"
            ) from error


def _exact(rows: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return the rows with text in place of values that Arrow does not have."""
    types = [_exact_type(type_) for type_ in rows.types]
    if types == rows.types:
        return rows
    columns = enumerate(zip(types, rows.columns, strict=True), 1)
    return rows.project(
        ", ".join(f"CAST(#{n} AS {type_}) AS {DUCKDB.identifier(name)}" for n, (type_, name) in columns)
    )


def _exact_type(type_: Any) -> Any:
    match type_.id:
        case "list":
            return duckdb.list_type(_exact_type(type_.child))
        case "array":
            (_, child), (_, size) = type_.children
            return duckdb.array_type(_exact_type(child), size)
        case "struct":
            return duckdb.struct_type({name: _exact_type(child) for name, child in type_.children})
        case "map":
            return duckdb.map_type(_exact_type(type_.key), _exact_type(type_.value))
        case "tuple" | "union":
            is_exact = all(child == _exact_type(child) for _, child in type_.children)
        case _:
            is_exact = str(type_) not in NOT_IN_ARROW
    return type_ if is_exact else duckdb.sqltype("VARCHAR")


def _load(catalog: Catalog, ref: TableRef) -> Table:
    table = catalog.load(ref)
    if table is None:
        raise LakehouseError(
            f"The catalog has no table {ref}. Nothing was run. List the topics with `lakehouse status`; each has a "
            f"table in the namespace of lakehouse.yaml"
        )
    return table


def _referenced_tables(connection: Any, statement: str) -> set[tuple[str, str]]:
    """Return the schema-qualified tables in a SELECT."""
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
