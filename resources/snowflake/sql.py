"""SQL statements for Snowflake.

Names are quoted (Snowflake, Identifier requirements), literals escaped (String & binary data types). Bound values are
not possible: Snowflake binds values in queries and DML only. tests/unit/test_snowflake_sql.py parses each statement
with sqlfluff's Snowflake grammar. References are paths in Snowflake's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from lakehouse.core.sql import SNOWFLAKE

identifier, literal = SNOWFLAKE.identifier, SNOWFLAKE.literal


def comment_clause(comment: str) -> str:
    """Return the clause of a CREATE statement that sets its comment."""
    return f" COMMENT = {literal(comment)}" if comment else ""


def create_role(role: str, *, comment: str = "") -> str:
    """Return the statement that creates a role (sql-reference/sql/create-role)."""
    return f"CREATE ROLE IF NOT EXISTS {identifier(role)}{comment_clause(comment)}"


def create_warehouse(warehouse: str, *, comment: str = "") -> str:
    """Return the statement that creates a warehouse of the smallest size (sql-reference/sql/create-warehouse)."""
    return (
        f"CREATE WAREHOUSE IF NOT EXISTS {identifier(warehouse)} WAREHOUSE_SIZE = XSMALL"
        f" AUTO_SUSPEND = 60 AUTO_RESUME = TRUE INITIALLY_SUSPENDED = TRUE"
        f"{comment_clause(comment)}"
    )


def create_database(database: str, *, comment: str = "") -> str:
    """Return the statement that creates a database (sql-reference/sql/create-database)."""
    return f"CREATE DATABASE IF NOT EXISTS {identifier(database)}{comment_clause(comment)}"


def create_linked_database(database: str, *, integration: str, namespace: str) -> str:
    """Return the statement that creates a database with the tables of a REST catalog
    (sql-reference/sql/create-database-catalog-linked, whose syntax has no IF NOT EXISTS).

    By default, a linked database is writable, and a table that is dropped there is dropped from the catalog with its
    files.

    Args:
        database: Name of the database.
        integration: Catalog integration of the REST catalog, with vended credentials.
        namespace: Namespace of the catalog to which the database is limited.
    """
    return (
        f"CREATE DATABASE {identifier(database)} LINKED_CATALOG = (CATALOG = {literal(integration)},"
        f" ALLOWED_NAMESPACES = ({literal(namespace)}), ALLOWED_WRITE_OPERATIONS = NONE)"
    )


def link_status(database: str) -> str:
    """Return the query of a linked database's state: one JSON value with `executionState` and `failureDetails`
    (sql-reference/functions/system_catalog_link_status)."""
    return f"SELECT SYSTEM$CATALOG_LINK_STATUS({literal(identifier(database))})"


def create_schema(database: str, schema: str, *, comment: str = "") -> str:
    """Return the statement that creates a schema (sql-reference/sql/create-schema)."""
    return f"CREATE SCHEMA IF NOT EXISTS {identifier(database, schema)}{comment_clause(comment)}"


def create_service_user(user: str, *, role: str, warehouse: str = "", namespace: str = "", comment: str = "") -> str:
    """Return the statement that creates a user who can log in by key pair only (sql-reference/sql/create-user).

    Args:
        user: Name of the user.
        role: Default role.
        warehouse: Default warehouse, if any.
        namespace: Default database and schema of a session, as `DB.SCHEMA`.
        comment: Comment on the user.
    """
    default = f" DEFAULT_WAREHOUSE = {identifier(warehouse)}" if warehouse else ""
    default += f" DEFAULT_NAMESPACE = {literal(namespace)}" if namespace else ""
    return (
        f"CREATE USER IF NOT EXISTS {identifier(user)} TYPE = SERVICE DEFAULT_ROLE = {identifier(role)}"
        f"{default}{comment_clause(comment)}"
    )


class KeySlot(StrEnum):
    """The two slots for a user's public key, either of which permits logins (user-guide/key-pair-auth)."""

    FIRST = "RSA_PUBLIC_KEY"
    SECOND = "RSA_PUBLIC_KEY_2"

    @property
    def other(self) -> KeySlot:
        """The other slot."""
        return KeySlot.SECOND if self is KeySlot.FIRST else KeySlot.FIRST


def set_public_key(user: str, public_key: str, slot: KeySlot = KeySlot.FIRST) -> str:
    """Return the statement that sets a user's public key (user-guide/key-pair-auth).

    Args:
        user: Name of the user.
        public_key: Base64 body of a PEM public key.
        slot: Slot of the key.
    """
    return f"ALTER USER {identifier(user)} SET {KeySlot(slot)} = {literal(public_key)}"


def unset_public_key(user: str, slot: KeySlot) -> str:
    """Return the statement that removes the key of a slot (user-guide/key-pair-auth)."""
    return f"ALTER USER {identifier(user)} UNSET {KeySlot(slot)}"


def describe_user(user: str) -> str:
    """Return the query of a user's properties (sql-reference/sql/desc-user).

    Its columns are property, value, default and description; the fingerprints of the user's keys are
    RSA_PUBLIC_KEY_FP and RSA_PUBLIC_KEY_2_FP.
    """
    return f"DESC USER {identifier(user)}"


def grant_role_to_user(role: str, user: str) -> str:
    """Return the statement that grants a role to a user (sql-reference/sql/grant-role)."""
    return f"GRANT ROLE {identifier(role)} TO USER {identifier(user)}"


def grant_role_to_role(role: str, parent: str) -> str:
    """Return the statement that grants `parent` the privileges of `role` (sql-reference/sql/grant-role)."""
    return f"GRANT ROLE {identifier(role)} TO ROLE {identifier(parent)}"


def grant(privileges: str, kind: str, name: tuple[str, ...], role: str) -> str:
    """Return the statement that grants privileges to a role (sql-reference/sql/grant-privilege).

    Args:
        privileges: The privileges, separated by commas.
        kind: Kind of the object, or ACCOUNT.
        name: Name of the object; empty for ACCOUNT.
        role: The role.
    """
    on = f"{kind} {identifier(*name)}".strip()
    return f"GRANT {privileges} ON {on} TO ROLE {identifier(role)}"


def grant_on_tables(which: Literal["ALL", "FUTURE"], database: str, schema: str, role: str) -> str:
    """Return the statement that grants SELECT on the existing or future Iceberg tables of a schema
    (sql-reference/sql/grant-privilege)."""
    return f"GRANT SELECT ON {which} ICEBERG TABLES IN SCHEMA {identifier(database, schema)} TO ROLE {identifier(role)}"


def grant_ownership_of_user(user: str, role: str) -> str:
    """Return the statement that transfers a user to a role, which may then set its keys
    (sql-reference/sql/grant-ownership)."""
    return f"GRANT OWNERSHIP ON USER {identifier(user)} TO ROLE {identifier(role)} COPY CURRENT GRANTS"


def grants(role: str, *, warehouse: str, database: str) -> list[str]:
    """Return the statements that grant a role its minimum privileges, besides those on objects that it creates.

    Reference: user-guide/security-access-control-privileges.
    """
    return [
        grant("USAGE", "WAREHOUSE", (warehouse,), role),
        grant("USAGE, CREATE SCHEMA", "DATABASE", (database,), role),
        grant("CREATE EXTERNAL VOLUME", "ACCOUNT", (), role),
        grant("CREATE INTEGRATION", "ACCOUNT", (), role),
    ]


def show_grants_to_role(role: str) -> str:
    """Return the query of a role's privileges: `privilege`, `granted_on`, `name` (sql-reference/sql/show-grants)."""
    return f"SHOW GRANTS TO ROLE {identifier(role)}"


def show_future_grants_to_role(role: str) -> str:
    """Return the query of a role's future privileges: `privilege`, `grant_on`, `name`
    (sql-reference/sql/show-grants)."""
    return f"SHOW FUTURE GRANTS TO ROLE {identifier(role)}"


def show_grants_of_role(role: str) -> str:
    """Return the query of a role's members: `granted_to` (ROLE or USER), `grantee_name`
    (sql-reference/sql/show-grants)."""
    return f"SHOW GRANTS OF ROLE {identifier(role)}"


def create_external_volume(
    volume: str, *, location: str, role_arn: str, external_id: str = "", comment: str = ""
) -> str:
    """Return the statement that creates a read-only volume of the tables' files
    (sql-reference/sql/create-external-volume).

    Args:
        volume: Name of the volume.
        location: The s3:// URI of all tables.
        role_arn: IAM role that Snowflake assumes.
        external_id: External id that Snowflake presents; generated by Snowflake if empty.
        comment: Comment on the volume.
    """
    base = location.rstrip("/") + "/"
    external = f" STORAGE_AWS_EXTERNAL_ID = {literal(external_id)}" if external_id else ""
    # The keys of a location are separated by spaces, as Snowflake's own SDK writes them.
    return (
        f"CREATE EXTERNAL VOLUME IF NOT EXISTS {identifier(volume)} STORAGE_LOCATIONS = (("
        f"NAME = {literal(volume)} STORAGE_PROVIDER = 'S3' STORAGE_BASE_URL = {literal(base)}"
        f" STORAGE_AWS_ROLE_ARN = {literal(role_arn)}{external})) ALLOW_WRITES = FALSE{comment_clause(comment)}"
    )


def verify_external_volume(volume: str) -> str:
    """Return the query that tests a volume: one JSON value with `success`
    (sql-reference/functions/system_verify_external_volume)."""
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
    """Return the statement that creates an Iceberg table (sql-reference/sql/create-iceberg-table-rest, and -aws-glue,
    which has the same syntax).

    Args:
        database: Database in Snowflake.
        schema: Schema in Snowflake.
        table: Name in Snowflake.
        volume: External volume of its files.
        integration: Catalog integration.
        namespace: Namespace in the catalog.
        catalog_table: Name in the catalog.
        auto_refresh: Let Snowflake poll the catalog for new snapshots.
        comment: Comment on the table.
    """
    return (
        f"CREATE ICEBERG TABLE IF NOT EXISTS {identifier(database, schema, table)}"
        f" EXTERNAL_VOLUME = {literal(volume)} CATALOG = {literal(integration)}"
        f" CATALOG_TABLE_NAME = {literal(catalog_table)} CATALOG_NAMESPACE = {literal(namespace)}"
        f"{' AUTO_REFRESH = TRUE' if auto_refresh else ''}{comment_clause(comment)}"
    )


def disable_auto_refresh(database: str, schema: str, table: str) -> str:
    """Return the statement that ends automatic refreshes, during which Snowflake rejects REFRESH
    (sql-reference/sql/alter-iceberg-table)."""
    return f"ALTER ICEBERG TABLE {identifier(database, schema, table)} SET AUTO_REFRESH = FALSE"


def refresh_iceberg_table(database: str, schema: str, table: str) -> str:
    """Return the statement that refreshes a table (sql-reference/sql/alter-iceberg-table-refresh)."""
    return f"ALTER ICEBERG TABLE {identifier(database, schema, table)} REFRESH"


def iceberg_table_information(database: str, schema: str, table: str) -> str:
    """Return the query of a table's state: one JSON value with `metadataLocation`
    (sql-reference/functions/system_get_iceberg_table_information)."""
    return f"SELECT SYSTEM$GET_ICEBERG_TABLE_INFORMATION({literal(identifier(database, schema, table))})"


def count_rows(database: str, schema: str, table: str) -> str:
    """Return the query of a table's number of rows."""
    return f"SELECT COUNT(*) FROM {identifier(database, schema, table)}"  # noqa: S608 (identifier() quotes)


def show(kind: str, *name: str) -> str:
    """Return the query of objects by kind and name, in which `_` matches any character (sql-reference/sql/show).

    Args:
        kind: The kind, as in CREATE.
        name: The object's name, for a SCHEMA after its database.
    """
    within = f" IN DATABASE {identifier(name[0])}" if len(name) > 1 else ""
    return f"SHOW {kind}S LIKE {literal(name[-1])}{within}"


def show_iceberg_tables(database: str) -> str:
    """Return the query of a database's Iceberg tables (sql-reference/sql/show-iceberg-tables)."""
    return f"SHOW ICEBERG TABLES IN DATABASE {identifier(database)}"


def show_in_database(plural: str, database: str) -> str:
    """Return the query of a database's objects of one kind: `name` and, unless they are schemas, `schema_name`
    (sql-reference/sql/show).

    Args:
        plural: The kind in the plural, such as STAGES; OBJECTS are tables and views.
        database: The database.
    """
    return f"SHOW {plural} IN DATABASE {identifier(database)}"


def describe(kind: str, name: str) -> str:
    """Return the query of an object's `property` and `property_value` (sql-reference/sql/desc-external-volume,
    desc-catalog-integration)."""
    return f"DESC {kind} {identifier(name)}"


def drop(kind: str, *name: str) -> str:
    """Return the statement that drops an object (sql-reference/sql/drop)."""
    return f"DROP {kind} IF EXISTS {identifier(*name)}"


def use_role(role: str) -> str:
    """Return the statement that sets the role of the session (sql-reference/sql/use-role)."""
    return f"USE ROLE {identifier(role)}"


def use_warehouse(warehouse: str) -> str:
    """Return the statement that sets the warehouse of the session (sql-reference/sql/use-warehouse)."""
    return f"USE WAREHOUSE {identifier(warehouse)}"


REFRESH_SECONDS = 30
"""Interval of tables with AUTO_REFRESH: Snowflake's minimum and default."""


class RestSource(StrEnum):
    """Kinds of REST catalogs in Snowflake: Polaris and Open Catalog, and all others."""

    POLARIS = "POLARIS"
    ICEBERG_REST = "ICEBERG_REST"


def create_catalog_integration(integration: str, *, role_arn: str, catalog_id: str, region: str) -> str:
    """Return the statement that creates an integration of AWS Glue (sql-reference/sql/create-catalog-integration-glue).

    Args:
        integration: Name of the integration.
        role_arn: IAM role that Snowflake assumes.
        catalog_id: AWS account that owns the Glue catalog.
        region: AWS region of the Glue catalog.
    """
    return (
        f"CREATE CATALOG INTEGRATION IF NOT EXISTS {identifier(integration)}"
        f" CATALOG_SOURCE = GLUE TABLE_FORMAT = ICEBERG"
        f" GLUE_AWS_ROLE_ARN = {literal(role_arn)} GLUE_CATALOG_ID = {literal(catalog_id)}"
        f" GLUE_REGION = {literal(region)} ENABLED = TRUE"
    )


def create_rest_catalog_integration(
    integration: str,
    source: RestSource,
    *,
    uri: str,
    catalog: str,
    namespace: str,
    client_id: str,
    client_secret: str,
    scopes: Sequence[str] = ("PRINCIPAL_ROLE:ALL",),
    token_uri: str | None = None,
    comment: str = "",
) -> str:
    """Return the statement that creates an integration of a REST catalog, with OAuth client credentials.

    The statement contains the client's secret: use `redact` before showing it. Reference:
    sql-reference/sql/create-catalog-integration-open-catalog (also for Apache Polaris) and
    sql-reference/sql/create-catalog-integration-rest.

    Args:
        integration: Name of the integration.
        source: Kind of REST catalog.
        uri: Address of the catalog.
        catalog: Name of the catalog on the server.
        namespace: Default namespace of tables.
        client_id: Id of the OAuth client.
        client_secret: Secret of the OAuth client.
        scopes: OAuth scopes.
        token_uri: Token endpoint; the catalog's own if None.
        comment: Comment on the integration.
    """
    token = f" OAUTH_TOKEN_URI = {literal(token_uri)}" if token_uri else ""
    allowed = ", ".join(map(literal, scopes))
    return (
        f"CREATE CATALOG INTEGRATION IF NOT EXISTS {identifier(integration)}"
        f" CATALOG_SOURCE = {RestSource(source)} TABLE_FORMAT = ICEBERG CATALOG_NAMESPACE = {literal(namespace)}"
        f" REST_CONFIG = (CATALOG_URI = {literal(uri)} CATALOG_NAME = {literal(catalog)})"
        f" REST_AUTHENTICATION = (TYPE = OAUTH{token} OAUTH_CLIENT_ID = {literal(client_id)}"
        f" OAUTH_CLIENT_SECRET = {literal(client_secret)} OAUTH_ALLOWED_SCOPES = ({allowed}))"
        f" ENABLED = TRUE REFRESH_INTERVAL_SECONDS = {REFRESH_SECONDS}{comment_clause(comment)}"
    )


def redact(text: str) -> str:
    """Return a text without the client's secret of a statement in it.

    If quotes are escaped again, as in the repr of a response, more than the secret is removed.
    """
    return re.sub(r"(OAUTH_CLIENT_SECRET = )\\*'(?:[^'\\]|''|\\.)*(?:'|$)", r"\1'***'", text, flags=re.DOTALL)


def create_glue_rest_integration(
    integration: str,
    *,
    role_arn: str,
    external_id: str,
    catalog_id: str,
    region: str,
    namespace: str,
    comment: str = "",
) -> str:
    """Return the statement that creates an integration of AWS Glue by its Iceberg REST endpoint.

    Reference: user-guide/tables-iceberg-configure-catalog-integration-rest-glue.

    Args:
        integration: Name of the integration.
        role_arn: IAM role that Snowflake assumes.
        external_id: External id that Snowflake presents.
        catalog_id: AWS account that owns the Glue catalog.
        region: AWS region of the Glue catalog.
        namespace: Default Glue database of tables.
        comment: Comment on the integration.
    """
    return (
        f"CREATE CATALOG INTEGRATION IF NOT EXISTS {identifier(integration)}"
        f" CATALOG_SOURCE = ICEBERG_REST TABLE_FORMAT = ICEBERG CATALOG_NAMESPACE = {literal(namespace)}"
        f" REST_CONFIG = (CATALOG_URI = {literal(f'https://glue.{region}.amazonaws.com/iceberg')}"
        f" CATALOG_API_TYPE = AWS_GLUE CATALOG_NAME = {literal(catalog_id)})"
        f" REST_AUTHENTICATION = (TYPE = SIGV4 SIGV4_IAM_ROLE = {literal(role_arn)}"
        f" SIGV4_SIGNING_REGION = {literal(region)} SIGV4_EXTERNAL_ID = {literal(external_id)})"
        f" ENABLED = TRUE REFRESH_INTERVAL_SECONDS = {REFRESH_SECONDS}{comment_clause(comment)}"
    )


def set_refresh_interval(integration: str) -> str:
    """Return the statement that restores the refresh interval of a new integration.

    Reference: sql-reference/sql/alter-catalog-integration, which can alter only this and secrets.
    """
    return f"ALTER CATALOG INTEGRATION {identifier(integration)} SET REFRESH_INTERVAL_SECONDS = {REFRESH_SECONDS}"


def set_client_secret(integration: str, client_secret: str) -> str:
    """Return the statement that replaces the client's secret: use `redact` before showing it.

    Reference: sql-reference/sql/alter-catalog-integration.
    """
    return (
        f"ALTER CATALOG INTEGRATION {identifier(integration)} SET"
        f" REST_AUTHENTICATION = (OAUTH_CLIENT_SECRET = {literal(client_secret)})"
    )


def verify_catalog_integration(integration: str) -> str:
    """Return the query that tests an integration: one JSON value with `success` and `errorMessage`.

    Reference: sql-reference/functions/system_verify_catalog_integration, whose argument is the unquoted name.
    """
    return f"SELECT SYSTEM$VERIFY_CATALOG_INTEGRATION({literal(integration)})"
