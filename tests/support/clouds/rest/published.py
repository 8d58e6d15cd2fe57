"""Comparison of requests to a REST catalog with the OpenAPI documents that catalogs publish.

The documents are no part of this repository: published.lock has their hashes. compared.json has the shapes of all
requests that were compared with them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest

from tests.support.clouds.openapi import FORM, Document, Operation
from tests.support.clouds.rest.server import WAREHOUSE, Vending
from tests.support.servers.proxy import Request, Response

FOLDER = "REST_CATALOG_DOCUMENTS"
"""The environment variable with the folder of the documents, each as `<name>.yaml`."""
COMPARED = Path(__file__).with_name("compared.json")
LOCK = Path(__file__).with_name("published.lock")
NAMES = [line.split()[0] for line in LOCK.read_text().splitlines() if not line.startswith("#")]

OPEN_MAPS = ("properties", "summary", "updates", "overrides", "metrics", "metadata")
"""Names of objects whose keys are chosen by clients."""


class Recorded(Vending):
    """A catalog that records the requests of its clients."""

    def __init__(self, target: str, database: Path):
        super().__init__(target, database)
        self.requests: list[Request] = []

    def forward(self, request: Request) -> Response:
        self.requests.append(request)
        return super().forward(request)


def document(name: str) -> Document:
    """Return a published document, or skip the test if its folder is not declared."""
    folder = os.environ.get(FOLDER)
    if not folder:
        pytest.skip(f"{FOLDER} is not set: no folder with the documents of {LOCK.name}")
    text = (Path(folder) / f"{name}.yaml").read_text()
    [digest] = [line.split()[1] for line in LOCK.read_text().splitlines() if line.startswith(f"{name} ")]
    assert hashlib.sha256(text.encode()).hexdigest() == digest, f"{name}.yaml is not the document of {LOCK.name}"
    return _with_exceptions(Document(text))


def _with_exceptions(published: Document) -> Document:
    """Apply what a document says in words only, and the deviations of clients that its server accepts."""
    schemas, paths = published.content["components"]["schemas"], published.content["paths"]
    # The kinds of a requirement are in the discriminator, which JSON Schema ignores.
    kinds = schemas["TableRequirement"]["discriminator"]["mapping"].values()
    schemas["CommitTableRequest"]["properties"]["requirements"]["items"] = {"oneOf": [{"$ref": ref} for ref in kinds]}
    # `nullable` is a keyword of OpenAPI 3.0: null requires that the ref does not exist.
    schemas["AssertRefSnapshotId"]["properties"]["snapshot-id"]["type"] = ["integer", "null"]
    # The alternatives of a filter overlap, so that none is the only one. Newer clients write `true` for all rows.
    schemas["ScanReport"]["properties"]["filter"] = {}
    # pyiceberg writes `True`: Lakekeeper and the framework of Polaris (JAX-RS) ignore the case.
    for parameter in paths["/v1/{prefix}/namespaces/{namespace}/tables/{table}"]["delete"]["parameters"]:
        if parameter.get("name") == "purgeRequested":
            parameter["schema"] = {"enum": ["True", True]}
    return published


def faults(published: Document, request: Request) -> list[str]:
    """Return the faults of a request according to a document."""
    url = urlsplit(request.path)
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    call = f"{request.method} {_template(url.path)}"
    operation = Operation.of(published, request.method, url.path, query)
    if operation is None:
        return [f"{call}: no such operation"]
    body = body_of(request)
    if media_type_of(request) == FORM:
        return [f"{call}: {fault}" for fault in operation.request_faults(query, body, FORM)]
    return [f"{call}: {fault}" for fault in operation.request_faults(query, body)]


def shapes(request: Request) -> Iterator[str]:
    """Yield the shape of a request: its method, path, parameters, and each field of its body with the JSON type."""
    url = urlsplit(request.path)
    call = f"{request.method} {_template(url.path)}"
    yield call
    yield from (f"{call} ?{name}" for name in parse_qs(url.query, keep_blank_values=True))
    yield from (f"{call} {field}" for field in _fields(body_of(request), ""))


def body_of(request: Request) -> Any:
    """Return the body of a request as JSON, or the fields of a form; None if it has none."""
    if media_type_of(request) == FORM:
        return dict(parse_qsl(request.body.decode()))
    return json.loads(request.body) if request.body else None


def media_type_of(request: Request) -> str:
    """Return the media type of a request's body."""
    types = [value for name, value in request.headers if name.lower() == "content-type"]
    return types[0].partition(";")[0] if types and request.body else ""


def _template(path: str) -> str:
    """Return a path with placeholders as in the documents."""
    path = path.replace(f"/v1/{WAREHOUSE}/", "/v1/{prefix}/")
    path = re.sub(r"/namespaces/[^/]+", "/namespaces/{namespace}", path)
    return re.sub(r"/tables/(?!rename)[^/]+", "/tables/{table}", path)


def _fields(value: Any, at: str) -> Iterator[str]:
    name = at.rpartition("/")[2]
    if isinstance(value, dict) and name != "filter":
        kind = value.get("action") or (value.get("type") if name == "requirements[]" else "")
        for key, inner in value.items():
            yield from _fields(inner, f"{at}{f'<{kind}>' if kind else ''}/{'*' if name in OPEN_MAPS else key}")
    elif isinstance(value, list):
        for inner in value:
            yield from _fields(inner, f"{at}[]")
    elif at or value is not None:
        yield f"{at}: {type(value).__name__}"
