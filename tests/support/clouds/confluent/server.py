"""A simulated Confluent Cloud: an HTTP server with state that validates each call by the vendor's OpenAPI documents.

All APIs have the same address, and each API accepts only its own keys. A request or response that violates the
documents gets status 599 and recorded in `violations`, on which the fixture fails the test.
"""

from __future__ import annotations

import base64
import json
import re
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from tests.support.clouds.confluent import clusters as confluent_clusters
from tests.support.clouds.confluent import organization as confluent_organization
from tests.support.clouds.confluent import streams as confluent_streams
from tests.support.clouds.confluent import tableflow as confluent_tableflow
from tests.support.clouds.confluent.contract import find
from tests.support.clouds.confluent.state import Problem, State, new_secret

OWNED_PATHS = ("/iam/v2/service-accounts", "/iam/v2/api-keys")
"""What the owner of a service account may call (Confluent, "Manage API Keys": the role ResourceOwner)."""
VIOLATION = 599
ADMIN = "ADMIN-KEY"
ROUTES = Map(
    [
        rule
        for part in (confluent_organization, confluent_clusters, confluent_streams, confluent_tableflow)
        for rule in part.RULES
    ]
)
LISTS = {
    "environments": "EnvironmentList",
    "service-accounts": "ServiceAccountList",
    "role-bindings": "RoleBindingList",
    "api-keys": "ApiKeyList",
    "clusters": "ClusterList",
    "regions": "RegionList",
    "compute-pools": "ComputePoolList",
    "integrations": "IntegrationList",
    "catalog-integrations": "CatalogIntegrationList",
    "tableflow-topics": "TableflowTopicList",
    "statements": "StatementList",
}
HTML = "<html><head><title>Error {status} {detail}</title></head><body><h2>HTTP ERROR {status}</h2></body></html>"


@dataclass
class Fault:
    """A fault of the `nth` call (from 1) for which the predicate `on` is true, and of the next `times - 1` such calls.

    The connection is closed `before` or `after` the call is executed (`cut`), or the call is not executed and
    gets `response` as (status, headers, body).
    """

    nth: int = 1
    times: int = 1
    on: Callable[[str, str], bool] = lambda method, path: True
    cut: str | None = None
    response: tuple[int, Mapping[str, str], str] | None = None
    matched: int = field(default=0, init=False)

    def strikes(self, method: str, path: str) -> bool:
        """Count a call, and return whether the fault applies to it."""
        if not self.on(method, path):
            return False
        self.matched += 1
        return self.nth <= self.matched < self.nth + self.times


class ControlPlane:
    """All APIs at one address, without a network. `state` holds the resources."""

    def __init__(self, url: str):
        self.url, self.admin_secret = url, new_secret()
        self.state = State(url, (ADMIN, self.admin_secret))

    def respond(self, request: Request) -> Response:
        """Execute a request and return its response.

        Raises:
            HTTPException: There is no such operation.
        """
        path = request.path
        if path.startswith("/registry/"):
            _, _, registry_id, rest = path.split("/", 3)
            path, request.environ["registry_id"] = f"/{rest}", registry_id
        try:
            self._authenticate(request, path)
            endpoint, values = _route(path, request.method)
            result = endpoint(self.state, request, **values)
            status, body = (200, self._page(request, path, result)) if isinstance(result, list) else result
        except Problem as problem:
            return _refusal(problem)
        media_type = "application/vnd.schemaregistry.v1+json" if path.startswith("/subjects") else "application/json"
        return Response(status=status) if body is None else _json(status, body, media_type)

    def _page(self, request: Request, path: str, documents: list[dict]) -> dict:
        size = min(self.state.page_size, int(request.args.get("page_size", 10)))
        start = int(base64.b64decode(request.args.get("page_token", "MA==")))
        next_token = base64.b64encode(str(start + size).encode()).decode()
        query = "".join(f"{k}={v}&" for k, v in request.args.items() if k != "page_token")
        next_page = f"{self.url}{path}?{query}page_token={next_token}" if start + size < len(documents) else ""
        _, group, version, *_, last = path.split("/")
        return {
            "api_version": f"{group}/{version}",
            "kind": LISTS[last],
            "metadata": {"next": next_page} if next_page else {},
            "data": documents[start : start + size],
        }

    def _authenticate(self, request: Request, path: str) -> None:
        """Check the key of a request: each API accepts only keys of the resources that it serves."""
        credentials = request.authorization
        key_id, secret = (credentials.username, credentials.password) if credentials else (None, None)
        shape = "html" if path.startswith("/kafka/") else "errors"
        if path.startswith(("/kafka/", "/subjects", "/sql/", "/tableflow/")):
            key = self.state.keys.get(key_id)
            is_valid = key and self.state.secrets[key_id] == secret and self._is_for(key, request, path)
            if not is_valid or not self.state.spread(key_id):
                raise Problem(401, "Unauthorized", 40101 if path.startswith("/subjects") else "unauthorized", shape)
            request.environ["owner_id"] = key["spec"]["owner"]["id"]
        elif (key_id, secret) != self.state.admin:
            key = self.state.keys.get(key_id)
            is_cloud_key = key and self.state.secrets[key_id] == secret and key["spec"]["resource"]["id"] == "cloud"
            if not is_cloud_key or not self.state.spread(key_id):
                raise Problem(401, "invalid API key: make sure you're using a Cloud API Key", "unauthorized", shape)
            if not path.startswith(OWNED_PATHS):
                # The accounts of tests have no role on anything else.
                raise Problem(403, "Forbidden Access", "forbidden_access")
            request.environ["owner_id"] = key["spec"]["owner"]["id"]

    def _is_for(self, key: dict, request: Request, path: str) -> bool:
        resource, parts = key["spec"]["resource"], path.split("/")
        match parts[1]:
            case "kafka":
                return resource["id"] == parts[4]
            case "subjects":
                return resource["id"] == request.environ.get("registry_id")
            case "sql":
                return resource["kind"] == "Region" and resource["environment"] == parts[6]
        return resource["id"] == "tableflow"


class ConfluentServer(ControlPlane):
    """The server, which runs within a `with` block.

    `calls` are the method and path of all requests, `violations` the deviations of requests and responses from the
    documents, `faults` the faults to inject, and `state` the resources.
    """

    def __init__(self):
        self._http = make_server("127.0.0.1", 0, self, threaded=True, request_handler=_Quiet)
        super().__init__(f"http://127.0.0.1:{self._http.port}")
        self.calls: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.violations: list[str] = []
        self._lock = threading.Lock()

    def __enter__(self) -> ConfluentServer:
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def __call__(self, environ: dict[str, Any], start_response: Callable) -> Any:
        """Respond to a request, as WSGI defines it."""
        request = Request(environ)
        method = request.method
        with self._lock:
            self.calls.append((method, request.path))
            active = [fault for fault in self.faults if fault.strikes(method, request.path)]
            fault = active[0] if active else Fault()
            if fault.response:
                status, headers, body = fault.response
                return Response(body, status, headers)(environ, start_response)
            response = None if fault.cut == "before" else self._checked(request)
        if fault.cut:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return []
        return response(environ, start_response)

    def _checked(self, request: Request) -> Response:
        path = re.sub("^/registry/[^/]+", "", request.path)
        query = request.args.to_dict()
        call = f"{request.method} {path}"
        operation = find(request.method, path, query)
        if operation is None:
            return self._violated([f"{call}: no such operation in the documents"])
        body = json.loads(request.get_data()) if request.get_data() else None
        if faults := operation.request_faults(query, body):
            return self._violated([f"{call}, request: {fault}" for fault in faults])
        try:
            response = self.respond(request)
        except HTTPException as error:
            return self._violated([f"{call}: the stand-in does not have it ({error})"])
        text = response.get_data(as_text=True)
        if faults := operation.response_faults(response.status_code, response.content_type or "", text):
            return self._violated([f"{call}, response: {fault}" for fault in faults])
        return response

    def _violated(self, faults: list[str]) -> Response:
        self.violations += faults
        return _json(VIOLATION, {"errors": [{"status": str(VIOLATION), "detail": fault} for fault in faults]})


@lru_cache(maxsize=1000)
def _route(path: str, method: str) -> tuple[Any, Mapping[str, Any]]:
    return ROUTES.bind("127.0.0.1").match(path, method)


def _json(status: int, body: Any, media_type: str = "application/json") -> Response:
    return Response(json.dumps(body), status, content_type=media_type)


def _refusal(problem: Problem) -> Response:
    match problem.shape:
        case "html":
            text = HTML.format(status=problem.status, detail=problem.detail)
            return Response(text, problem.status, content_type="text/html;charset=utf-8")
        case "error_code":
            return _json(problem.status, {"error_code": problem.code, "message": problem.detail})
        case "connect":
            return _json(problem.status, {"error": {"code": problem.code, "message": problem.detail}})
    error = {"id": "d2f8a68a77ed67adde49967132ad79b8", "status": str(problem.status), "detail": problem.detail}
    return _json(problem.status, {"errors": [error | ({"code": str(problem.code)} if problem.code else {})]})


class _Quiet(WSGIRequestHandler):
    def log(self, *message: object) -> None:
        """Log nothing: tests read `calls`."""
