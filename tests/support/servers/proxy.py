"""An HTTP proxy that injects the faults of networks and overloaded services."""

from __future__ import annotations

import http.client
import http.server
import re
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

Kind = Literal["cut", "response", "lost response", "lost connection", "delay", "truncate", "late"]
"""The kind of a fault: `cut` closes the connection before it is forwarded; `response` responds in the server's
place; `lost response` forwards and then responds with an error; `lost connection` forwards and then closes; `delay`
forwards after some seconds; `truncate` closes in the middle of the response; `late` closes at once and forwards when
`release` is set."""

Response = tuple[int, list[tuple[str, str]], bytes]
"""Status, headers, body."""

CONNECTION_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect", "proxy-connection"}
"""Headers that belong to one connection. AWS clients do not sign them."""

S3_SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
S3_ERROR = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>We encountered an error.</Message></Error>"
GLUE_ERROR = b'{"__type": "InternalServiceException", "Message": "try later"}'
GLUE_STALE = b'{"__type": "ConcurrentModificationException", "Message": "stale"}'
REGISTRY_ERROR = b'{"error_code": 50001, "message": "Error in the backend data store"}'


@dataclass
class Fault:
    """A fault for the next `times` requests whose "METHOD path target" matches."""

    kind: Kind
    matching: str = ""
    times: int = 1
    status: int = 500
    body: bytes = b""
    seconds: float = 0
    release: threading.Event = field(default_factory=threading.Event)
    fired: int = 0


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def target(self) -> str:
        """The action in requests to the JSON services of AWS."""
        return next((value for name, value in self.headers if name.lower() == "x-amz-target"), "")


class Proxy:
    """A running proxy, which clients reach at `address`."""

    def __init__(
        self,
        target: str,
        guard: Callable[[Request], Response | None] | None = None,
        tls: ssl.SSLContext | None = None,
    ):
        """Start a proxy.

        Args:
            target: Address of the server behind the proxy.
            guard: Function that may respond to a request in place of the server, such as a check that the server lacks.
                No other request is forwarded while it runs.
            tls: The context in which it accepts connections; None for connections without TLS.
        """
        url = urlsplit(target)
        self._host, self._guard = url.netloc, guard
        self._lock, self._guarding = threading.Lock(), threading.Lock()
        self._faults: list[Fault] = []
        self.fired: Counter[str] = Counter()
        self.refused = 0
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.address = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}{url.path}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()
        self._server.shutdown()
        self._server.server_close()

    def inject(self, fault: Fault) -> Fault:
        """Inject a fault into future requests."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._faults.clear()

    def fault_of(self, request: Request) -> Fault | None:
        call = f"{request.method} {request.path} {request.target}"
        with self._lock:
            for fault in self._faults:
                if fault.fired < fault.times and re.search(fault.matching, call):
                    fault.fired += 1
                    self.fired[fault.kind] += 1
                    return fault
        return None

    def forward(self, request: Request) -> Response:
        """Return the response of the guard or, if it has none, of the server."""
        if self._guard:
            with self._guarding:
                if refusal := self._guard(request):
                    self.refused += 1
                    return refusal
                return self._ask(request)
        return self._ask(request)

    def _ask(self, request: Request) -> Response:
        connection = http.client.HTTPConnection(self._host, timeout=60)
        connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
        # S3 verifies the signature, which covers the Host header. The other servers refuse a foreign host.
        signed = any("/s3/aws4_request" in value for name, value in request.headers if name.lower() == "authorization")
        for name, value in request.headers:
            if name.lower() not in CONNECTION_HEADERS:
                connection.putheader(name, self._host if name.lower() == "host" and not signed else value)
        if request.body or request.method in ("PUT", "POST"):
            connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders(request.body)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        kept = [(name, value) for name, value in response.getheaders() if name.lower() not in CONNECTION_HEADERS]
        length = response.getheader("Content-Length", "0") if request.method == "HEAD" else str(len(body))
        return response.status, [*kept, ("Content-Length", length)], body


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignore errors: faults close connections during requests."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body are two packets: Nagle's algorithm delays the second by 40 ms, until the first is acknowledged.
    disable_nagle_algorithm = True
    proxy: Proxy

    def _serve(self) -> None:
        request = Request(self.command, self.path, list(self.headers.items()), self._body())
        fault = self.proxy.fault_of(request)
        match fault:
            case None:
                self._respond(*self._forward(request))
            case Fault(kind="cut"):
                self._cut()
            case Fault(kind="response"):
                self._respond(fault.status, [("Content-Length", str(len(fault.body)))], fault.body)
            case Fault(kind="lost response"):
                self._forward(request)
                self._respond(fault.status, [("Content-Length", str(len(fault.body)))], fault.body)
            case Fault(kind="lost connection"):
                self._forward(request)
                self._cut()
            case Fault(kind="delay"):
                time.sleep(fault.seconds)
                self._respond(*self._forward(request))
            case Fault(kind="truncate"):
                status, headers, body = self._forward(request)
                self._respond(status, headers, body[: len(body) // 2])
                self._cut()
            case Fault(kind="late"):
                self._cut()
                fault.release.wait(60)
                self._forward(request)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def _forward(self, request: Request) -> Response:
        try:
            return self.proxy.forward(request)
        except (OSError, http.client.HTTPException):
            return 502, [("Content-Length", "0")], b""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _respond(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _cut(self) -> None:
        """Reset the connection."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Log nothing."""
