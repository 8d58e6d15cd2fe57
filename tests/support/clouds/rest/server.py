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
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from lakehouse.local import jars
from lakehouse.local.home import Home
from lakehouse.local.java import class_path, java
from lakehouse.local.processes import probe, process
from lakehouse.local.processes.process import Server
from tests.support.servers.proxy import Answer, Proxy, Request

WAREHOUSE = "trades"
CLIENT_ID, SECRET = "reader", "s3cret-of-the-client"
SCOPE = "PRINCIPAL_ROLE:ALL"


class Polaris(Proxy):
    """The proxy. `kind` is the type of its catalog; `knows_overwrite` is false before Polaris 1.6.

    `issued_tokens` counts tokens, `refused_requests` the requests with an expired token.
    """

    def __init__(self, target: str, database: Path):
        super().__init__(target)
        self._database = database
        self.kind, self.knows_overwrite = "INTERNAL", True
        self.expires_in = 3600
        self.issued_tokens = self.refused_requests = 0
        self._valid: set[str] = set()
        self._notified: dict[tuple[str, str], int] = {}

    def expire_tokens(self) -> None:
        """Expire all issued tokens."""
        self._valid.clear()

    def forward(self, request: Request) -> Answer:
        url = urlsplit(request.path)
        if url.path == "/v1/oauth/tokens":
            return self._token(parse_qs(request.body.decode()), _basic(request))
        token = next((value for name, value in request.headers if name.lower() == "authorization"), "")
        if token.removeprefix("Bearer ") not in self._valid:
            self.refused_requests += 1
            return error(401, "NotAuthorizedException", "Not authorized")
        if url.path == "/v1/config":
            if parse_qs(url.query).get("warehouse") != [WAREHOUSE]:
                return error(404, "NotFoundException", f"Unable to find warehouse {url.query}")
            return answered(200, {"defaults": {}, "overrides": {"prefix": WAREHOUSE}})
        match = re.fullmatch(rf"/v1/{WAREHOUSE}(/namespaces(?:/([^/]+)(/.*)?)?)", url.path)
        if match is None:
            return error(404, "NotFoundException", f"no such path {url.path}")
        namespace, rest, body = unquote(match[2] or ""), match[3] or "", request.body
        if rest == "/register" and json.loads(body).get("overwrite"):
            return self._overwrite(namespace, json.loads(body))
        if rest.endswith("/notifications"):
            return self._notify(namespace, json.loads(body))
        path = f"/v1{match[1]}{'?' + url.query if url.query else ''}"
        return self._ask(replace(request, path=path))

    def _token(self, form: dict[str, list[str]], basic: str) -> Answer:
        in_form = ":".join(*zip(form.get("client_id", [""]), form.get("client_secret", [""]), strict=True))
        if f"{CLIENT_ID}:{SECRET}" not in (in_form, basic):
            return answered(401, {"error": "unauthorized_client", "error_description": "The client is not authorized"})
        if form.get("scope") != [SCOPE]:
            return answered(400, {"error": "invalid_scope", "error_description": "The scope is invalid"})
        self.issued_tokens += 1
        token = secrets.token_hex()
        self._valid.add(token)
        return answered(200, {"access_token": token, "token_type": "bearer", "expires_in": self.expires_in})

    def _overwrite(self, namespace: str, body: dict[str, str]) -> Answer:
        if not self.knows_overwrite:
            return error(409, "AlreadyExistsException", f"Iceberg table already exists: {namespace}.{body['name']}")
        if self.kind == "EXTERNAL":
            message = "Register table overwrite is only supported for internal Polaris catalogs"
            return error(400, "BadRequestException", message)
        self._point(namespace, body["name"], body["metadata-location"])
        return answered(200, {"metadata-location": body["metadata-location"], "metadata": {}})

    def _notify(self, namespace: str, notification: dict) -> Answer:
        if self.kind != "EXTERNAL":
            return error(400, "BadRequestException", "Cannot send notifications to an internal catalog")
        payload = notification["payload"]
        name = payload["table-name"]
        if payload["timestamp"] <= self._notified.get((namespace, name), 0):
            return error(409, "AlreadyExistsException", "A notification with a newer timestamp has been admitted")
        self._notified[namespace, name] = payload["timestamp"]
        if notification["notification-type"] == "UPDATE":
            self._point(namespace, name, payload["metadata-location"])
        else:
            for path, body in (
                ("namespaces", {"namespace": [namespace]}),
                (f"namespaces/{namespace}/register", {"name": name, "metadata-location": payload["metadata-location"]}),
            ):
                headers = [("Host", "localhost"), ("Content-Type", "application/json")]
                self._ask(Request("POST", f"/v1/{path}", headers, json.dumps(body).encode()))
        return 204, [], b""

    def _point(self, namespace: str, name: str, metadata_location: str) -> None:
        with closing(sqlite3.connect(self._database, timeout=30)) as database, database:
            database.execute(
                "UPDATE iceberg_tables SET metadata_location = ? WHERE table_namespace = ? AND table_name = ?",
                (metadata_location, namespace, name),
            )


def _basic(request: Request) -> str:
    """Return id and secret of a client that logs in by HTTP Basic, as RFC 6749, section 2.3.1, also allows."""
    header = next((value for name, value in request.headers if name.lower() == "authorization"), "")
    return base64.b64decode(header.removeprefix("Basic ")).decode() if header.startswith("Basic ") else ""


def answered(status: int, body: object) -> Answer:
    content = json.dumps(body).encode()
    return status, [("Content-Type", "application/json"), ("Content-Length", str(len(content)))], content


def error(status: int, kind: str, message: str) -> Answer:
    return answered(status, {"error": {"message": message, "type": kind, "code": status}})


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
        ready=lambda: probe.answers(f"{address}/v1/config"),
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
        process.stop("rest", home)


@pytest.fixture
def polaris(rest_server):
    """A proxy for one test in front of the shared server."""
    with Polaris(*rest_server) as proxy:
        yield proxy
