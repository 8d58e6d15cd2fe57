"""An HTTP server that keeps what it is sent, and answers as it was told."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

import pytest

Answer = tuple[int, str, dict[str, str]]
"""Status, body, headers."""
OK: Answer = (200, "ok", {})


@dataclass(frozen=True)
class Received:
    """A request, and the status it was answered with."""

    path: str
    headers: Message
    body: bytes
    status: int


class Listener(ThreadingHTTPServer):
    """Gives the answers it was told to, one a request, and after those always the same."""

    def __init__(self, always: Answer = OK):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: deque[Answer] = deque()
        self.always = always
        self.received: list[Received] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @contextmanager
    def listening(self) -> Iterator[Self]:
        """Not by way of a proxy that the environment names."""
        with pytest.MonkeyPatch.context() as patch, self:
            patch.setenv("NO_PROXY", "127.0.0.1")
            thread = threading.Thread(target=self.serve_forever, args=(0.02,))
            thread.start()
            yield self
            self.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Listener

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, text, headers = self.server.answers.popleft() if self.server.answers else self.server.always
        self.server.received.append(Received(self.path, self.headers, body, status))
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    do_POST = do_GET

    def log_message(self, *_):
        """Nothing on stderr."""
