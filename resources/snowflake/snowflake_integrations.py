"""SQL statements for catalog integrations, Snowflake's connections to AWS Glue or an Iceberg REST catalog.

Names are quoted and literals escaped, as in resources/snowflake/snowflake_sql.py.
"""

import re
from collections.abc import Sequence
from enum import StrEnum

from resources.snowflake.snowflake_sql import comment_clause, identifier, literal

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
