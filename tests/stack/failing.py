"""The transports of all three clouds, and of a REST catalog, which fail from a chosen request on.

What is refused quotes the request, as proxies and servers may; what is malformed is the right answer cut off.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import botocore.endpoint
import botocore.httpsession
import pytest
import requests
from aws_world import Raw
from botocore.awsrequest import AWSResponse, HeadersDict
from botocore.exceptions import ReadTimeoutError
from snowflake.connector import time_util
from snowflake.connector.vendored import requests as snowflake_requests
from snowflake_deployments import change

from lakehouse.core.polling import REAL
from resources.confluent.plane import Plane

KINDS = ("403", "500", "time-out", "malformed")


@dataclass
class Failing:
    """Nothing fails while `kind` is empty. The requests of this thread are what is looked at."""

    kind: str = ""
    first: int = 1
    """The n-th request, or with `changing` the n-th that changes something, fails, and all such after it."""
    changing: bool = False
    seen: int = 0
    milliseconds: int = 0
    """What Snowflake's connector takes for the time: far on after each failure, so that it does not try again."""

    @property
    def struck(self) -> bool:
        return self.seen >= self.first

    def begin(self, kind: str, *, changing: bool = False, first: int = 1) -> None:
        self.kind, self.changing, self.first, self.seen = kind, changing, first, 0

    def end(self) -> None:
        self.kind = ""

    def through(
        self, send: Callable, is_change: Callable[[Any], bool], answered: Callable, lost: Callable, cut: Callable
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
            return answered(request, int(self.kind))

        return instead


def text_of(request: Any) -> str:
    body = request.body or b""
    if isinstance(body, str):
        return body
    body = body.read() if hasattr(body, "read") else body
    return (gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body).decode(errors="replace")


def quoted(request: Any) -> str:
    """What a server may quote: the body, and who asked."""
    scheme, _, given = str(request.headers.get("Authorization", "")).partition(" ")
    who = base64.b64decode(given).decode() if scheme == "Basic" else ""
    return f"no: {who} {text_of(request)}"


def response(kind: type, request: Any, status: int, body: str) -> Any:
    answer = kind()
    answer.status_code, answer.raw, answer.url, answer.request = status, io.BytesIO(body.encode()), request.url, request
    answer.headers["Content-Type"] = "application/json"
    return answer


def http_answer(request: Any, status: int) -> requests.Response:
    error = {"status": str(status), "detail": quoted(request)}
    return response(requests.Response, request, status, json.dumps({"errors": [error]}))


def http_cut(answer: Any) -> Any:
    answer._content = answer.content[: len(answer.content) * 3 // 4] or b"{"
    return answer


def aws_answer(request: Any, status: int) -> AWSResponse:
    is_json = request.headers.get("X-Amz-Target") is not None
    code = "AccessDeniedException" if status == 403 else "InternalFailure"
    body = (
        json.dumps({"__type": code, "message": "not you"})
        if is_json
        else f"<ErrorResponse><Error><Code>{code}</Code><Message>not you</Message></Error></ErrorResponse>"
    )
    return AWSResponse(request.url, status, HeadersDict(), Raw(body.encode()))


def aws_cut(answer: AWSResponse) -> AWSResponse:
    content = answer.content[: len(answer.content) * 3 // 4]
    return AWSResponse(answer.url, answer.status_code, answer.headers, Raw(content))


def snowflake_answer(request: Any, status: int) -> Any:
    if status == 500:
        return response(snowflake_requests.Response, request, status, "")
    statement = json.loads(text_of(request) or "{}").get("sqlText", "the login")
    refused = {"success": False, "code": "003001", "message": f"SQL access control error: {statement}", "data": {}}
    return response(snowflake_requests.Response, request, 200, json.dumps(refused))


def aws_changes(request: Any) -> bool:
    called = str(request.headers.get("X-Amz-Target", "")).rpartition(".")[2] or text_of(request)
    reads = ("Get", "List", "Describe", "Action=Get", "Action=List")
    return not called.startswith(reads) and not (request.method in ("GET", "HEAD") and not called)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    it = Failing()
    http, aws, snowflake = requests.Session, botocore.httpsession.URLLib3Session, snowflake_requests.Session
    transports = (
        (
            http,
            lambda request: request.method != "GET",
            http_answer,
            lambda request: requests.ReadTimeout(request=request),
            http_cut,
        ),
        (aws, aws_changes, aws_answer, lambda request: ReadTimeoutError(endpoint_url=request.url), aws_cut),
        (
            snowflake,
            lambda request: bool(change(request)) or "login-request" in request.url,
            snowflake_answer,
            lambda request: snowflake_requests.exceptions.ReadTimeout(request=request),
            http_cut,
        ),
    )
    for transport, *how in transports:
        monkeypatch.setattr(transport, "send", it.through(transport.send, *how))
    monkeypatch.setattr(time_util, "get_time_millis", lambda: it.milliseconds)
    # Confluent is not asked again, and AWS at once.
    monkeypatch.setattr(Plane.__init__, "__defaults__", (0.0, REAL))
    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda seconds: None))
    return it
