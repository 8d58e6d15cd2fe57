"""Snowflake's integration of a REST catalog with vended credentials, as an administrator creates it."""

from tests.support.clouds.rest.client import CLIENT_ID, SECRET
from tests.support.clouds.rest.server import SCOPE, WAREHOUSE, Vending


def integration_statement(name: str, catalog: Vending, *, secret: str = SECRET, seconds: int = 1) -> str:
    """Return the statement. Snowflake's shortest interval between refreshes is 30 seconds."""
    return (
        f"CREATE CATALOG INTEGRATION {name} CATALOG_SOURCE = ICEBERG_REST TABLE_FORMAT = ICEBERG"
        f" REST_CONFIG = (CATALOG_URI = '{catalog.address}' CATALOG_NAME = '{WAREHOUSE}'"
        f" ACCESS_DELEGATION_MODE = VENDED_CREDENTIALS) REST_AUTHENTICATION = (TYPE = OAUTH"
        f" OAUTH_CLIENT_ID = '{CLIENT_ID}' OAUTH_CLIENT_SECRET = '{secret}' OAUTH_ALLOWED_SCOPES = ('{SCOPE}'))"
        f" ENABLED = TRUE REFRESH_INTERVAL_SECONDS = {seconds}"
    )
