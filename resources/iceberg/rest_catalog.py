"""Registrations of tables in a catalog with Iceberg's REST protocol, such as Apache Polaris.

Specification: Apache Iceberg, open-api/rest-catalog-open-api.yaml; Apache Polaris, spec/polaris-catalog-apis. The
setting `move` selects how a registered table is moved to a newer metadata file, which depends on the server:

- `overwrite`: RegisterTableRequest with `overwrite` (Iceberg 1.11; Polaris since 1.6, type INTERNAL). Atomic.
- `notify`: Polaris' notification UPDATE (catalogs of type EXTERNAL, Snowflake's Open Catalog too). Atomic.
- `replace`: drop without purge, then register. Every server supports it, but **readers briefly find no table**.
"""

import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import quote

import dagster as dg
import requests
from pydantic import Field, PrivateAttr

from lakehouse.core.errors import (
    CommitConflict,
    ConfigError,
    LakehouseError,
    TransientError,
    UnclearState,
    Unreachable,
    redact_credentials,
)
from resources.http_json import ClientCredentials, NoResponse, content, send
from resources.masked_field import masked_field, secret_field

SYSTEM = "The REST catalog"
TIMEOUT_SECONDS = 30
"""The server reads a table's metadata file to register it."""
TOKEN_EXPIRED = (401, 419)
"""Status codes: Unauthorized, and AuthenticationTimeout of the specification."""


@dataclass(frozen=True)
class RestRegistration:
    """The registration of a table. `snapshot_id` is None while the table has no snapshot."""

    metadata_location: str
    table_uuid: str
    snapshot_id: int | None


class ErrorResponse(LakehouseError):
    """The catalog responded with an error."""

    def __init__(self, message: str, status: int):
        """
        Args:
            message: The complete message.
            status: The HTTP status.
        """
        super().__init__(message)
        self.status = status


class IncompleteReplacement(Unreachable):
    """`replace` was interrupted between its two requests; a repetition completes it."""

    def __init__(self, name: str, where: str, cause: LakehouseError):
        """
        Args:
            name: The table.
            where: The catalog's address.
            cause: The error that interrupted it.
        """
        LakehouseError.__init__(
            self,
            f"{name} was dropped from the REST catalog and not registered again: {cause}",
            "No file was deleted, but readers may find no table there until it is published again",
            "Retry the run or command to register the table",
        )
        self.system, self.where = SYSTEM, redact_credentials(where)


class RestCatalog(dg.ConfigurableResource):
    """One catalog of a server. The client is either `credential`, in Iceberg's notation, or `client_id` and
    `client_secret`."""

    uri: str = masked_field(description="Address, as `https://host/api/catalog`.")
    warehouse: str = Field(description="Name of the catalog on the server.")
    credential: str | None = secret_field(None, "`client id:client secret`.")
    client_id: str | None = Field(None, description="The client's id, in place of `credential`.")
    client_secret: str | None = secret_field(None, "The client's secret.")
    scope: str = Field(
        "PRINCIPAL_ROLE:ALL", description="OAuth scope: roles for Polaris, usually `catalog` for others."
    )
    oauth2_server_uri: str | None = masked_field(
        None, "Token endpoint, if it is not the catalog's own `/v1/oauth/tokens`."
    )
    move: Literal["overwrite", "notify", "replace"] = Field(
        "overwrite",
        description="Method to register newer metadata: `overwrite` (Polaris since 1.6), `notify` (Polaris catalogs "
        "of type EXTERNAL), or `replace` (drop and register again: readers briefly find no table).",
    )

    _oauth: ClientCredentials | None = PrivateAttr(default=None)
    _prefix: str | None = PrivateAttr(default=None)

    def registration(self, namespace: str, table: str) -> RestRegistration | None:
        """Return the registration of a table, or None if there is none."""
        # The server responds with the same status if it does not have the whole catalog.
        path = self._in_catalog(f"{_in(namespace)}/tables/{_path(table)}")
        try:
            body = self._send("GET", path, params={"snapshots": "refs"})
        except ErrorResponse as error:
            if error.status == 404:
                return None
            raise
        metadata = body["metadata"]
        # Some servers return -1 while there is no snapshot.
        snapshot_id = metadata.get("current-snapshot-id")
        return RestRegistration(
            metadata_location=body["metadata-location"],
            table_uuid=metadata["table-uuid"],
            snapshot_id=None if snapshot_id == -1 else snapshot_id,
        )

    def publish(
        self, namespace: str, table: str, *, metadata_location: str, table_uuid: str, expected: RestRegistration | None
    ) -> RestRegistration:
        """Register a metadata file for the table, in place of `expected`.

        The server compares nothing, whatever `move` is, so the caller checks that `expected` may be replaced.

        Raises:
            UnclearState: Another Iceberg table is registered under the name.
            CommitConflict: Another writer changed the registration.
        """
        name = f"{namespace}.{table}"
        if expected and expected.table_uuid != table_uuid:
            raise UnclearState(
                f"{SYSTEM} has another Iceberg table {name} (uuid {expected.table_uuid}, not {table_uuid}). It was "
                f"left unchanged. Drop it there, without purge, to publish the new one"
            )
        if expected and expected.metadata_location == metadata_location:
            return expected
        lost: Unreachable | None = None
        try:
            if self.move == "notify":
                self._notify(namespace, table, metadata_location, table_uuid, "UPDATE" if expected else "CREATE")
            elif expected and self.move == "replace":
                self._replace(namespace, table, metadata_location, expected.metadata_location)
            else:
                self._ensure_namespace(namespace)
                self._register(namespace, table, metadata_location, overwrite=expected is not None)
        except Unreachable as error:
            # The response was lost, but the change may have been applied: read it back.
            lost = error
        except ErrorResponse as error:
            if error.status == 409:
                raise CommitConflict(
                    f"Another writer changed {name} in the REST catalog meanwhile. It was left unchanged. Retry "
                    f"the run or command"
                ) from error
            raise
        current = self.registration(namespace, table)
        if current is not None and current.metadata_location == metadata_location:
            return current
        raise lost or CommitConflict(
            f"Another writer changed {name} in the REST catalog at the same time. Nothing was registered. Retry "
            f"the run or command"
        )

    def _register(self, namespace: str, table: str, metadata_location: str, *, overwrite: bool) -> None:
        request = {"name": table, "metadata-location": metadata_location} | ({"overwrite": True} if overwrite else {})
        try:
            self._call("POST", f"{_in(namespace)}/register", json=request)
        except ErrorResponse as error:
            # Servers before Iceberg 1.11 ignore `overwrite` and respond with 409, because the table exists.
            if overwrite and error.status in (400, 406, 409, 501):
                raise LakehouseError(
                    f"{error}. This catalog does not support `move: overwrite`. Set `move: notify` for a Polaris "
                    f"catalog of type EXTERNAL, or `move: replace`, which drops and registers the table, so readers "
                    f"briefly find none"
                ) from error
            raise

    def _replace(self, namespace: str, table: str, metadata_location: str, previous_location: str) -> None:
        # Without the right to register, nothing may be dropped: servers verify it before they find the present table.
        try:
            return self._register(namespace, table, metadata_location, overwrite=False)
        except ErrorResponse as error:
            if error.status != 409:
                raise
        try:
            self._call("DELETE", f"{_in(namespace)}/tables/{_path(table)}", params={"purgeRequested": "false"})
        except Unreachable as error:
            raise IncompleteReplacement(f"{namespace}.{table}", self.uri, error) from error
        except ErrorResponse as error:
            # Another publication has dropped the table and not registered it yet.
            if error.status != 404:
                raise
        try:
            self._register(namespace, table, metadata_location, overwrite=False)
        except ErrorResponse as error:
            if error.status == 409:
                raise
            try:
                self._register(namespace, table, previous_location, overwrite=False)
            except LakehouseError:
                raise IncompleteReplacement(f"{namespace}.{table}", self.uri, error) from error
            raise LakehouseError(
                f"The new metadata file of {namespace}.{table} could not be registered: {error}. The previous one is "
                f"registered again; grants on the table may be lost"
            ) from error
        except LakehouseError as error:
            raise IncompleteReplacement(f"{namespace}.{table}", self.uri, error) from error

    def _notify(self, namespace: str, table: str, metadata_location: str, table_uuid: str, kind: str) -> None:
        payload = {
            "table-name": table,
            "timestamp": time.time_ns() // 1_000_000,
            "table-uuid": table_uuid,
            "metadata-location": metadata_location,
        }
        request = {"notification-type": kind, "payload": payload}
        self._call("POST", f"{_in(namespace)}/tables/{_path(table)}/notifications", json=request)

    def _ensure_namespace(self, namespace: str) -> None:
        try:
            self._call("POST", "namespaces", json={"namespace": [namespace]})
        except ErrorResponse as error:
            if error.status != 409:
                raise

    def _call(self, method: str, path: str, **request: Any) -> Any:
        """Return the body of the catalog's response."""
        return self._send(method, self._in_catalog(path), **request)

    def _in_catalog(self, path: str) -> str:
        """Return the complete path of a resource of the catalog, as the server's configuration says."""
        if self._prefix is None:
            body = self._send("GET", "v1/config", params={"warehouse": self.warehouse})
            self._prefix = {**body.get("defaults", {}), **body.get("overrides", {})}.get("prefix", "")
        prefix = f"{quote(self._prefix)}/" if self._prefix else ""
        return f"v1/{prefix}{path}"

    def _send(self, method: str, path: str, **request: Any) -> Any:
        check = "`rest_catalog` in lakehouse.yaml, and the network"
        url, oauth, token = f"{self.uri.rstrip('/')}/{path}", self.client(), ""
        try:
            for _ in range(2):
                token = oauth.token(refused=token) if oauth else ""
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                response = send(method, url, headers=headers, timeout=TIMEOUT_SECONDS, **request)
                if oauth is None or response.status_code not in TOKEN_EXPIRED:
                    break
        except NoResponse as error:
            raise Unreachable(SYSTEM, self.uri, check, error) from error
        if response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            raise TransientError(
                f"{SYSTEM} at {redact_credentials(self.uri)} limits the rate of requests (status "
                f"{response.status_code}: {_message(response)})",
                "The call changed nothing",
                "Retry the run or command",
            )
        if response.status_code >= 500 and response.status_code != 501:
            raise Unreachable(SYSTEM, self.uri, check, f"status {response.status_code}")
        if not response.ok:
            raise ErrorResponse(
                f"{SYSTEM} at {redact_credentials(self.uri)} refused {method} /{path} for warehouse "
                f"'{self.warehouse}' (status {response.status_code}: {_message(response)}). The call changed nothing. "
                f"Check the warehouse's name and the client's roles there",
                response.status_code,
            )
        try:
            return content(response) or {}
        except requests.JSONDecodeError:
            raise LakehouseError(
                f"{SYSTEM} at {redact_credentials(self.uri)} responded to {method} /{path} without JSON. Set "
                f"`uri` of `rest_catalog` in lakehouse.yaml to the address of Iceberg's REST protocol, such as "
                f"https://host/api/catalog"
            ) from None

    def client(self) -> ClientCredentials | None:
        """Return the OAuth client; None for a catalog without authentication."""
        if self._oauth is None and (self.credential or self.client_id):
            id_, _, secret = (self.credential or f"{self.client_id}:{self.client_secret or ''}").partition(":")
            if not secret:
                raise ConfigError(
                    "lakehouse.yaml: rest_catalog: the client has no secret. Write `credential` as `id:secret`, or "
                    "`client_id` and `client_secret`"
                )
            token_uri = self.oauth2_server_uri or f"{self.uri.rstrip('/')}/v1/oauth/tokens"
            self._oauth = ClientCredentials(SYSTEM, token_uri, id_, secret, self.scope)
        return self._oauth


def _in(namespace: str) -> str:
    return f"namespaces/{_path(namespace)}"


def _path(name: str) -> str:
    """Return a name as one segment of a path."""
    return quote(name, safe="")


def _message(response: requests.Response) -> str:
    """Return the message of an error response (IcebergErrorResponse)."""
    try:
        return response.json()["error"]["message"].partition("\n")[0]
    except (requests.JSONDecodeError, KeyError, TypeError, AttributeError):
        return response.reason
