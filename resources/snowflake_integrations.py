"""Statements about catalog integrations: Snowflake's way to an Iceberg catalog, AWS Glue or a REST catalog.

As in resources/snowflake_sql.py, names are quoted and literals escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from resources.snowflake_sql import commented, identifier, literal

REFRESH_SECONDS = 30
"""Between two looks at the catalog, for tables with AUTO_REFRESH. Snowflake takes no less, and no other by itself."""


class RestSource(StrEnum):
    """What Snowflake calls the two kinds of REST catalogs: Polaris and Open Catalog, and all others."""

    POLARIS = "POLARIS"
    ICEBERG_REST = "ICEBERG_REST"


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
    comment: str = "",
) -> str:
    """A REST catalog as the Iceberg catalog, entered with OAuth client credentials.

    The statement holds the client's secret: show it as `redacted`.

    Docs: sql-reference/sql/create-catalog-integration-open-catalog (also for Apache Polaris);
    sql-reference/sql/create-catalog-integration-rest.

    Parameters: the catalog's address, its name on the server, the namespace of tables that name none; the client;
    where tokens are, if not at the catalog's own endpoint.
    """
    token = f" OAUTH_TOKEN_URI = {literal(token_uri)}" if token_uri else ""
    allowed = ", ".join(map(literal, scopes))
    return (
        f"CREATE CATALOG INTEGRATION IF NOT EXISTS {identifier(integration)}"
        f" CATALOG_SOURCE = {RestSource(source)} TABLE_FORMAT = ICEBERG CATALOG_NAMESPACE = {literal(namespace)}"
        f" REST_CONFIG = (CATALOG_URI = {literal(uri)} CATALOG_NAME = {literal(catalog)})"
        f" REST_AUTHENTICATION = (TYPE = OAUTH{token} OAUTH_CLIENT_ID = {literal(client_id)}"
        f" OAUTH_CLIENT_SECRET = {literal(client_secret)} OAUTH_ALLOWED_SCOPES = ({allowed}))"
        f" ENABLED = TRUE REFRESH_INTERVAL_SECONDS = {REFRESH_SECONDS}{commented(comment)}"
    )


def redacted(text: str) -> str:
    """A statement, or a text that quotes it, without the client's secret. Where quotes are escaped once more, as in the
    repr of an answer, more is taken out."""
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
    """AWS Glue by its Iceberg REST endpoint. Docs: user-guide/tables-iceberg-configure-catalog-integration-rest-glue.

    Parameters: the IAM role that Snowflake assumes, and the external id that it shows; the AWS account that owns the
    Glue catalog; its region; the Glue database of tables that name none.
    """
    return (
        f"CREATE CATALOG INTEGRATION IF NOT EXISTS {identifier(integration)}"
        f" CATALOG_SOURCE = ICEBERG_REST TABLE_FORMAT = ICEBERG CATALOG_NAMESPACE = {literal(namespace)}"
        f" REST_CONFIG = (CATALOG_URI = {literal(f'https://glue.{region}.amazonaws.com/iceberg')}"
        f" CATALOG_API_TYPE = AWS_GLUE CATALOG_NAME = {literal(catalog_id)})"
        f" REST_AUTHENTICATION = (TYPE = SIGV4 SIGV4_IAM_ROLE = {literal(role_arn)}"
        f" SIGV4_SIGNING_REGION = {literal(region)} SIGV4_EXTERNAL_ID = {literal(external_id)})"
        f" ENABLED = TRUE REFRESH_INTERVAL_SECONDS = {REFRESH_SECONDS}{commented(comment)}"
    )


def set_refresh_interval(integration: str) -> str:
    """As it is made with. Docs: sql-reference/sql/alter-catalog-integration, which alters this and secrets alone."""
    return f"ALTER CATALOG INTEGRATION {identifier(integration)} SET REFRESH_INTERVAL_SECONDS = {REFRESH_SECONDS}"


def set_client_secret(integration: str, client_secret: str) -> str:
    """The statement holds the secret: show it as `redacted`. Docs: sql-reference/sql/alter-catalog-integration."""
    return (
        f"ALTER CATALOG INTEGRATION {identifier(integration)} SET"
        f" REST_AUTHENTICATION = (OAUTH_CLIENT_SECRET = {literal(client_secret)})"
    )


def verify_catalog_integration(integration: str) -> str:
    """One JSON value with `success` and `errorMessage`; the name is taken as it is, without quotes.

    Docs: sql-reference/functions/system_verify_catalog_integration.
    """
    return f"SELECT SYSTEM$VERIFY_CATALOG_INTEGRATION({literal(integration)})"
