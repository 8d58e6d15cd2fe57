"""Transports of the three clouds and of a REST catalog that fail from a chosen request on.

A refusal quotes the request, as proxies and servers may do. A malformed response is a truncated one.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import requests
from botocore.awsrequest import AWSResponse, HeadersDict
from snowflake.connector.vendored import requests as snowflake_requests

from tests.support.clouds.aws.world import Raw

KINDS = ("403", "500", "time-out", "malformed")


@dataclass
class Failing:
    """A failure of the requests of this thread; nothing fails while `kind` is empty."""

    kind: str = ""
    first: int = 1
    """Number of the first request that fails, among all requests or, with `changing`, among the changing ones."""
    changing: bool = False
    seen: int = 0
    milliseconds: int = 0
    """The clock of Snowflake's connector, which each failure advances by an hour, so that it does not retry."""

    @property
    def struck(self) -> bool:
        return self.seen >= self.first

    def begin(self, kind: str, *, changing: bool = False, first: int = 1) -> None:
        self.kind, self.changing, self.first, self.seen = kind, changing, first, 0

    def end(self) -> None:
        self.kind = ""

    def through(
        self, send: Callable, is_change: Callable[[Any], bool], respond: Callable, lost: Callable, cut: Callable
    ) -> Callable[..., Any]:
        thread = threading.current_thread()

        def instead(session: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            fails = self.kind and threading.current_thread() is thread and (is_change(request) or not self.changing)
            self.seen += bool(fails)
            if not fails or not self.struck:
                return send(session, request, *args, **kwargs)
            self.milliseconds += 3_600_000
            match self.kind:
                case "time-out":
                    raise lost(request)
                case "malformed":
                    return cut(send(session, request, *args, **kwargs))
            return respond(request, int(self.kind))

        return instead


def text_of(request: Any) -> str:
    body = request.body or b""
    if isinstance(body, str):
        return body
    body = body.read() if hasattr(body, "read") else body
    return (gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body).decode(errors="replace")


def quoted(request: Any) -> str:
    """Return an error text that quotes the body and credentials of a request."""
    scheme, _, encoded = str(request.headers.get("Authorization", "")).partition(" ")
    credentials = base64.b64decode(encoded).decode() if scheme == "Basic" else ""
    return f"no: {credentials} {text_of(request)}"


def response_of(kind: type, request: Any, status: int, body: str) -> Any:
    response = kind()
    response.status_code, response.raw, response.url, response.request = (
        status,
        io.BytesIO(body.encode()),
        request.url,
        request,
    )
    response.headers["Content-Type"] = "application/json"
    return response


def http_response(request: Any, status: int) -> requests.Response:
    error = {"status": str(status), "detail": quoted(request)}
    return response_of(requests.Response, request, status, json.dumps({"errors": [error]}))


def http_cut(response: Any) -> Any:
    response._content = response.content[: len(response.content) * 3 // 4] or b"{"
    return response


def aws_response(request: Any, status: int) -> AWSResponse:
    is_json = request.headers.get("X-Amz-Target") is not None
    code = "AccessDeniedException" if status == 403 else "InternalFailure"
    body = (
        json.dumps({"__type": code, "message": "not you"})
        if is_json
        else f"<ErrorResponse><Error><Code>{code}</Code><Message>not you</Message></Error></ErrorResponse>"
    )
    return AWSResponse(request.url, status, HeadersDict(), Raw(body.encode()))


def aws_cut(response: AWSResponse) -> AWSResponse:
    content = response.content[: len(response.content) * 3 // 4]
    return AWSResponse(response.url, response.status_code, response.headers, Raw(content))


def snowflake_response(request: Any, status: int) -> Any:
    if status == 500:
        return response_of(snowflake_requests.Response, request, status, "")
    statement = json.loads(text_of(request) or "{}").get("sqlText", "the login")
    refused = {"success": False, "code": "003001", "message": f"SQL access control error: {statement}", "data": {}}
    return response_of(snowflake_requests.Response, request, 200, json.dumps(refused))


def aws_changes(request: Any) -> bool:
    called = str(request.headers.get("X-Amz-Target", "")).rpartition(".")[2] or text_of(request)
    reads = ("Get", "List", "Describe", "Action=Get", "Action=List")
    return not called.startswith(reads) and not (request.method in ("GET", "HEAD") and not called)
