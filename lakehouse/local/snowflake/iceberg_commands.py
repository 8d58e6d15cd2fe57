"""Execution of the statements about Iceberg tables, and about the external volumes and catalog integrations they need.

Creation and refresh copy the catalog's current snapshot. Column and property names of volumes and integrations are from
the acceptance tests of Snowflake's Terraform provider.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from lakehouse.core.sql import DUCKDB
from lakehouse.local.snowflake import iceberg, snowflake_errors
from lakehouse.local.snowflake.account import (
    LINK,
    Account,
    ClientSession,
    Entity,
    IcebergTable,
    StatementResult,
    like,
    status,
    text,
)
from lakehouse.local.snowflake.snowflake_errors import invalid_option
from lakehouse.local.snowflake.statements import Alter, Create, Describe, Drop, Name, Refresh, Show

_SHOWN: Mapping[str, Callable[[IcebergTable], Any]] = {
    "created_on": lambda table: table.created,
    "name": lambda table: table.name[2],
    "database_name": lambda table: table.name[0],
    "schema_name": lambda table: table.name[1],
    "owner": lambda table: table.owner,
    "external_volume_name": lambda table: table.options.get("EXTERNAL_VOLUME", "").upper(),
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


def create_table(session: ClientSession, statement: Create) -> StatementResult:
    """Run CREATE ICEBERG TABLE ... CATALOG_TABLE_NAME, and copy the current snapshot.

    The role needs CREATE ICEBERG TABLE on the schema, and USAGE on volume and integration.
    """
    account, options = session.account, statement.options
    name = session.resolve(statement.name, 3)
    account.require_unlinked(name)
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
            integration = integration_of(account, options)
            namespace = options.get("CATALOG_NAMESPACE") or integration.options.get("CATALOG_NAMESPACE")
            if not namespace:
                raise snowflake_errors.invalid_option("Missing option(s): ['CATALOG_NAMESPACE']")
            table = IcebergTable("ICEBERG TABLE", name, session.role, dict(options), namespace=namespace)
        load(session, table)
        with account.lock:
            if existing:
                account.remove(existing)
            account.add(table)
    return status(f"Table {name[-1]} successfully created.")


def refresh_table(session: ClientSession, statement: Refresh) -> StatementResult:
    """Run ALTER ICEBERG TABLE ... REFRESH. The role must own the table, and AUTO_REFRESH must be off."""
    account, name = session.account, session.resolve(statement.name, 3)
    with account.loading:
        with account.lock:
            if statement.if_exists and account.find("ICEBERG TABLE", name) is None:
                return status()
            table = _owned(session, name)
            if table.options.get("AUTO_REFRESH"):
                raise snowflake_errors.failed(f"{table.label} has AUTO_REFRESH = TRUE and cannot be refreshed by hand")
        load(session, table)
    return status()


def refresh_if_due(session: ClientSession, name: Name) -> None:
    """Refresh a table with AUTO_REFRESH if its interval has passed. Called on reads, unlike Snowflake's refresh."""
    account = session.account
    with account.loading:
        with account.lock:
            table = account.find("ICEBERG TABLE", name)
            if not isinstance(table, IcebergTable) or not table.options.get("AUTO_REFRESH"):
                return
            interval = integration_of(account, table.options).options.get("REFRESH_INTERVAL_SECONDS", REFRESH_SECONDS)
            if time.monotonic() - table.checked_at < interval:
                return
        load(session, table)


def alter_table(session: ClientSession, statement: Alter) -> StatementResult:
    """Run ALTER ICEBERG TABLE ... SET AUTO_REFRESH, COMMENT. The role must own the table."""
    if set(statement.options) - {"AUTO_REFRESH", "COMMENT"}:
        raise snowflake_errors.not_emulated(f"ALTER ICEBERG TABLE ... {', '.join(statement.options)}")
    with session.account.lock:
        _owned(session, session.resolve(statement.name, 3)).options |= statement.options
    return status()


def drop_table(session: ClientSession, statement: Drop) -> StatementResult:
    """Run DROP ICEBERG TABLE. The catalog and the files are not changed."""
    account, name = session.account, session.resolve(statement.name, 3)
    with account.loading, account.lock:
        if statement.if_exists and account.find("ICEBERG TABLE", name) is None:
            return status(f"Drop statement executed successfully ({name[-1]} already dropped).")
        table = _owned(session, name)
        account.require_unlinked(name)
        with session.duckdb as duckdb:
            duckdb.execute(f"DROP TABLE {DUCKDB.identifier(*name)}")
        account.remove(table)
    return status(f"{name[-1]} successfully dropped.")


def show_tables(session: ClientSession, statement: Show) -> StatementResult:
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
    return StatementResult(list(_SHOWN), rows)


def table_information(session: ClientSession, name: Name) -> str:
    """Return the result of SYSTEM$GET_ICEBERG_TABLE_INFORMATION: the metadata's location at the last refresh, as JSON.

    The role must own the table (Snowflake, SYSTEM$GET_ICEBERG_TABLE_INFORMATION, usage notes).
    """
    with session.account.lock:
        table = _owned(session, session.resolve(name, 3))
        return json.dumps({"metadataLocation": table.metadata_location, "status": "success"})


def require_unused(account: Account, entity: Entity) -> None:
    """Check that no table uses this volume or integration, without which Snowflake refuses to drop it."""
    option = "EXTERNAL_VOLUME" if entity.kind == "EXTERNAL VOLUME" else "CATALOG"
    users = [(table.label, table.options) for table in account.all("ICEBERG TABLE")]
    users += [(database.label, database.options.get(LINK, {})) for database in account.all("DATABASE")]
    for label, options in users:
        if (options.get(option, "").upper(),) == entity.name:
            raise snowflake_errors.failed(f"{entity.label} cannot be dropped: {label} uses it")


def _owned(session: ClientSession, name: Name) -> IcebergTable:
    table = session.account.get("ICEBERG TABLE", name, session.role)
    session.account.require_ownership(table, session.role)
    assert isinstance(table, IcebergTable)
    return table


def _is_native(session: ClientSession, name: Name) -> bool:
    """Return whether DuckDB has a table or view of this name."""
    query = "SELECT 1 FROM information_schema.tables WHERE (table_catalog, table_schema, table_name) = (?, ?, ?)"
    with session.duckdb as duckdb:
        return duckdb.execute(query, list(name)).fetchone() is not None


def load(session: ClientSession, table: IcebergTable) -> None:
    """Copy the current snapshot of the catalog, unless the table already has it."""
    account, options = session.account, table.options
    integration = integration_of(account, options)
    table.checked_at = time.monotonic()
    current = session.lake.table(integration.options, table.namespace, options["CATALOG_TABLE_NAME"])
    if "EXTERNAL_VOLUME" in options:
        _require_in_volume(account, options, current.metadata_location)
    if current.metadata_location != table.metadata_location:
        with session.duckdb as duckdb:
            table.copied = iceberg.copy(current, duckdb, table.name, table.copied)
        table.metadata_location = current.metadata_location


def _require_in_volume(account: Account, options: dict[str, Any], location: str) -> None:
    volume = account.find("EXTERNAL VOLUME", _used(options, "EXTERNAL VOLUME"))
    bases = [location["STORAGE_BASE_URL"] for location in volume.options["STORAGE_LOCATIONS"]] if volume else []
    if not any(location.startswith(base.rstrip("/") + "/") for base in bases):
        raise snowflake_errors.failed(f"{location} is outside external volume {options['EXTERNAL_VOLUME']} {bases}")


def integration_of(account: Account, options: dict[str, Any]) -> Entity:
    """Return the catalog integration that a table or a linked database uses."""
    integration = account.find("CATALOG INTEGRATION", _used(options, "INTEGRATION"))
    if integration is None:
        raise snowflake_errors.missing("INTEGRATION", options["CATALOG"])
    if not integration.options["ENABLED"]:
        raise snowflake_errors.failed(f"Catalog integration {integration.label} is disabled")
    return integration


def _used(options: dict[str, Any], kind: str) -> Name:
    """Return the name of the volume or integration in a table's options, where it is a string in any case."""
    return (options["EXTERNAL_VOLUME" if kind == "EXTERNAL VOLUME" else "CATALOG"].upper(),)


IAM_USER_ARN = "arn:aws:iam::999999999999:user/local-snowflake"
"""The principal that assumes the role: in a real account, a user of Snowflake's AWS account."""

REFRESH_SECONDS = 30
"""Snowflake's default interval between refreshes."""

CLIENT_SECRET = "OAUTH_CLIENT_SECRET"  # noqa: S105 (an option's name)


def with_external_ids(account: Account, volume: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the volume's options with a generated external id for each location without one."""
    locations = [
        {"STORAGE_AWS_EXTERNAL_ID": _external_id(account, volume), **location}
        for location in options["STORAGE_LOCATIONS"]
    ]
    return {**options, "STORAGE_LOCATIONS": locations}


def describe(session: ClientSession, statement: Describe) -> StatementResult:
    """Run DESC EXTERNAL VOLUME or DESC CATALOG INTEGRATION, whose results a trust policy needs."""
    entity = session.account.get(statement.kind, session.resolve(statement.name, 1), session.role)
    return (
        _describe_volume(entity)
        if statement.kind == "EXTERNAL VOLUME"
        else _describe_integration(session.account, entity)
    )


def _describe_volume(volume: Entity) -> StatementResult:
    writes = text(volume.options.get("ALLOW_WRITES", True))
    rows: list[tuple[str, ...]] = [("", "ALLOW_WRITES", "Boolean", writes, "true")]
    for number, location in enumerate(volume.options["STORAGE_LOCATIONS"], 1):
        shown = {
            **location,
            "STORAGE_ALLOWED_LOCATIONS": [location["STORAGE_BASE_URL"] + "*"],
            "STORAGE_AWS_IAM_USER_ARN": IAM_USER_ARN,
            "ENCRYPTION_TYPE": "NONE",
            "ENCRYPTION_KMS_KEY_ID": "",
        }
        rows.append(("STORAGE_LOCATIONS", f"STORAGE_LOCATION_{number}", "String", json.dumps(shown), ""))
    rows.append(("STORAGE_LOCATIONS", "ACTIVE", "String", "", ""))
    rows.append(("", "COMMENT", "String", volume.options.get("COMMENT", ""), ""))
    return StatementResult(["parent_property", "property", "property_type", "property_value", "property_default"], rows)


def altered_integration(integration: Entity, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of ALTER CATALOG INTEGRATION ... SET, completed by the integration's authentication."""
    if "REST_AUTHENTICATION" not in options:
        return options
    if not _uses_oauth(integration):
        raise invalid_option(f"{integration.label} has no {CLIENT_SECRET}")
    login = integration.options["REST_AUTHENTICATION"] | options["REST_AUTHENTICATION"]
    return options | {"REST_AUTHENTICATION": login}


def _describe_integration(account: Account, integration: Entity) -> StatementResult:
    properties = {
        "CATALOG_NAMESPACE": "",
        "COMMENT": "",
        "REFRESH_INTERVAL_SECONDS": REFRESH_SECONDS,
        **integration.options,
    }
    if not _uses_oauth(integration):
        prefix = "API" if "REST_CONFIG" in integration.options else "GLUE"
        properties[f"{prefix}_AWS_IAM_USER_ARN"] = IAM_USER_ARN
        properties[f"{prefix}_AWS_EXTERNAL_ID"] = _assumed_role(account, integration)[1]
    rows = [
        (key, "Boolean" if isinstance(value, bool) else "String", _shown(value), "")
        for key, value in properties.items()
    ]
    return StatementResult(["property", "property_type", "property_value", "property_default"], rows)


def _uses_oauth(integration: Entity) -> bool:
    return integration.options.get("REST_AUTHENTICATION", {}).get("TYPE") == "OAUTH"


def _shown(value: Any) -> str:
    """Format a property's value; a group is `{KEY=value, KEY=[a, b]}`, without the options that Snowflake hides."""
    if isinstance(value, dict):
        public = {key: setting for key, setting in value.items() if key not in (CLIENT_SECRET, "SIGV4_EXTERNAL_ID")}
        return f"{{{', '.join(f'{key}={_shown(setting)}' for key, setting in public.items())}}}"
    return f"[{', '.join(value)}]" if isinstance(value, list) else text(value)


def _assumed_role(account: Account, entity: Entity) -> tuple[str, str]:
    """Return the ARN of the IAM role that a volume or an integration assumes, and its external id."""
    options = entity.options
    if entity.kind == "EXTERNAL VOLUME":
        [location, *_] = options["STORAGE_LOCATIONS"]
        return location["STORAGE_AWS_ROLE_ARN"], location["STORAGE_AWS_EXTERNAL_ID"]
    signing = options.get("REST_AUTHENTICATION", {})
    external_id = signing.get("SIGV4_EXTERNAL_ID") or _external_id(account, entity.name[0])
    return signing.get("SIGV4_IAM_ROLE") or options["GLUE_AWS_ROLE_ARN"], external_id


def verify(session: ClientSession, kind: str, name: str) -> str:
    """Run SYSTEM$VERIFY_EXTERNAL_VOLUME (only for the owner) or SYSTEM$VERIFY_CATALOG_INTEGRATION.

    The access to the IAM role, or the login to the REST catalog, is verified. No file is read: Snowflake does not
    verify more of a read-only volume either.
    """
    account = session.account
    with account.lock:
        entity = account.get(kind, (name,), session.role)
        if kind == "EXTERNAL VOLUME":
            account.require_ownership(entity, session.role)
        uses_oauth = _uses_oauth(entity)
        role_arn, external_id = ("", "") if uses_oauth else _assumed_role(account, entity)
    if uses_oauth:
        refusal = session.lake.login_refusal(entity.options)
    else:
        refusal = session.lake.role_refusal(role_arn, IAM_USER_ARN, external_id)
    return json.dumps({"success": not refusal} | ({"errorCode": "0", "errorMessage": refusal} if refusal else {}))


def _external_id(account: Account, name: str) -> str:
    return f"{account.name}_SFCRole=2_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
