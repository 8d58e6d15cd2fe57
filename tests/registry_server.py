"""A schema registry over HTTP that counts what it is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from loopback_server import LoopbackServer

ID = re.compile(r"/schemas/ids/(\d+)")
SUBJECTS = re.compile(r"/schemas/ids/(\d+)/subjects")
VERSION = re.compile(r"/subjects/([^/]+)/versions/(\d+|latest)")
VERSIONS = re.compile(r"/subjects/([^/]+)/versions")


class RegistryServer(LoopbackServer):
    """Answers as Confluent's registry does (its API reference), from what `add` was given.

    `requests` are the paths that were asked for; `status` makes every answer that error; `after` is called with a path
    after its answer was composed. `deleted` are subjects that had a schema by its id, which are told where asked for.
    """

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.requests: list[str] = []
        self.status = 200
        self.after: Callable[[str], None] = lambda path: None
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.deleted: dict[int, list[str]] = {}

    @property
    def asked_ids(self) -> list[int]:
        return [int(found.group(1)) for path in self.requests if (found := ID.fullmatch(path))]

    def add(
        self, id_: int, schema: str, subject: str = "", type_: str = "AVRO", references: dict[str, str] | None = None
    ) -> int:
        """Register a schema. `references` are subjects, of which the first version is meant, by name."""
        of = [{"name": name, "subject": other, "version": 1} for name, other in (references or {}).items()]
        self.schemas[id_] = {"schema": schema, "schemaType": type_, "references": of}
        self.subjects.setdefault(subject or f"elsewhere-{id_}", []).append(id_)
        return id_

    def answer(self, path: str) -> Any:
        """The body of an answer; None where nothing is found."""
        if found := ID.fullmatch(path):
            return self.schemas.get(int(found.group(1)))
        if found := SUBJECTS.fullmatch(path):
            id_ = int(found.group(1))
            return [name for name, ids in self.subjects.items() if id_ in ids] + self.deleted.get(id_, []) or None
        if found := VERSION.fullmatch(path):
            ids = self.subjects.get(unquote(found.group(1)), [])
            version = len(ids) if found.group(2) == "latest" else int(found.group(2))
            if not 0 < version <= len(ids):
                return None
            id_ = ids[version - 1]
            return {"subject": unquote(found.group(1)), "version": version, "id": id_, **self.schemas[id_]}
        if found := VERSIONS.fullmatch(path):
            ids = self.subjects.get(unquote(found.group(1)), [])
            return list(range(1, len(ids) + 1)) or None
        return None


class _Handler(BaseHTTPRequestHandler):
    server: RegistryServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.server.requests.append(path)
        answer = self.server.answer(path)
        self.server.after(path)
        status = 404 if answer is None and self.server.status == 200 else self.server.status
        if status != 200:
            answer = {"error_code": status * 100 + 3, "message": "as the test asked"}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""
