"""A listener that speaks Kafka's protocol up to the login, whose first message it keeps, and then refuses it.

It has no TLS, no topics, and no other requests than ApiVersions, SaslHandshake and SaslAuthenticate
(https://kafka.apache.org/protocol).
"""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Self

API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
SUPPORTED = {API_VERSIONS: 0, HANDSHAKE: 1, AUTHENTICATE: 0}
"""The newest version by request."""
UNSUPPORTED_VERSION, AUTHENTICATION_FAILED = 35, 58


class SaslListener(socketserver.ThreadingTCPServer):
    """A listener on a free port that supports one mechanism.

    Attributes:
        logins: The first messages of logins, as clients sent them.
    """

    daemon_threads = True

    def __init__(self, mechanism: str) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.mechanism, self.logins = mechanism, Queue[bytes]()

    @property
    def port(self) -> int:
        """The port."""
        return int(self.server_address[1])

    @contextmanager
    def listening(self) -> Iterator[Self]:
        """Accept connections within a block."""
        with self:
            thread = threading.Thread(target=self.serve_forever, args=(0.02,))
            thread.start()
            try:
                yield self
            finally:
                self.shutdown()
                thread.join()


class _Connection(socketserver.StreamRequestHandler):
    server: SaslListener

    def handle(self) -> None:
        while size := self.rfile.read(4):
            request = self.rfile.read(int.from_bytes(size))
            key, version, correlation = struct.unpack(">hhi", request[:8])
            client = max(struct.unpack(">h", request[8:10])[0], 0)
            response = self._response(key, version, request[10 + client :])
            self.wfile.write(struct.pack(">ii", 4 + len(response), correlation) + response)

    def _response(self, key: int, version: int, body: bytes) -> bytes:
        if key == API_VERSIONS:
            error = 0 if version <= SUPPORTED[key] else UNSUPPORTED_VERSION
            ranges = b"".join(struct.pack(">hhh", one, 0, newest) for one, newest in SUPPORTED.items())
            return struct.pack(">hi", error, len(SUPPORTED)) + ranges
        if key == HANDSHAKE:
            return struct.pack(">hi", 0, 1) + _text(self.server.mechanism)
        assert key == AUTHENTICATE, f"request {key} before the login"
        self.server.logins.put(body[4 : 4 + int.from_bytes(body[:4])])
        return struct.pack(">h", AUTHENTICATION_FAILED) + _text("refused") + struct.pack(">i", 0)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
