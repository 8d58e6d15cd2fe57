"""Databases that are linked to a REST catalog: their schemas and Iceberg tables are those of the catalog.

Source: Snowflake, CREATE DATABASE (catalog-linked), and Use a catalog-linked database for Apache Iceberg tables. Only
databases with vended credentials and without writes are emulated. They are synchronized before statements, unlike in
Snowflake, which does it in the background.
"""

import json
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pyiceberg.exceptions import RESTError
from requests import RequestException
from snowflake.connector.errors import ProgrammingError

from lakehouse.core.sql import DUCKDB, SNOWFLAKE
from lakehouse.local.snowflake import snowflake_errors
from lakehouse.local.snowflake.account import LINK, Account, ClientSession, Entity, IcebergTable
from lakehouse.local.snowflake.iceberg import vends
from lakehouse.local.snowflake.iceberg_commands import integration_of, load, refresh_if_due
from lakehouse.local.snowflake.statements import Name

SYNC_SECONDS = 30
"""Snowflake's default interval between two searches for new tables."""
STATE, SYNCED_AT = "SYSTEM$CATALOG_LINK_STATUS", "SYNCED_AT"
"""Keys of a linked database's options: the result of that function, and the time of the last search."""


def require_valid(session: ClientSession, options: dict[str, Any]) -> None:
    """Check the options of a new database and the integration that it names, on which the role needs USAGE."""
    account, link = session.account, options[LINK]
    if "CATALOG" not in link:
        raise snowflake_errors.invalid_option("Missing option(s): ['CATALOG']")
    account.require("USAGE", "INTEGRATION", (link["CATALOG"].upper(),), session.role)
    integration = integration_of(account, link)
    if integration.options["CATALOG_SOURCE"] not in ("ICEBERG_REST", "POLARIS"):
        raise snowflake_errors.invalid_option(f"Catalog integration {integration.label} is not one of a REST catalog")
    if not vends(integration.options):
        message = f"Catalog integration {integration.label} has no vended credentials: EXTERNAL_VOLUME is required"
        raise snowflake_errors.invalid_option(message)
    if link.get("ALLOWED_WRITE_OPERATIONS") != "NONE" or not link.get("ALLOWED_NAMESPACES"):
        raise snowflake_errors.not_emulated("A linked database with writes, or without ALLOWED_NAMESPACES,")


def synchronize(session: ClientSession) -> None:
    """Search the catalogs of linked databases for tables, and refresh these, where an interval has passed."""
    account = session.account
    with account.lock:
        linked = [database for database in account.all("DATABASE") if LINK in database.options]
    for database in linked:
        with account.loading:
            interval = database.options[LINK].get("SYNC_INTERVAL_SECONDS", SYNC_SECONDS)
            if time.monotonic() - database.options.get(SYNCED_AT, -interval) >= interval:
                database.options |= {SYNCED_AT: time.monotonic(), STATE: _search(session, database)}
        for table in _tables(account, database):
            # Snowflake continues to show the old snapshot, and repeats the refresh after the interval.
            with suppress(ProgrammingError):
                refresh_if_due(session, table.name)


def link_status(session: ClientSession, name: Name) -> str:
    """Return the result of SYSTEM$CATALOG_LINK_STATUS, as JSON."""
    with session.account.lock:
        database = session.account.get("DATABASE", session.resolve(name, 1), session.role)
        if STATE not in database.options:
            raise snowflake_errors.failed(f"{database.label} is not a catalog-linked database")
        return json.dumps(database.options[STATE])


def is_linked(account: Account, name: Name) -> bool:
    """Return whether an object is in a linked database."""
    database = account.find("DATABASE", name[:1])
    return database is not None and LINK in database.options


def spelled_in_catalog(account: Account, name: Name) -> Name:
    """Return an unquoted name, in upper case, as the catalog of a linked database spells it.

    By default, linked databases ignore the case of unquoted names, and quoted ones must be exact.
    """
    for table in account.all("ICEBERG TABLE"):
        if table.name[0] == name[0] and tuple(part.upper() for part in table.name) == name:
            return table.name
    return name


def _search(session: ClientSession, database: Entity) -> dict[str, Any]:
    """Create and drop tables as in the catalog, and return the state of the link."""
    account, link = session.account, database.options[LINK]
    state: dict[str, Any] = {
        "executionState": "RUNNING",
        "lastLinkAttemptStartTime": datetime.now(UTC).isoformat(),
        "failureDetails": [],
    }
    try:
        integration = integration_of(account, link)
        tables = {
            (database.name[0], namespace, table)
            for namespace in link["ALLOWED_NAMESPACES"]
            for table in session.lake.tables(integration.options, namespace)
        }
    except (ProgrammingError, RequestException, RESTError) as error:
        return state | {"executionState": "FAILED", "failedExecutionStateReason": str(error)}
    existing = {table.name: table for table in _tables(account, database)}
    for name in existing.keys() - tables:
        _drop(session, existing[name])
    for name in sorted(tables - existing.keys()):
        table = IcebergTable("ICEBERG TABLE", name, database.owner, _options(link, name), namespace=name[1])
        try:
            _create(session, table)
        except ProgrammingError as error:
            state["failureDetails"].append(_failure(table, error))
    return state


def _options(link: dict[str, Any], name: Name) -> dict[str, Any]:
    return {"CATALOG": link["CATALOG"], "CATALOG_TABLE_NAME": name[2], "AUTO_REFRESH": True}


def _tables(account: Account, database: Entity) -> list[IcebergTable]:
    with account.lock:
        tables = [table for table in account.all("ICEBERG TABLE") if isinstance(table, IcebergTable)]
    return [table for table in tables if table.name[:1] == database.name]


def _create(session: ClientSession, table: IcebergTable) -> None:
    account, schema = session.account, table.name[:2]
    with account.lock:
        if account.find("SCHEMA", schema) is None:
            session.run(f"CREATE SCHEMA IF NOT EXISTS {SNOWFLAKE.identifier(*schema)}")
            account.add(Entity("SCHEMA", schema, owner=table.owner))
    load(session, table)
    with account.lock:
        account.add(table)


def _drop(session: ClientSession, table: IcebergTable) -> None:
    with session.account.lock, session.duckdb as duckdb:
        duckdb.execute(f"DROP TABLE {DUCKDB.identifier(*table.name)}")
        session.account.remove(table)


def _failure(table: IcebergTable, error: ProgrammingError) -> dict[str, str]:
    return {
        "qualifiedEntityName": f"{table.namespace}.{table.name[2]}",
        "entityDomain": "TABLE",
        "operation": "CREATE",
        "errorCode": str(error.errno),
        "errorMessage": str(error.msg),
    }
