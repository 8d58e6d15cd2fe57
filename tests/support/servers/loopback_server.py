"""An HTTP server for one test on the loopback interface."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

import pytest


class LoopbackServer(ThreadingHTTPServer):
    """A server on a free port, with a given request handler."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @contextmanager
    def listening(self) -> Iterator[Self]:
        """Serve requests within a block, in which clients use no proxy of the environment."""
        with pytest.MonkeyPatch.context() as patch, self:
            patch.setenv("NO_PROXY", "127.0.0.1")
            thread = threading.Thread(target=self.serve_forever, args=(0.02,))
            thread.start()
            try:
                yield self
            finally:
                self.shutdown()
                thread.join()
