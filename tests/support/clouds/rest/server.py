"""A REST catalog for tests: Iceberg's test server behind a proxy that adds features of Polaris.

Iceberg's test server (RESTCatalogServer) accepts any secret, has no prefix and cannot overwrite a registered table. The
proxy adds these features after Polaris' sources: IcebergCatalogHandler.registerTable,
LocalIcebergCatalog.overwriteRegisteredTable and sendNotificationForTableLike. It is not Polaris.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import socket
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from lakehouse.local import jars
from lakehouse.local.home import Home
from lakehouse.local.java import class_path, java
from lakehouse.local.processes import process
from lakehouse.local.processes.description import Server, responds
from tests.support.clouds.rest.client import CREDENTIAL
from tests.support.servers.proxy import Proxy, Request, Response

WAREHOUSE = "trades"
SCOPE = "PRINCIPAL_ROLE:ALL"


OF_SIGNATURE = (
    *("authorization", "x-amz-security-token", "x-amz-date", "x-amz-content-sha256", "x-amz-decoded-content-length"),
    *("x-amz-trailer", "x-amz-sdk-checksum-algorithm", "content-encoding", "content-length", "host"),
    *("expect", "connection", "transfer-encoding"),
)
"""Headers of a request to S3 that its signature, or the encoding of its body, depends on."""


class Catalog(Proxy):
    """A proxy in front of the catalog, which lets in one client with bearer tokens.

    `issued_tokens` counts tokens, `refused_requests` the requests with an expired token.
    """

    scope = SCOPE

    def __init__(self, target: str, database: Path):
        super().__init__(target)
        self._database = database
        self.expires_in = 3600
        self.issued_tokens = self.refused_requests = 0
        self._valid: set[str] = set()

    def expire_tokens(self) -> None:
        """Expire all issued tokens."""
        self._valid.clear()

    def issue_token(self) -> str:
        """Return a new token."""
        self.issued_tokens += 1
        token = secrets.token_hex()
        self._valid.add(token)
        return token

    def point(self, namespace: str, table: str, metadata_location: str) -> None:
        """Let a registered table have another metadata file."""
        with closing(sqlite3.connect(self._database, timeout=30)) as database, database:
            database.execute(
                "UPDATE iceberg_tables SET metadata_location = ? WHERE table_namespace = ? AND table_name = ?",
                (metadata_location, namespace, table),
            )

    def register(self, namespace: str, table: str, metadata_location: str) -> None:
        """Register a metadata file as a new table, in place of a client."""
        for path, body in (
            ("namespaces", {"namespace": [namespace]}),
            (f"namespaces/{namespace}/register", {"name": table, "metadata-location": metadata_location}),
        ):
            headers = [("Host", "localhost"), ("Content-Type", "application/json")]
            self._ask(Request("POST", f"/v1/{path}", headers, json.dumps(body).encode()))

    def forward(self, request: Request) -> Response:
        if urlsplit(request.path).path == "/v1/oauth/tokens":
            return self._token(parse_qs(request.body.decode()), _basic(request))
        if header(request, "authorization").removeprefix("Bearer ") not in self._valid:
            self.refused_requests += 1
            return error(401, "NotAuthorizedException", "Not authorized")
        return self.respond(request)

    def respond(self, request: Request) -> Response:
        """Return the response to a request of the client."""
        return self._ask(request)

    def _token(self, form: dict[str, list[str]], basic: str) -> Response:
        in_form = ":".join(*zip(form.get("client_id", [""]), form.get("client_secret", [""]), strict=True))
        if CREDENTIAL not in (in_form, basic):
            return json_response(
                401, {"error": "unauthorized_client", "error_description": "The client is not authorized"}
            )
        if form.get("scope") != [self.scope]:
            return json_response(400, {"error": "invalid_scope", "error_description": "The scope is invalid"})
        issued = {"access_token": self.issue_token(), "token_type": "bearer", "expires_in": self.expires_in}
        return json_response(200, issued)


class TableflowOwn(Catalog):
    """Tableflow's own catalog: read-only, and with `vended` credentials for the files of each table.

    Reference: Confluent, "Storage with Tableflow" and "Query Iceberg Tables with Trino and Tableflow".
    """

    scope = "catalog"

    def __init__(self, target: str, database: Path):
        super().__init__(target, database)
        self.vended = {
            "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
            "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        }

    def respond(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return error(403, "ForbiddenException", "Tableflow's tables are read-only")
        # Compressed responses cannot be changed.
        headers = [(name, value) for name, value in request.headers if name.lower() != "accept-encoding"]
        status, headers, body = self._ask(replace(request, headers=headers))
        if status != 200 or not re.fullmatch(r"/v1/namespaces/[^/]+/tables/[^/]+", urlsplit(request.path).path):
            return status, headers, body
        if header(request, "x-iceberg-access-delegation") != "vended-credentials":
            return error(400, "BadRequestException", "This client does not ask for credentials")
        storage = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"], "s3.path-style-access": "true"}
        return json_response(200, json.loads(body) | {"config": storage | self.vended})


class Polaris(Catalog):
    """The proxy. `kind` is the type of its catalog; `knows_overwrite` is false before Polaris 1.6."""

    def __init__(self, target: str, database: Path):
        super().__init__(target, database)
        self.kind, self.knows_overwrite = "INTERNAL", True
        self._notified: dict[tuple[str, str], int] = {}

    def respond(self, request: Request) -> Response:
        url = urlsplit(request.path)
        if url.path == "/v1/config":
            if parse_qs(url.query).get("warehouse") != [WAREHOUSE]:
                return error(404, "NotFoundException", f"Unable to find warehouse {url.query}")
            return json_response(200, {"defaults": {}, "overrides": {"prefix": WAREHOUSE}})
        match = re.fullmatch(rf"/v1/{WAREHOUSE}(/tables/rename|/namespaces(?:/([^/]+)(/.*)?)?)", url.path)
        if match is None:
            return error(404, "NotFoundException", f"no such path {url.path}")
        namespace, rest, body = unquote(match[2] or ""), match[3] or "", request.body
        if "\x1f" in namespace:
            # The test server's Jetty refuses this separator of nested namespaces, of which there are none.
            return error(404, "NoSuchTableException", f"Table does not exist: {namespace}{rest}")
        if rest == "/register" and json.loads(body).get("overwrite"):
            return self._overwrite(namespace, json.loads(body))
        if rest.endswith("/notifications"):
            return self._notify(namespace, json.loads(body))
        path = f"/v1{match[1]}{'?' + url.query if url.query else ''}"
        return self._ask(replace(request, path=path))

    def _overwrite(self, namespace: str, body: dict[str, str]) -> Response:
        if not self.knows_overwrite:
            return error(409, "AlreadyExistsException", f"Iceberg table already exists: {namespace}.{body['name']}")
        if self.kind == "EXTERNAL":
            message = "Register table overwrite is only supported for internal Polaris catalogs"
            return error(400, "BadRequestException", message)
        self.point(namespace, body["name"], body["metadata-location"])
        return json_response(200, {"metadata-location": body["metadata-location"], "metadata": {}})

    def _notify(self, namespace: str, notification: dict) -> Response:
        if self.kind != "EXTERNAL":
            return error(400, "BadRequestException", "Cannot send notifications to an internal catalog")
        payload = notification["payload"]
        name = payload["table-name"]
        if payload["timestamp"] <= self._notified.get((namespace, name), 0):
            return error(409, "AlreadyExistsException", "A notification with a newer timestamp has been admitted")
        self._notified[namespace, name] = payload["timestamp"]
        if notification["notification-type"] == "UPDATE":
            self.point(namespace, name, payload["metadata-location"])
        else:
            self.register(namespace, name, payload["metadata-location"])
        return 204, [], b""


class Vending(Polaris):
    """A catalog that issues short-lived credentials for the files of each table, which `storage` enforces.

    References: Apache Iceberg, open-api/rest-catalog-open-api.yaml (LoadTableResult, loadCredentials) and
    VendedCredentialsProvider.
    """

    def __init__(self, target: str, database: Path):
        super().__init__(target, database)
        self.storage = VendedStorage()
        self.lifetime = 900.0
        """Seconds until new credentials expire."""
        self.renewals = 0
        """The number of requests for new credentials of a table, without the table."""

    def __exit__(self, *error: object) -> None:
        self.storage.__exit__(*error)
        super().__exit__(*error)

    def respond(self, request: Request) -> Response:
        path = urlsplit(request.path).path
        if header(request, "x-iceberg-access-delegation") != "vended-credentials":
            return error(400, "BadRequestException", "This client does not ask for credentials")
        if path.endswith("/credentials"):
            self.renewals += 1
            issued = self.storage.issue(self.lifetime)
            return json_response(200, {"storage-credentials": [{"prefix": "s3://", "config": issued}]})
        # Compressed responses cannot be changed.
        headers = [(name, value) for name, value in request.headers if name.lower() != "accept-encoding"]
        status, headers, body = super().respond(replace(request, headers=headers))
        table = re.fullmatch(rf"/(v1/{WAREHOUSE}/namespaces/[^/]+/tables)(/[^/]+)?", path)
        loaded = json.loads(body) if table and status == 200 and request.method in ("GET", "POST") else {}
        if "metadata" not in loaded:
            return status, headers, body
        name = table[2] or f"/{json.loads(request.body)['name']}"
        config = {
            "s3.endpoint": self.storage.address,
            "s3.path-style-access": "true",
            "client.refresh-credentials-endpoint": f"{table[1]}{name}/credentials",
            **self.storage.issue(self.lifetime),
        }
        return json_response(200, loaded | {"config": config})


class VendedStorage(Proxy):
    """S3 that accepts only the credentials that a catalog issued, until they expire."""

    def __init__(self):
        super().__init__(os.environ["AWS_ENDPOINT_URL_S3"])
        self._expiry: dict[str, float] = {}
        self.tokens: set[str] = set()
        """The credentials that were used."""
        self.refusals: list[str] = []
        """The refused requests."""

    def issue(self, seconds: float) -> dict[str, str]:
        """Return new credentials, as properties of Iceberg's clients."""
        token, expiry = f"vended-{secrets.token_hex()}", time.time() + seconds
        self._expiry[token] = expiry
        return {
            "s3.access-key-id": f"id-of-{token}",
            "s3.secret-access-key": f"key-of-{token}",
            "s3.session-token": token,
            "s3.session-token-expires-at-ms": str(int(expiry * 1000)),
        }

    def forward(self, request: Request) -> Response:
        token = header(request, "x-amz-security-token")
        if time.time() > self._expiry.get(token, 0):
            self.refusals.append(f"{request.method} {request.path} with {token[:12] or 'no token'}")
            body = b"<?xml version='1.0'?><Error><Code>ExpiredToken</Code><Message>expired</Message></Error>"
            return 403, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))], body
        self.tokens.add(token)
        return super().forward(self._signed_again(request))

    def _signed_again(self, request: Request) -> Request:
        """Return a request with the signature of the server's own keys, since that server knows no others."""
        headers = {name.lower(): value for name, value in request.headers}
        body = _unchunked(request.body) if "STREAMING" in headers.get("x-amz-content-sha256", "") else request.body
        kept = {name: value for name, value in headers.items() if name not in OF_SIGNATURE}
        if encoding := headers.get("content-encoding", "").replace("aws-chunked", "").strip(","):
            kept["content-encoding"] = encoding
        signed = AWSRequest(request.method, f"http://{self._host}{request.path}", kept | {"host": self._host}, body)
        keys = Credentials(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
        S3SigV4Auth(keys, "s3", os.environ["AWS_REGION"]).add_auth(signed)
        return replace(request, headers=list(signed.headers.items()), body=body)


def _unchunked(body: bytes) -> bytes:
    """Return the content of a body in S3's encoding of signed chunks."""
    content = b""
    while True:
        line, _, body = body.partition(b"\r\n")
        if not (size := int(line.partition(b";")[0], 16)):
            return content
        content, body = content + body[:size], body[size + 2 :]


def _basic(request: Request) -> str:
    """Return id and secret of a client that logs in by HTTP Basic, as RFC 6749, section 2.3.1, also allows."""
    login = header(request, "authorization")
    return base64.b64decode(login.removeprefix("Basic ")).decode() if login.startswith("Basic ") else ""


def header(request: Request, name: str) -> str:
    """Return a header of a request, or an empty text."""
    return next((value for key, value in request.headers if key.lower() == name), "")


def json_response(status: int, body: object) -> Response:
    content = json.dumps(body).encode()
    return status, [("Content-Type", "application/json"), ("Content-Length", str(len(content)))], content


def error(status: int, kind: str, message: str) -> Response:
    return json_response(status, {"error": {"message": message, "type": kind, "code": status}})


@pytest.fixture(scope="session")
def rest_server(stack, tmp_path_factory):
    """The address and database of the test server, whose data files are in the storage of the stack."""
    home = Home(tmp_path_factory.mktemp("rest") / "home")
    database = home.folder("rest") / "catalog.db"
    lock = Path(__file__).with_name("server.lock")
    jars.fetch(["rest"], lock=lock)
    libraries = class_path(jars.paths("rest", lock))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    server = Server(
        name="rest",
        command=java("-cp", libraries, "org.apache.iceberg.rest.RESTCatalogServer", heap="256m"),
        folder=home.folder("rest"),
        address=address,
        ready=lambda: responds(f"{address}/v1/config"),
        env={
            "REST_PORT": str(port),
            "CATALOG_REST_PORT": str(port),
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "CATALOG_URI": f"jdbc:sqlite:{database}",
            "CATALOG_WAREHOUSE": os.environ["ICEBERG_WAREHOUSE"],
            "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
            "CATALOG_S3_ENDPOINT": os.environ["AWS_ENDPOINT_URL_S3"],
            "CATALOG_S3_PATH__STYLE__ACCESS": "true",
            **{name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")},
        },
        ports={"rest": port},
    )
    try:
        running = process.start(server, home)
        process.wait_until_ready(server, running.leader, home, threading.Event())
        yield address, database
    finally:
        process.stop(home, "rest")


@pytest.fixture
def polaris(rest_server):
    """A proxy for one test in front of the shared server."""
    with Polaris(*rest_server) as proxy:
        yield proxy


@pytest.fixture
def tableflow_own(rest_server):
    """Tableflow's own catalog for one test in front of the shared server."""
    with TableflowOwn(*rest_server) as proxy:
        yield proxy
