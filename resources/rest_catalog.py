"""A catalog that speaks Iceberg's REST protocol, such as Apache Polaris: the registration of a table there.

Specification: Apache Iceberg, open-api/rest-catalog-open-api.yaml; Apache Polaris, spec/polaris-catalog-apis. How a
registered table is moved to a newer metadata file is the server's choice, and `move` says which:

- `overwrite`: RegisterTableRequest with `overwrite` (Iceberg 1.11; Polaris since 1.6, type INTERNAL). Atomic.
- `notify`: Polaris' notification UPDATE (catalogs of type EXTERNAL, Snowflake's Open Catalog too). Atomic.
- `replace`: drop without purge, then register. Every server can, but **for a moment readers find no table**.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import dagster as dg
import requests
from pydantic import Field, PrivateAttr

from lakehouse.core.errors import (
    CommitConflict,
    ConfigError,
    LakehouseError,
    UnclearState,
    Unreachable,
    without_credentials,
)
from resources.hidden import hidden
from resources.oauth import ClientCredentials

SYSTEM = "The REST catalog"
TIMEOUT_SECONDS = 30
"""To register a table the server reads its metadata file first."""
TOKEN_ENDED = (401, 419)
"""Unauthorized, and what the specification calls AuthenticationTimeout."""


@dataclass(frozen=True)
class Registered:
    """What the catalog shows of a table."""

    metadata_location: str
    table_uuid: str
    snapshot_id: int | None


class Refused(LakehouseError):
    """The catalog answered with an error: its HTTP status."""

    def __init__(self, said: str, status: int):
        """Parameters: the sentence, and the status."""
        super().__init__(said)
        self.status = status


class HalfReplaced(Unreachable):
    """`replace` stopped between its two steps; doing it again ends it."""

    def __init__(self, name: str, where: str, cause: LakehouseError):
        """Parameters: the table, the catalog's address, and what came between."""
        LakehouseError.__init__(
            self,
            f"{name} was dropped from the REST catalog to be registered anew, and that did not end: {cause}",
            "Its files are all there, but readers there may find no table until it is published again",
            "Run it again: the table is registered then",
        )
        self.system, self.where = SYSTEM, without_credentials(where)


class RestCatalog(dg.ConfigurableResource):
    """One catalog of a server. The client is `credential`, as Iceberg writes it, or `client_id` and `client_secret`."""

    uri: str = hidden(description="Address, as `https://host/api/catalog`.")
    warehouse: str = Field(description="Name of the catalog on the server.")
    credential: str | None = hidden(None, "`client id:client secret`.")
    client_id: str | None = Field(None, description="The client's id, in place of `credential`.")
    client_secret: str | None = hidden(None, "Its secret.")
    scope: str = Field("PRINCIPAL_ROLE:ALL", description="OAuth scope; Polaris takes roles, others `catalog`.")
    oauth2_server_uri: str | None = hidden(
        None, "Token endpoint, where it is not the catalog's own `/v1/oauth/tokens`."
    )
    move: Literal["overwrite", "notify", "replace"] = Field(
        "overwrite", description="How a table is moved to newer metadata: see resources/rest_catalog.py."
    )

    _oauth: ClientCredentials | None = PrivateAttr(default=None)
    _prefix: str | None = PrivateAttr(default=None)

    def registered(self, namespace: str, table: str) -> Registered | None:
        """What the catalog shows, or None when it has no such table.

        Raises: LakehouseError when it refuses; Unreachable.
        """
        try:
            found = self._call("GET", f"{_in(namespace)}/tables/{_path(table)}", params={"snapshots": "refs"})
        except Refused as refused:
            if refused.status == 404:
                return None
            raise
        metadata = found["metadata"]
        # Some servers write -1 where there is no snapshot yet.
        snapshot_id = metadata.get("current-snapshot-id")
        return Registered(
            metadata_location=found["metadata-location"],
            table_uuid=metadata["table-uuid"],
            snapshot_id=None if snapshot_id == -1 else snapshot_id,
        )

    def publish(
        self, namespace: str, table: str, *, metadata_location: str, table_uuid: str, expected: Registered | None
    ) -> Registered:
        """Show a metadata file: register the table, or move it there from what is `expected`.

        Whatever `move` says, the server compares nothing: the caller has looked whether `expected` may be replaced.
        Raises: UnclearState when another Iceberg table has the name; CommitConflict when somebody else changed it;
        LakehouseError when the catalog refuses; Unreachable.
        """
        name = f"{namespace}.{table}"
        if expected and expected.table_uuid != table_uuid:
            raise UnclearState(
                f"{SYSTEM} has another Iceberg table {name} (uuid {expected.table_uuid}, not {table_uuid}). It was "
                f"left untouched. Drop it there, without purge, to publish the new one"
            )
        if expected and expected.metadata_location == metadata_location:
            return expected
        try:
            if self.move == "notify":
                self._notify(namespace, table, metadata_location, table_uuid, "UPDATE" if expected else "CREATE")
            elif expected and self.move == "replace":
                self._replace(namespace, table, metadata_location)
            else:
                self._ensure_namespace(namespace)
                self._register(namespace, table, metadata_location, overwrite=expected is not None)
        except Unreachable:
            # The answer was lost, perhaps not the change: the catalog decides.
            now = self.registered(namespace, table)
            if now is None or now.metadata_location != metadata_location:
                raise
            return now
        except Refused as refused:
            if refused.status == 409:
                raise CommitConflict(
                    f"Somebody else changed {name} in the REST catalog meanwhile. It was left as it is; run it again"
                ) from refused
            raise
        now = self.registered(namespace, table)
        if now is None or now.metadata_location != metadata_location:
            raise CommitConflict(f"Somebody else changed {name} in the REST catalog at the same time. Run it again")
        return now

    def _register(self, namespace: str, table: str, metadata_location: str, *, overwrite: bool) -> None:
        request = {"name": table, "metadata-location": metadata_location} | ({"overwrite": True} if overwrite else {})
        try:
            self._call("POST", f"{_in(namespace)}/register", json=request)
        except Refused as refused:
            # A server of before Iceberg 1.11 ignores `overwrite`, and answers 409: the table is there.
            if overwrite and refused.status in (400, 406, 409, 501):
                raise LakehouseError(
                    f"{refused}. This catalog does not move a table by `overwrite`. Set `move: notify` for a Polaris "
                    f"catalog of type EXTERNAL, or `move: replace`, which drops and registers: for a moment readers "
                    f"find no table"
                ) from refused
            raise

    def _replace(self, namespace: str, table: str, metadata_location: str) -> None:
        try:
            self._call("DELETE", f"{_in(namespace)}/tables/{_path(table)}", params={"purgeRequested": "false"})
        except Unreachable as error:
            raise HalfReplaced(f"{namespace}.{table}", self.uri, error) from error
        try:
            self._register(namespace, table, metadata_location, overwrite=False)
        except (Refused, Unreachable) as error:
            raise HalfReplaced(f"{namespace}.{table}", self.uri, error) from error

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
        except Refused as refused:
            if refused.status != 409:
                raise

    def _call(self, method: str, path: str, **request: Any) -> Any:
        """What the catalog answers.

        Raises: Refused with what it said; Unreachable when it does not answer, or with an error of its own.
        """
        if self._prefix is None:
            found = self._send("GET", "v1/config", params={"warehouse": self.warehouse})
            self._prefix = {**found.get("defaults", {}), **found.get("overrides", {})}.get("prefix", "")
        prefix = f"{quote(self._prefix)}/" if self._prefix else ""
        return self._send(method, f"v1/{prefix}{path}", **request)

    def _send(self, method: str, path: str, **request: Any) -> Any:
        check = "`rest_catalog` in lakehouse.yaml, and the network"
        url, oauth, token = f"{self.uri.rstrip('/')}/{path}", self.client(), ""
        try:
            for _ in range(2):
                token = oauth.token(refused=token) if oauth else ""
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                answer = requests.request(method, url, headers=headers, timeout=TIMEOUT_SECONDS, **request)
                if oauth is None or answer.status_code not in TOKEN_ENDED:
                    break
        except requests.RequestException as error:
            raise Unreachable(SYSTEM, self.uri, check, type(error).__name__) from error
        if answer.status_code >= 500 and answer.status_code != 501:
            raise Unreachable(SYSTEM, self.uri, check, f"status {answer.status_code}")
        if not answer.ok:
            raise Refused(
                f"{SYSTEM} at {without_credentials(self.uri)} refused {method} /{path} for warehouse "
                f"'{self.warehouse}' (status {answer.status_code}: {_message(answer)}), and did nothing. Check the "
                f"warehouse's name and the client's roles there",
                answer.status_code,
            )
        return answer.json() if answer.content else {}

    def client(self) -> ClientCredentials | None:
        """The client and its tokens; None for a catalog that asks for none.

        Raises: ConfigError when it has no secret.
        """
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
    """A name as one part of a path."""
    return quote(name, safe="")


def _message(answer: requests.Response) -> str:
    """What the catalog says (IcebergErrorResponse)."""
    try:
        return answer.json()["error"]["message"].partition("\n")[0]
    except (requests.JSONDecodeError, KeyError, TypeError, AttributeError):
        return answer.reason
