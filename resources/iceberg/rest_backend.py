"""Iceberg tables in a catalog with Iceberg's REST protocol, whose server commits.

The server compares the requirements of a commit with the table and replaces its metadata in one step. It also writes
the times in the metadata, except that of a snapshot, and refuses a snapshot on main whose time would make the history
go back. So no clock of a client makes a table unreadable.

Specification: Apache Iceberg, open-api/rest-catalog-open-api.yaml.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pyiceberg.exceptions import (
    CommitStateUnknownException,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
)
from requests import RequestException

from lakehouse.core.errors import (
    ClockSkew,
    CommitConflict,
    LakehouseError,
    RequestRejected,
    TransientError,
    Unreachable,
)
from lakehouse.core.tables import naming
from lakehouse.core.tables.naming import TableRef
from resources.http_json import ClientCredentials
from resources.iceberg.catalog_backend import CatalogBackend, CatalogSettings
from resources.iceberg.commits import format_utc, now_ms
from resources.iceberg.rest_client import DELEGATION_HEADER, LOGIN, TIMEOUT_SECONDS, Login
from resources.iceberg.rest_settings import VENDED, headers_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as IcebergCatalog
    from pyiceberg.table import Table

SYSTEM = "The REST catalog"
DEFAULT_SCOPE = "catalog"
"""The scope of Iceberg's clients (OAuth2Properties.CATALOG_SCOPE)."""
CREDENTIAL_VARIABLE, TOKEN_VARIABLE = "ICEBERG_CATALOG_CREDENTIAL", "ICEBERG_CATALOG_TOKEN"  # noqa: S105 (names)
"""Environment variables with the login of Spark's driver.

Spark writes the settings of a session to its event log, so they name the variable instead (Iceberg, EnvironmentUtil).
"""

GLUE_LIMIT = 20_000_000
"""Bytes of a metadata file (AWS Glue, Considerations and limitations when using AWS Glue Iceberg REST Catalog APIs)."""

NOT_OPENED = re.compile(r"org\.apache\.iceberg\.exceptions\.NotAuthorizedException|No plan for CreateOrReplaceBranch")
"""Words in Spark's errors if its driver cannot open the catalog: Iceberg's planner then has no plan for commands."""

HISTORY = re.compile(r"Expected sorted snapshot log entries|Invalid update timestamp")
"""Words in the refusal of a snapshot on main whose time is far from the server's, or before its predecessor's (Apache
Iceberg, TableMetadata). Its writer states the time."""

OVERTAKEN = re.compile(r"^NoSuchTableException|older than last sequence number")
"""Words in refusals that pyiceberg calls neither a missing table nor a conflict. Servers before Iceberg 1.11 respond
with status 400 to a snapshot that another one has overtaken (Apache Iceberg, CatalogHandlers)."""


class RestBackend(CatalogBackend):
    """Iceberg tables in a REST catalog, such as Apache Polaris."""

    name = "rest"

    def pyiceberg_properties(self, catalog: CatalogSettings) -> dict[str, Any]:
        properties = {"py-catalog-impl": "resources.iceberg.rest_client.LakeRestCatalog", LOGIN: _login(catalog)}
        return properties | _common(catalog)

    def spark_properties(self, catalog: CatalogSettings) -> dict[str, str]:
        milliseconds = str(TIMEOUT_SECONDS * 1000)
        settings = {
            "type": "rest",
            "rest.client.connection-timeout-ms": milliseconds,
            "rest.client.socket-timeout-ms": milliseconds,
        }
        if catalog.credential:
            # Many authorization servers do not exchange a token for another one, with which Iceberg would renew it.
            renewal = {"token-exchange-enabled": "false", "scope": catalog.scope or DEFAULT_SCOPE}
            settings |= {"credential": f"env:{CREDENTIAL_VARIABLE}", "oauth2-server-uri": token_uri(catalog)} | renewal
        elif catalog.token:
            settings |= {"token": f"env:{TOKEN_VARIABLE}", "token-refresh-enabled": "false"}
        elif catalog.sigv4:
            # By default, Iceberg also logs in by OAuth.
            settings |= {"rest.auth.sigv4.delegate-auth-type": "none"}
        return settings | _common(catalog)

    def issues_credentials(self, catalog: CatalogSettings) -> bool:
        return catalog.access_delegation == VENDED

    def metadata_limit(self, catalog: CatalogSettings) -> int | None:
        return GLUE_LIMIT if catalog.sigv4 == "glue" else None

    def folder(self, catalog: CatalogSettings, table: Table) -> str:
        # The warehouse of most servers is a name, and the server chooses the folder.
        return catalog.warehouse if "://" in catalog.warehouse else "/".join(table.location().split("/")[:3])

    def dataset(self, catalog: CatalogSettings, ref: TableRef) -> tuple[str, str]:
        # OpenLineage specifies no names for REST catalogs.
        return self.address(catalog).rstrip("/"), f"{catalog.warehouse}.{ref}"

    def new_location(self, iceberg: IcebergCatalog, ref: TableRef) -> str | None:
        folder = iceberg.load_namespace_properties(ref.namespace).get("location")
        return f"{folder.rstrip('/')}/{naming.new_folder(ref.name)}" if folder else None

    def to_error(self, error: Exception, catalog: CatalogSettings) -> LakehouseError | None:
        where, check = self.address(catalog), "`catalog` in lakehouse.yaml, and the network"
        if HISTORY.search(str(error)):
            return ClockSkew(
                f"{format_utc(now_ms())} UTC, and {SYSTEM.lower()} at {where} refused a snapshot, since the clock of "
                f"its writer, this machine or Spark's driver, differs from others by more than a minute",
                "the history of a table may not go back",
            )
        if isinstance(error, RESTError) and OVERTAKEN.search(str(error)):
            return CommitConflict(
                f"Another program overtook a commit to {SYSTEM.lower()} at {where} ({error}). Nothing was changed. "
                f"Retry the run or command"
            )
        if isinstance(error, RequestException):
            return Unreachable(SYSTEM, where, check, type(error).__name__)
        unavailable = CommitStateUnknownException | ServerError | ServiceUnavailableError | TooManyRequestsError
        if isinstance(error, unavailable):
            return Unreachable(SYSTEM, where, check, error)
        if isinstance(error, RESTError | NotImplementedError):
            check = "the client's login and its rights there"
            return RequestRejected(SYSTEM, where, f"the request: {str(error).rstrip('.')}", check)
        if isinstance(error, ValidationError) and error.title.endswith("Response"):
            return LakehouseError(
                f"{SYSTEM} at {where} responded with something other than {error.title} of Iceberg's REST protocol. "
                f"Set `uri` of `catalog` in lakehouse.yaml to the address of that protocol, such as "
                f"https://host/api/catalog"
            )
        if NOT_OPENED.search(str(error)):
            variable = CREDENTIAL_VARIABLE if catalog.credential else TOKEN_VARIABLE
            return TransientError(
                f"Spark's driver cannot open the REST catalog at {where}",
                "Nothing was published",
                f"Set {variable} in the environment of the driver to the login of `catalog` in lakehouse.yaml, check "
                f"that it reaches the address, and retry the run or command",
            )
        return super().to_error(error, catalog)


def _common(catalog: CatalogSettings) -> dict[str, str]:
    """Return the properties that pyiceberg and Spark have in common."""
    common = {"uri": (catalog.uri or "").rstrip("/")}
    common |= {f"header.{name}": value for name, value in headers_of(catalog.headers or "").items()}
    if catalog.prefix:
        common["prefix"] = catalog.prefix
    if catalog.access_delegation == VENDED:
        common[f"header.{DELEGATION_HEADER}"] = VENDED
    if catalog.sigv4:
        common |= {"rest.sigv4-enabled": "true", "rest.signing-name": catalog.sigv4}
        common["rest.signing-region"] = catalog.region or ""
    return common


def token_uri(catalog: CatalogSettings) -> str:
    """Return the address at which a credential is exchanged for a token."""
    return catalog.oauth2_server_uri or f"{(catalog.uri or '').rstrip('/')}/v1/oauth/tokens"


def _login(catalog: CatalogSettings) -> Login:
    if not catalog.credential:
        return Login(token=catalog.token or "")
    id_, _, secret = catalog.credential.partition(":")
    return Login(ClientCredentials(SYSTEM, token_uri(catalog), id_, secret, catalog.scope or DEFAULT_SCOPE))
