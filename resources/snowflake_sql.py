"""Every statement this project sends to Snowflake, as text; resources/snowflake_integrations.py has the rest.

Names are quoted (Snowflake, Identifier requirements), literals escaped (String & binary data types). Nothing here can
be sent with bound values: Snowflake binds values in queries and DML only. tests/unit/test_snowflake_sql.py parses each
statement with sqlfluff's Snowflake grammar.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from lakehouse.core.sql import SNOWFLAKE

identifier, literal = SNOWFLAKE.identifier, SNOWFLAKE.literal


def commented(comment: str) -> str:
    """The end of a CREATE statement."""
    return f" COMMENT = {literal(comment)}" if comment else ""


def create_role(role: str, *, comment: str = "") -> str:
    """Docs: sql-reference/sql/create-role."""
    return f"CREATE ROLE IF NOT EXISTS {identifier(role)}{commented(comment)}"


def create_warehouse(warehouse: str, *, auto_suspend_seconds: int = 60, comment: str = "") -> str:
    """The smallest warehouse, suspended after so many idle seconds. Docs: sql-reference/sql/create-warehouse."""
    return (
        f"CREATE WAREHOUSE IF NOT EXISTS {identifier(warehouse)} WAREHOUSE_SIZE = XSMALL"
        f" AUTO_SUSPEND = {int(auto_suspend_seconds)} AUTO_RESUME = TRUE INITIALLY_SUSPENDED = TRUE"
        f"{commented(comment)}"
    )


def create_database(database: str, *, comment: str = "") -> str:
    """Docs: sql-reference/sql/create-database."""
    return f"CREATE DATABASE IF NOT EXISTS {identifier(database)}{commented(comment)}"


def create_schema(database: str, schema: str, *, comment: str = "") -> str:
    """Docs: sql-reference/sql/create-schema."""
    return f"CREATE SCHEMA IF NOT EXISTS {identifier(database, schema)}{commented(comment)}"


def create_service_user(user: str, *, role: str, warehouse: str, namespace: str = "", comment: str = "") -> str:
    """A user without a password, who logs in by key pair only. Docs: sql-reference/sql/create-user.

    Parameters: `namespace`, the database and schema that a session begins in: `DB.SCHEMA`.
    """
    within = f" DEFAULT_NAMESPACE = {literal(namespace)}" if namespace else ""
    return (
        f"CREATE USER IF NOT EXISTS {identifier(user)} TYPE = SERVICE"
        f" DEFAULT_ROLE = {identifier(role)} DEFAULT_WAREHOUSE = {identifier(warehouse)}{within}{commented(comment)}"
    )


class KeySlot(StrEnum):
    """The two places for a user's public key: either logs in. Docs: user-guide/key-pair-auth."""

    FIRST = "RSA_PUBLIC_KEY"
    SECOND = "RSA_PUBLIC_KEY_2"

    @property
    def other(self) -> KeySlot:
        """The one that this is not."""
        return KeySlot.SECOND if self is KeySlot.FIRST else KeySlot.FIRST


def set_public_key(user: str, public_key: str, slot: KeySlot = KeySlot.FIRST) -> str:
    """Parameters: the base64 body of a PEM public key. Docs: user-guide/key-pair-auth."""
    return f"ALTER USER {identifier(user)} SET {KeySlot(slot)} = {literal(public_key)}"


def unset_public_key(user: str, slot: KeySlot) -> str:
    """From then on the key of the slot logs nobody in. Docs: user-guide/key-pair-auth."""
    return f"ALTER USER {identifier(user)} UNSET {KeySlot(slot)}"


def describe_user(user: str) -> str:
    """Rows of property, value, default, description; RSA_PUBLIC_KEY_FP and RSA_PUBLIC_KEY_2_FP are the fingerprints.

    Docs: sql-reference/sql/desc-user.
    """
    return f"DESC USER {identifier(user)}"


def grant_role_to_user(role: str, user: str) -> str:
    """Docs: sql-reference/sql/grant-role."""
    return f"GRANT ROLE {identifier(role)} TO USER {identifier(user)}"


def grant_role_to_role(role: str, parent: str) -> str:
    """`parent` can then do what `role` can. Docs: sql-reference/sql/grant-role."""
    return f"GRANT ROLE {identifier(role)} TO ROLE {identifier(parent)}"


def grant(privileges: str, kind: str, name: tuple[str, ...], role: str) -> str:
    """Parameters: `kind` and name of the object; nothing for the ACCOUNT. Docs: sql-reference/sql/grant-privilege."""
    on = f"{kind} {identifier(*name)}".strip()
    return f"GRANT {privileges} ON {on} TO ROLE {identifier(role)}"


def grant_on_tables(which: Literal["ALL", "FUTURE"], database: str, schema: str, role: str) -> str:
    """SELECT on the Iceberg tables that a schema has, or will have. Docs: sql-reference/sql/grant-privilege."""
    return f"GRANT SELECT ON {which} ICEBERG TABLES IN SCHEMA {identifier(database, schema)} TO ROLE {identifier(role)}"


def grant_ownership_of_user(user: str, role: str) -> str:
    """The role may then set the user's keys. Docs: sql-reference/sql/grant-ownership."""
    return f"GRANT OWNERSHIP ON USER {identifier(user)} TO ROLE {identifier(role)} COPY CURRENT GRANTS"


def grants(role: str, *, warehouse: str, database: str) -> list[str]:
    """The least that the project's role needs: it owns the schema, volume, integration and tables that it makes.

    Docs: user-guide/security-access-control-privileges.
    """
    return [
        grant("USAGE", "WAREHOUSE", (warehouse,), role),
        grant("USAGE, CREATE SCHEMA", "DATABASE", (database,), role),
        grant("CREATE EXTERNAL VOLUME", "ACCOUNT", (), role),
        grant("CREATE INTEGRATION", "ACCOUNT", (), role),
    ]


def show_grants_to_role(role: str) -> str:
    """What the role has: `privilege`, `granted_on`, `name`. Docs: sql-reference/sql/show-grants."""
    return f"SHOW GRANTS TO ROLE {identifier(role)}"


def show_future_grants_to_role(role: str) -> str:
    """What it will have: `privilege`, `grant_on`, `name`. Docs: sql-reference/sql/show-grants."""
    return f"SHOW FUTURE GRANTS TO ROLE {identifier(role)}"


def show_grants_of_role(role: str) -> str:
    """Who has the role: `granted_to` (ROLE or USER), `grantee_name`. Docs: sql-reference/sql/show-grants."""
    return f"SHOW GRANTS OF ROLE {identifier(role)}"


def create_external_volume(
    volume: str, *, location: str, role_arn: str, external_id: str = "", comment: str = ""
) -> str:
    """Read-only access to the files of the tables. Docs: sql-reference/sql/create-external-volume.

    Parameters: `location`, the s3:// URI under which all tables lie; the IAM role that Snowflake assumes, and the
    external id that it shows (Snowflake's own, if none is given).
    """
    base = location.rstrip("/") + "/"
    shown = f" STORAGE_AWS_EXTERNAL_ID = {literal(external_id)}" if external_id else ""
    # Between the keys of a location spaces, not commas: as Snowflake's own SDK writes it.
    return (
        f"CREATE EXTERNAL VOLUME IF NOT EXISTS {identifier(volume)} STORAGE_LOCATIONS = (("
        f"NAME = {literal(volume)} STORAGE_PROVIDER = 'S3' STORAGE_BASE_URL = {literal(base)}"
        f" STORAGE_AWS_ROLE_ARN = {literal(role_arn)}{shown})) ALLOW_WRITES = FALSE{commented(comment)}"
    )


def verify_external_volume(volume: str) -> str:
    """One JSON value with `success`. Docs: sql-reference/functions/system_verify_external_volume."""
    return f"SELECT SYSTEM$VERIFY_EXTERNAL_VOLUME({literal(identifier(volume))})"


def create_iceberg_table(
    database: str,
    schema: str,
    table: str,
    *,
    volume: str,
    integration: str,
    namespace: str,
    catalog_table: str,
    auto_refresh: bool = False,
    comment: str = "",
) -> str:
    """Docs: sql-reference/sql/create-iceberg-table-rest (and -aws-glue, which reads the same).

    Parameters: namespace and name of the table in the catalog; `auto_refresh`, whether Snowflake asks the catalog for
    new snapshots by itself.
    """
    return (
        f"CREATE ICEBERG TABLE IF NOT EXISTS {identifier(database, schema, table)}"
        f" EXTERNAL_VOLUME = {literal(volume)} CATALOG = {literal(integration)}"
        f" CATALOG_TABLE_NAME = {literal(catalog_table)} CATALOG_NAMESPACE = {literal(namespace)}"
        f"{' AUTO_REFRESH = TRUE' if auto_refresh else ''}{commented(comment)}"
    )


def stop_auto_refresh(database: str, schema: str, table: str) -> str:
    """Snowflake refuses REFRESH while it refreshes by itself. Docs: sql-reference/sql/alter-iceberg-table."""
    return f"ALTER ICEBERG TABLE {identifier(database, schema, table)} SET AUTO_REFRESH = FALSE"


def refresh_iceberg_table(database: str, schema: str, table: str) -> str:
    """Docs: sql-reference/sql/alter-iceberg-table-refresh."""
    return f"ALTER ICEBERG TABLE {identifier(database, schema, table)} REFRESH"


def iceberg_table_information(database: str, schema: str, table: str) -> str:
    """One JSON value with `metadataLocation`. Docs: sql-reference/functions/system_get_iceberg_table_information."""
    return f"SELECT SYSTEM$GET_ICEBERG_TABLE_INFORMATION({literal(identifier(database, schema, table))})"


def count_rows(database: str, schema: str, table: str) -> str:
    """One integer."""
    return f"SELECT COUNT(*) FROM {identifier(database, schema, table)}"  # noqa: S608 (identifier() quotes)


def show(kind: str, *name: str) -> str:
    """The objects of a kind whose name is like this one: `_` matches any character.

    Parameters: `kind` as CREATE says it; for a SCHEMA, the database's name first.
    Docs: sql-reference/sql/show.
    """
    within = f" IN DATABASE {identifier(name[0])}" if len(name) > 1 else ""
    return f"SHOW {kind}S LIKE {literal(name[-1])}{within}"


def show_iceberg_tables(database: str) -> str:
    """Docs: sql-reference/sql/show-iceberg-tables."""
    return f"SHOW ICEBERG TABLES IN DATABASE {identifier(database)}"


def show_objects(database: str) -> str:
    """Tables and views. Docs: sql-reference/sql/show-objects."""
    return f"SHOW OBJECTS IN DATABASE {identifier(database)}"


def describe(kind: str, name: str) -> str:
    """Rows of `property`, `property_value`. Docs: sql-reference/sql/desc-external-volume, desc-catalog-integration."""
    return f"DESC {kind} {identifier(name)}"


def drop(kind: str, *name: str) -> str:
    """Docs: sql-reference/sql/drop."""
    return f"DROP {kind} IF EXISTS {identifier(*name)}"


def use_role(role: str) -> str:
    """From then on the session has this role's rights. Docs: sql-reference/sql/use-role."""
    return f"USE ROLE {identifier(role)}"


def use_warehouse(warehouse: str) -> str:
    """Docs: sql-reference/sql/use-warehouse."""
    return f"USE WAREHOUSE {identifier(warehouse)}"
