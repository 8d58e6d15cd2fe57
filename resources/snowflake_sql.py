"""Every statement this project sends to Snowflake, as text.

Names are quoted (Snowflake, Identifier requirements), literals escaped (String & binary data types). Nothing here can
be sent with bound values: Snowflake binds values in queries and DML only. tests/unit/test_snowflake_sql.py parses each
statement with sqlfluff's Snowflake grammar.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from lakehouse.naming import snowflake_identifier as identifier


def literal(text: str) -> str:
    """A string literal: quotes are doubled, and so are back-slashes, which start escape sequences."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def create_role(role: str) -> str:
    """Docs: sql-reference/sql/create-role."""
    return f"CREATE ROLE IF NOT EXISTS {identifier(role)}"


def create_warehouse(warehouse: str, *, auto_suspend_seconds: int = 60) -> str:
    """The smallest warehouse, suspended after so many idle seconds. Docs: sql-reference/sql/create-warehouse."""
    return (
        f"CREATE WAREHOUSE IF NOT EXISTS {identifier(warehouse)} WAREHOUSE_SIZE = XSMALL"
        f" AUTO_SUSPEND = {int(auto_suspend_seconds)} AUTO_RESUME = TRUE INITIALLY_SUSPENDED = TRUE"
    )


def create_database(database: str) -> str:
    """Docs: sql-reference/sql/create-database."""
    return f"CREATE DATABASE IF NOT EXISTS {identifier(database)}"


def create_schema(database: str, schema: str) -> str:
    """Docs: sql-reference/sql/create-schema."""
    return f"CREATE SCHEMA IF NOT EXISTS {identifier(database, schema)}"


def create_service_user(user: str, *, role: str, warehouse: str) -> str:
    """A user without a password, who logs in by key pair only. Docs: sql-reference/sql/create-user."""
    return (
        f"CREATE USER IF NOT EXISTS {identifier(user)} TYPE = SERVICE"
        f" DEFAULT_ROLE = {identifier(role)} DEFAULT_WAREHOUSE = {identifier(warehouse)}"
    )


class KeySlot(StrEnum):
    """The two places for a user's public key: either logs in. Docs: user-guide/key-pair-auth."""

    FIRST = "RSA_PUBLIC_KEY"
    SECOND = "RSA_PUBLIC_KEY_2"

    @property
    def other(self) -> KeySlot:
        """The one that this is not."""
        return KeySlot.SECOND if self is KeySlot.FIRST else KeySlot.FIRST


class RestSource(StrEnum):
    """What Snowflake calls the two kinds of REST catalogs: Polaris and Open Catalog, and all others."""

    POLARIS = "POLARIS"
    ICEBERG_REST = "ICEBERG_REST"


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


def grants(role: str, *, warehouse: str, database: str) -> list[str]:
    """The least that the project's role needs: it owns the schema, volume, integration and tables that it makes.

    Docs: sql-reference/sql/grant-privilege; user-guide/security-access-control-privileges.
    """
    to = f"TO ROLE {identifier(role)}"
    return [
        f"GRANT USAGE ON WAREHOUSE {identifier(warehouse)} {to}",
        f"GRANT USAGE, CREATE SCHEMA ON DATABASE {identifier(database)} {to}",
        f"GRANT CREATE EXTERNAL VOLUME ON ACCOUNT {to}",
        f"GRANT CREATE INTEGRATION ON ACCOUNT {to}",
    ]


def create_external_volume(volume: str, *, location: str, role_arn: str) -> str:
    """Read-only access to the files of the tables. Docs: sql-reference/sql/create-external-volume.

    Parameters: `location`, the s3:// URI under which all tables lie; the IAM role that Snowflake assumes.
    """
    base = location.rstrip("/") + "/"
    # Between the keys of a location spaces, not commas: as Snowflake's own SDK writes it.
    return (
        f"CREATE EXTERNAL VOLUME IF NOT EXISTS {identifier(volume)} STORAGE_LOCATIONS = (("
        f"NAME = {literal(volume)} STORAGE_PROVIDER = 'S3' STORAGE_BASE_URL = {literal(base)}"
        f" STORAGE_AWS_ROLE_ARN = {literal(role_arn)})) ALLOW_WRITES = FALSE"
    )


def create_catalog_integration(integration: str, *, role_arn: str, catalog_id: str, region: str) -> str:
    """AWS Glue as the Iceberg catalog. Docs: sql-reference/sql/create-catalog-integration-glue.

    Parameters: the IAM role that Snowflake assumes; the AWS account that owns the Glue catalog; its region.
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
    refresh_seconds: int = 30,
) -> str:
    """A REST catalog as the Iceberg catalog, entered with OAuth client credentials.

    The statement holds the client's secret: show it as `redacted`.

    Docs: sql-reference/sql/create-catalog-integration-open-catalog (also for Apache Polaris);
    sql-reference/sql/create-catalog-integration-rest.

    Parameters: the catalog's address, its name on the server, the namespace of tables that name none; the client;
    where tokens are, if not at the catalog's own endpoint; seconds between two looks at the catalog, for tables with
    AUTO_REFRESH.
    """
    token = f" OAUTH_TOKEN_URI = {literal(token_uri)}" if token_uri else ""
    allowed = ", ".join(map(literal, scopes))
    return (
        f"CREATE CATALOG INTEGRATION IF NOT EXISTS {identifier(integration)}"
        f" CATALOG_SOURCE = {RestSource(source)} TABLE_FORMAT = ICEBERG CATALOG_NAMESPACE = {literal(namespace)}"
        f" REST_CONFIG = (CATALOG_URI = {literal(uri)} CATALOG_NAME = {literal(catalog)})"
        f" REST_AUTHENTICATION = (TYPE = OAUTH{token} OAUTH_CLIENT_ID = {literal(client_id)}"
        f" OAUTH_CLIENT_SECRET = {literal(client_secret)} OAUTH_ALLOWED_SCOPES = ({allowed}))"
        f" ENABLED = TRUE REFRESH_INTERVAL_SECONDS = {int(refresh_seconds)}"
    )


def redacted(text: str) -> str:
    """A statement, or a text that quotes it, without the client's secret."""
    return re.sub(r"(OAUTH_CLIENT_SECRET = )'(?:[^'\\]|''|\\.)*'", r"\1'***'", text)


def create_iceberg_table(
    database: str, schema: str, table: str, *, volume: str, integration: str, glue_database: str, glue_table: str
) -> str:
    """Docs: sql-reference/sql/create-iceberg-table-aws-glue."""
    return (
        f"CREATE ICEBERG TABLE IF NOT EXISTS {identifier(database, schema, table)}"
        f" EXTERNAL_VOLUME = {literal(volume)} CATALOG = {literal(integration)}"
        f" CATALOG_TABLE_NAME = {literal(glue_table)} CATALOG_NAMESPACE = {literal(glue_database)}"
    )


def refresh_iceberg_table(database: str, schema: str, table: str) -> str:
    """Docs: sql-reference/sql/alter-iceberg-table-refresh."""
    return f"ALTER ICEBERG TABLE {identifier(database, schema, table)} REFRESH"


def iceberg_table_information(database: str, schema: str, table: str) -> str:
    """One JSON value with `metadataLocation`. Docs: sql-reference/functions/system_get_iceberg_table_information."""
    return f"SELECT SYSTEM$GET_ICEBERG_TABLE_INFORMATION({literal(identifier(database, schema, table))})"


def count_rows(database: str, schema: str, table: str) -> str:
    """One integer."""
    return f"SELECT COUNT(*) FROM {identifier(database, schema, table)}"


def drop_iceberg_table(database: str, schema: str, table: str) -> str:
    """Glue and the files stay as they are. Docs: sql-reference/sql/drop-iceberg-table."""
    return f"DROP ICEBERG TABLE IF EXISTS {identifier(database, schema, table)}"
