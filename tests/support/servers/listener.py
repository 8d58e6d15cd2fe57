"""An HTTP server that records requests and sends predefined responses."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler

from tests.support.servers.loopback_server import LoopbackServer

Response = tuple[int, str, dict[str, str]]
"""Status, body, headers."""
OK: Response = (200, "ok", {})


@dataclass(frozen=True)
class Received:
    """A request, with the status of its response."""

    path: str
    headers: Message
    body: bytes
    status: int


class Listener(LoopbackServer):
    """A server that sends each of `responses` once, and then always the same response."""

    def __init__(self, always: Response = OK):
        super().__init__(_Handler)
        self.responses: deque[Response] = deque()
        self.always = always
        self.received: list[Received] = []


class _Handler(BaseHTTPRequestHandler):
    server: Listener

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, text, headers = self.server.responses.popleft() if self.server.responses else self.server.always
        self.server.received.append(Received(self.path, self.headers, body, status))
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text.encode())

    do_HEAD = do_POST = do_DELETE = do_GET

    def log_message(self, *_):
        """Log nothing."""
