"""Iceberg tables of AWS Glue or a REST catalog. Creation and refresh copy the catalog's current snapshot."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from lakehouse.core.sql.quoting import DUCKDB
from lakehouse.local.snowflake import snowflake_errors
from lakehouse.local.snowflake.account import Account, Entity, IcebergTable
from lakehouse.local.snowflake.execution import iceberg, storage
from lakehouse.local.snowflake.parsing.statements import Alter, Create, Drop, Refresh, Show
from lakehouse.local.snowflake.parsing.tokens import Name
from lakehouse.local.snowflake.session import Result, Session, like, status

_SHOWN: Mapping[str, Callable[[IcebergTable], Any]] = {
    "created_on": lambda table: table.created,
    "name": lambda table: table.name[2],
    "database_name": lambda table: table.name[0],
    "schema_name": lambda table: table.name[1],
    "owner": lambda table: table.owner,
    "external_volume_name": lambda table: table.options["EXTERNAL_VOLUME"].upper(),
    "catalog_name": lambda table: table.options["CATALOG"].upper(),
    "iceberg_table_type": lambda table: "UNMANAGED",
    "catalog_table_name": lambda table: table.options["CATALOG_TABLE_NAME"],
    "catalog_namespace": lambda table: table.namespace,
    "base_location": lambda table: "",
    "can_write_metadata": lambda table: "Y",
    "comment": lambda table: table.options.get("COMMENT", ""),
    "name_mapping": lambda table: "",
    "owner_role_type": lambda table: "ROLE",
    "catalog_sync_name": lambda table: "",
    "auto_refresh_status": lambda table: '{"executionState":"RUNNING"}' if table.options.get("AUTO_REFRESH") else "",
}
"""The columns of SHOW ICEBERG TABLES."""


def create(session: Session, statement: Create) -> Result:
    """Run CREATE ICEBERG TABLE ... CATALOG_TABLE_NAME, and copy the current snapshot.

    The role needs CREATE ICEBERG TABLE on the schema, and USAGE on volume and integration.
    """
    account, options = session.account, statement.options
    name = session.resolve(statement.name, 3)
    # Loading can take seconds, in which other sessions continue and other loads wait.
    with account.loading:
        with account.lock:
            account.require("CREATE ICEBERG TABLE", "SCHEMA", name[:2], session.role)
            existing = account.find("ICEBERG TABLE", name)
            # Tables of all kinds and views share their names (Snowflake, CREATE TABLE).
            if existing or _is_native(session, name):
                if statement.if_not_exists:
                    return status(f"{name[-1]} already exists, statement succeeded.")
                if existing is None or not statement.or_replace:
                    raise snowflake_errors.exists(".".join(name))
                account.require_ownership(existing, session.role)
            for kind in ("EXTERNAL VOLUME", "INTEGRATION"):
                account.require("USAGE", kind, _used(options, kind), session.role)
            integration = _integration(account, options)
            namespace = options.get("CATALOG_NAMESPACE") or integration.options.get("CATALOG_NAMESPACE")
            if not namespace:
                raise snowflake_errors.invalid_option("Missing option(s): ['CATALOG_NAMESPACE']")
            table = IcebergTable("ICEBERG TABLE", name, session.role, dict(options), namespace=namespace)
        _load(session, table)
        with account.lock:
            if existing:
                account.remove(existing)
            account.add(table)
    return status(f"Table {name[-1]} successfully created.")


def refresh(session: Session, statement: Refresh) -> Result:
    """Run ALTER ICEBERG TABLE ... REFRESH. The role must own the table, and AUTO_REFRESH must be off."""
    account, name = session.account, session.resolve(statement.name, 3)
    with account.loading:
        with account.lock:
            if statement.if_exists and account.find("ICEBERG TABLE", name) is None:
                return status()
            table = _owned(session, name)
            if table.options.get("AUTO_REFRESH"):
                raise snowflake_errors.failed(f"{table.label} has AUTO_REFRESH = TRUE and cannot be refreshed by hand")
        _load(session, table)
    return status()


def refresh_if_due(session: Session, name: Name) -> None:
    """Refresh a table with AUTO_REFRESH if its interval has passed. Called on reads, unlike Snowflake's refresh."""
    account = session.account
    with account.loading:
        with account.lock:
            table = account.find("ICEBERG TABLE", name)
            if not isinstance(table, IcebergTable) or not table.options.get("AUTO_REFRESH"):
                return
            interval = _integration(account, table.options).options.get(
                "REFRESH_INTERVAL_SECONDS", storage.REFRESH_SECONDS
            )
            if time.monotonic() - table.checked_at < interval:
                return
        _load(session, table)


def alter(session: Session, statement: Alter) -> Result:
    """Run ALTER ICEBERG TABLE ... SET AUTO_REFRESH, COMMENT. The role must own the table."""
    if set(statement.options) - {"AUTO_REFRESH", "COMMENT"}:
        raise snowflake_errors.not_emulated(f"ALTER ICEBERG TABLE ... {', '.join(statement.options)}")
    with session.account.lock:
        _owned(session, session.resolve(statement.name, 3)).options |= statement.options
    return status()


def drop(session: Session, statement: Drop) -> Result:
    """Run DROP ICEBERG TABLE. The catalog and the files are not changed."""
    account, name = session.account, session.resolve(statement.name, 3)
    with account.loading, account.lock:
        if statement.if_exists and account.find("ICEBERG TABLE", name) is None:
            return status(f"Drop statement executed successfully ({name[-1]} already dropped).")
        table = _owned(session, name)
        with session.duckdb as duckdb:
            duckdb.execute(f"DROP TABLE {DUCKDB.identifier(*name)}")
        account.remove(table)
    return status(f"{name[-1]} successfully dropped.")


def show(session: Session, statement: Show) -> Result:
    """Run SHOW ICEBERG TABLES, limited to the tables that the role may see."""
    pattern = like(statement.like)
    # A single name is that of a database or, if there is none, of a schema in the session's database.
    within = statement.within
    with session.account.lock:
        if len(within) == 1 and session.account.find("DATABASE", within) is None:
            within = session.resolve(within, 2)
        rows = [
            tuple(value(table) for value in _SHOWN.values())
            for table in session.account.all_visible("ICEBERG TABLE", session.role)
            if isinstance(table, IcebergTable)
            and table.name[: len(within)] == within
            and pattern.fullmatch(table.name[-1])
        ]
    return Result(list(_SHOWN), rows)


def information(session: Session, name: Name) -> str:
    """Return the result of SYSTEM$GET_ICEBERG_TABLE_INFORMATION: the metadata's location at the last refresh, as JSON.

    The role must own the table (Snowflake, SYSTEM$GET_ICEBERG_TABLE_INFORMATION, usage notes).
    """
    with session.account.lock:
        table = _owned(session, session.resolve(name, 3))
        return json.dumps({"metadataLocation": table.metadata_location, "status": "success"})


def require_unused(account: Account, entity: Entity) -> None:
    """Check that no table uses this volume or integration, without which Snowflake refuses to drop it.

    Raises:
        ProgrammingError: A table uses it.
    """
    option = "EXTERNAL_VOLUME" if entity.kind == "EXTERNAL VOLUME" else "CATALOG"
    for table in account.all("ICEBERG TABLE"):
        if (table.options[option].upper(),) == entity.name:
            raise snowflake_errors.failed(f"{entity.label} cannot be dropped: table {table.label} uses it")


def _owned(session: Session, name: Name) -> IcebergTable:
    table = session.account.get("ICEBERG TABLE", name, session.role)
    session.account.require_ownership(table, session.role)
    assert isinstance(table, IcebergTable)
    return table


def _is_native(session: Session, name: Name) -> bool:
    """Return whether DuckDB has a table or view of this name."""
    query = "SELECT 1 FROM information_schema.tables WHERE (table_catalog, table_schema, table_name) = (?, ?, ?)"
    with session.duckdb as duckdb:
        return duckdb.execute(query, list(name)).fetchone() is not None


def _load(session: Session, table: IcebergTable) -> None:
    """Copy the current snapshot of the catalog, unless the table already has it."""
    account, options = session.account, table.options
    integration = _integration(account, options)
    table.checked_at = time.monotonic()
    current = session.lake.table(integration.options, table.namespace, options["CATALOG_TABLE_NAME"])
    volume = account.find("EXTERNAL VOLUME", _used(options, "EXTERNAL VOLUME"))
    bases = [location["STORAGE_BASE_URL"] for location in volume.options["STORAGE_LOCATIONS"]] if volume else []
    if not any(current.metadata_location.startswith(base.rstrip("/") + "/") for base in bases):
        location = f"external volume {options['EXTERNAL_VOLUME']} {bases}"
        raise snowflake_errors.failed(f"{current.metadata_location} is outside {location}")
    if current.metadata_location != table.metadata_location:
        with session.duckdb as duckdb:
            table.copied = iceberg.copy(current, duckdb, table.name, table.copied)
        table.metadata_location = current.metadata_location


def _integration(account: Account, options: dict[str, Any]) -> Entity:
    integration = account.find("CATALOG INTEGRATION", _used(options, "INTEGRATION"))
    if integration is None:
        raise snowflake_errors.missing("INTEGRATION", options["CATALOG"])
    if not integration.options["ENABLED"]:
        raise snowflake_errors.failed(f"Catalog integration {integration.label} is disabled")
    return integration


def _used(options: dict[str, Any], kind: str) -> Name:
    """Return the name of the volume or integration in a table's options, where it is a string in any case."""
    return (options["EXTERNAL_VOLUME" if kind == "EXTERNAL VOLUME" else "CATALOG"].upper(),)
