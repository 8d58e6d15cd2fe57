"""DuckDB in this process, over the tables of the Iceberg catalog."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lakehouse.core.errors import LakehouseError
from lakehouse.core.sql import DUCKDB
from lakehouse.query.result import Result

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from resources.catalog import Catalog


def query(statement: str, systems: Any) -> Result:
    """Run one SELECT. Tables are `namespace.table`; those it names are read into memory, whole.

    Parameters: `systems` has the catalog as an attribute.
    Raises: LakehouseError when DuckDB refuses it; Unreachable.
    """
    import duckdb

    # A name in the statement is a table of the catalog, and never a variable or a file of this process.
    options: dict[str, str | bool | int | float | list[str]] = {
        "python_enable_replacements": "false",
        "enable_external_access": "false",
    }
    with duckdb.connect(config=options) as connection:
        try:
            connection.execute("SET TimeZone = 'UTC'")
            for number, (namespace, name) in enumerate(sorted(_named(connection, statement))):
                rows = _load(systems.catalog, namespace, name).scan().to_arrow()
                connection.register(f"arrow_{number}", rows)
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {DUCKDB.identifier(namespace)}")
                view = DUCKDB.identifier(namespace, name)
                connection.execute(f"CREATE VIEW {view} AS SELECT * FROM memory.main.arrow_{number}")  # noqa: S608 (the name is quoted, the number is ours)
            return Result.of_arrow(connection.sql(statement).to_arrow_table())
        except duckdb.Error as error:
            raise LakehouseError(f"DuckDB refused the statement. Correct it and ask again. It said: {error}") from error


def _load(catalog: Catalog, namespace: str, name: str) -> Table:
    """Load a table as the catalog has it now.

    Raises: LakehouseError when there is none; Unreachable.
    """
    table = catalog.load(namespace, name)
    if table is None:
        raise LakehouseError(
            f"The catalog has no table {namespace}.{name}. Nothing was run. `lakehouse status` shows the topics; each "
            f"is a table of the namespace in lakehouse.yaml"
        )
    return table


def _named(connection: Any, statement: str) -> set[tuple[str, str]]:
    """The tables that a SELECT names with their schema.

    Raises: LakehouseError when it is no single SELECT.
    """
    [(serialized,)] = connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()
    tree = json.loads(serialized)
    if tree["error"] or len(tree["statements"]) != 1:
        said = tree.get("error_message", "several statements")
        raise LakehouseError(f"DuckDB takes one SELECT here, and found: {said}. Nothing was run. Correct the SQL")

    def named(node: Any) -> Iterator[tuple[str, str]]:
        if isinstance(node, dict):
            if node.get("type") == "BASE_TABLE" and node["schema_name"]:
                yield node["schema_name"], node["table_name"]
            node = list(node.values())
        if isinstance(node, list):
            for part in node:
                yield from named(part)

    return set(named(tree["statements"]))
