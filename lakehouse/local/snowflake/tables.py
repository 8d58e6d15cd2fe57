"""Iceberg tables over AWS Glue or a REST catalog: made and refreshed to the snapshot that it shows then."""

from __future__ import annotations

import json
import time
from typing import Any

from lakehouse.core.sql import DUCKDB
from lakehouse.local.snowflake import errors, iceberg, storage
from lakehouse.local.snowflake.account import Account, Entity, IcebergTable
from lakehouse.local.snowflake.session import Result, Session, like, status
from lakehouse.local.snowflake.statements import Alter, Create, Drop, Refresh, Show
from lakehouse.local.snowflake.tokens import Name

_COLUMNS = (
    "created_on",
    "name",
    "database_name",
    "schema_name",
    "owner",
    "external_volume_name",
    "catalog_name",
    "iceberg_table_type",
    "catalog_table_name",
    "catalog_namespace",
    "base_location",
    "can_write_metadata",
    "comment",
    "name_mapping",
    "owner_role_type",
    "catalog_sync_name",
    "auto_refresh_status",
)


def create(session: Session, statement: Create) -> Result:
    """CREATE ICEBERG TABLE ... CATALOG_TABLE_NAME: copies the current snapshot.

    The role needs CREATE ICEBERG TABLE on the schema, and USAGE on volume and integration.
    """
    account, options = session.account, statement.options
    name = session.resolve(statement.name, 3)
    # Loading can take seconds: other sessions go on meanwhile, other loads wait.
    with account.loading:
        with account.lock:
            account.require("CREATE ICEBERG TABLE", "SCHEMA", name[:2], session.role)
            if existing := account.find("ICEBERG TABLE", name):
                if statement.if_not_exists:
                    return status(f"{name[-1]} already exists, statement succeeded.")
                if not statement.or_replace:
                    raise errors.exists(".".join(name))
                account.require_ownership(existing, session.role)
            for kind in ("EXTERNAL VOLUME", "INTEGRATION"):
                account.require("USAGE", kind, _used(options, kind), session.role)
            integration = _integration(account, options)
            namespace = options.get("CATALOG_NAMESPACE") or integration.options.get("CATALOG_NAMESPACE")
            if not namespace:
                raise errors.invalid_option("Missing option(s): ['CATALOG_NAMESPACE']")
            table = IcebergTable("ICEBERG TABLE", name, session.role, dict(options), namespace=namespace)
        _load(session, table)
        with account.lock:
            if existing:
                account.remove(existing)
            account.add(table)
    return status(f"Table {name[-1]} successfully created.")


def refresh(session: Session, statement: Refresh) -> Result:
    """ALTER ICEBERG TABLE ... REFRESH. The role must own it; refused while the table refreshes by itself."""
    account, name = session.account, session.resolve(statement.name, 3)
    with account.loading:
        with account.lock:
            if statement.if_exists and account.find("ICEBERG TABLE", name) is None:
                return status("Statement executed successfully.")
            table = _owned(session, name)
            if table.options.get("AUTO_REFRESH"):
                raise errors.failed(f"{table.label} has AUTO_REFRESH = TRUE and cannot be refreshed by hand")
        _load(session, table)
    return status("Statement executed successfully.")


def refresh_if_due(session: Session, name: Name) -> None:
    """What Snowflake does meanwhile to a table with AUTO_REFRESH is done here when it is read."""
    account = session.account
    with account.loading:
        with account.lock:
            table = account.find("ICEBERG TABLE", name)
            if not isinstance(table, IcebergTable) or not table.options.get("AUTO_REFRESH"):
                return
            every = _integration(account, table.options).options.get(
                "REFRESH_INTERVAL_SECONDS", storage.REFRESH_SECONDS
            )
            if time.monotonic() - table.looked_at < every:
                return
        _load(session, table)


def alter(session: Session, statement: Alter) -> Result:
    """ALTER ICEBERG TABLE ... SET AUTO_REFRESH, COMMENT. The role must own it."""
    if set(statement.options) - {"AUTO_REFRESH", "COMMENT"}:
        raise errors.not_emulated(f"ALTER ICEBERG TABLE ... {', '.join(statement.options)}")
    with session.account.lock:
        _owned(session, session.resolve(statement.name, 3)).options |= statement.options
    return status("Statement executed successfully.")


def drop(session: Session, statement: Drop) -> Result:
    """DROP ICEBERG TABLE: Glue and the files stay as they are."""
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
    """SHOW ICEBERG TABLES, of those the role may see."""
    pattern = like(statement.like)
    # One name is a database, unless the session's database has a schema of that name.
    within = statement.within
    with session.account.lock:
        if len(within) == 1 and session.account.find("DATABASE", within) is None:
            within = session.resolve(within, 2)
        rows = [
            _shown(table)
            for table in session.account.seen("ICEBERG TABLE", session.role)
            if isinstance(table, IcebergTable)
            and table.name[: len(within)] == within
            and pattern.fullmatch(table.name[-1])
        ]
    return Result(_COLUMNS, rows)


def information(session: Session, name: Name) -> str:
    """SYSTEM$GET_ICEBERG_TABLE_INFORMATION: where the metadata of the last refresh lies, as JSON.

    The role must own the table (Snowflake, SYSTEM$GET_ICEBERG_TABLE_INFORMATION, usage notes).
    """
    with session.account.lock:
        table = _owned(session, session.resolve(name, 3))
        return json.dumps({"metadataLocation": table.metadata_location, "status": "success"})


def require_unused(account: Account, entity: Entity) -> None:
    """Raises: ProgrammingError when a table stands on this volume or integration (Snowflake refuses to drop it)."""
    option = "EXTERNAL_VOLUME" if entity.kind == "EXTERNAL VOLUME" else "CATALOG"
    for table in account.all("ICEBERG TABLE"):
        if (table.options[option].upper(),) == entity.name:
            raise errors.failed(f"{entity.label} cannot be dropped: table {table.label} uses it")


def _owned(session: Session, name: Name) -> IcebergTable:
    table = session.account.get("ICEBERG TABLE", name, session.role)
    session.account.require_ownership(table, session.role)
    assert isinstance(table, IcebergTable)
    return table


def _load(session: Session, table: IcebergTable) -> None:
    """Copy the snapshot that the catalog shows now, if it is another than the table's."""
    account, options = session.account, table.options
    integration = _integration(account, options)
    table.looked_at = time.monotonic()
    found = session.lake.table(integration.options, table.namespace, options["CATALOG_TABLE_NAME"])
    volume = account.find("EXTERNAL VOLUME", _used(options, "EXTERNAL VOLUME"))
    bases = [location["STORAGE_BASE_URL"] for location in volume.options["STORAGE_LOCATIONS"]] if volume else []
    if not any(found.metadata_location.startswith(base.rstrip("/") + "/") for base in bases):
        where = f"external volume {options['EXTERNAL_VOLUME']} {bases}"
        raise errors.failed(f"{found.metadata_location} is outside {where}")
    if found.metadata_location != table.metadata_location:
        with session.duckdb as duckdb:
            table.copied = iceberg.copy(found, duckdb, table.name, table.copied)
        table.metadata_location = found.metadata_location


def _integration(account: Account, options: dict[str, Any]) -> Entity:
    integration = account.find("CATALOG INTEGRATION", _used(options, "INTEGRATION"))
    if integration is None:
        raise errors.missing("INTEGRATION", options["CATALOG"])
    if not integration.options["ENABLED"]:
        raise errors.failed(f"Catalog integration {integration.label} is disabled")
    return integration


def _used(options: dict[str, Any], kind: str) -> Name:
    """The name of the volume or integration that a table's options mention, in a string."""
    return (options["EXTERNAL_VOLUME" if kind == "EXTERNAL VOLUME" else "CATALOG"].upper(),)


def _shown(table: IcebergTable) -> tuple[Any, ...]:
    options = table.options
    return (
        table.created,
        table.name[2],
        table.name[0],
        table.name[1],
        table.owner,
        options["EXTERNAL_VOLUME"].upper(),
        options["CATALOG"].upper(),
        "UNMANAGED",
        options["CATALOG_TABLE_NAME"],
        table.namespace,
        "",
        "Y",
        options.get("COMMENT", ""),
        "",
        "ROLE",
        "",
        '{"executionState":"RUNNING"}' if options.get("AUTO_REFRESH") else "",
    )
