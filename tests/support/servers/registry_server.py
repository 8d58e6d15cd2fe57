"""A schema registry over HTTP that records its requests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.servers.loopback_server import LoopbackServer

ID = re.compile(r"/schemas/ids/(\d+)")
GUID = re.compile(r"/schemas/guids/([0-9a-f-]+)/ids")
SUBJECTS = re.compile(r"/schemas/ids/(\d+)/subjects")
VERSION = re.compile(r"/subjects/([^/]+)/versions/(\d+|latest)")
VERSIONS = re.compile(r"/subjects/([^/]+)/versions")


class RegistryServer(LoopbackServer):
    """A registry with the API of Confluent's registry (its API reference) and the schemas of `add`.

    `requests` are the requested paths. A `status` other than 200 is the status of every response. `after` is called
    with a path after its response was composed. `guids` are ids by GUID, which only registries know that are newer than
    `knows_guids`. `deleted` are deleted subjects by schema id, which are listed with the
    existing ones.
    """

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.requests: list[str] = []
        self.status = 200
        self.after: Callable[[str], None] = lambda path: None
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.deleted: dict[int, list[str]] = {}
        self.guids: dict[str, int] = {}
        self.knows_guids = True

    @property
    def asked_ids(self) -> list[int]:
        return [int(match.group(1)) for path in self.requests if (match := ID.fullmatch(path))]

    def add(
        self, id_: int, schema: str, subject: str = "", type_: str = "AVRO", references: dict[str, str] | None = None
    ) -> int:
        """Register a schema. `references` are subjects by name, and refer to their first version."""
        reference_list = [{"name": name, "subject": other, "version": 1} for name, other in (references or {}).items()]
        self.schemas[id_] = {"schema": schema, "schemaType": type_, "references": reference_list}
        self.subjects.setdefault(subject or f"elsewhere-{id_}", []).append(id_)
        return id_

    def _guid(self, id_: int) -> dict[str, str]:
        guid = next((guid for guid, other in self.guids.items() if other == id_), None)
        return {"guid": guid} if guid and self.knows_guids else {}

    def respond(self, path: str) -> Any:
        """Return the body of a response, or None if the path does not exist."""
        if match := ID.fullmatch(path):
            return self.schemas.get(int(match.group(1)))
        if self.knows_guids and (match := GUID.fullmatch(path)):
            id_ = self.guids.get(match.group(1))
            return [{"context": ".", "id": id_}] if id_ else None
        if match := SUBJECTS.fullmatch(path):
            id_ = int(match.group(1))
            return [name for name, ids in self.subjects.items() if id_ in ids] + self.deleted.get(id_, []) or None
        if match := VERSION.fullmatch(path):
            ids = self.subjects.get(unquote(match.group(1)), [])
            version = len(ids) if match.group(2) == "latest" else int(match.group(2))
            if not 0 < version <= len(ids):
                return None
            id_ = ids[version - 1]
            return {
                "subject": unquote(match.group(1)),
                "version": version,
                "id": id_,
                **self.schemas[id_],
                **self._guid(id_),
            }
        if match := VERSIONS.fullmatch(path):
            ids = self.subjects.get(unquote(match.group(1)), [])
            return list(range(1, len(ids) + 1)) or None
        return None


class _Handler(BaseHTTPRequestHandler):
    server: RegistryServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.server.requests.append(path)
        response = self.server.respond(path)
        self.server.after(path)
        status = 404 if response is None and self.server.status == 200 else self.server.status
        if status != 200:
            paths = [ID, SUBJECTS, VERSION, VERSIONS, *([GUID] if self.server.knows_guids else [])]
            is_unknown_path = not any(known.fullmatch(path) for known in paths)
            response = {"error_code": 404 if is_unknown_path else status * 100 + 3, "message": "as the test asked"}
        body = json.dumps(response).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""
