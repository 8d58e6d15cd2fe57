"""An HTTP server on one address: metrics for Prometheus, and whether the process is healthy and ready."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from lakehouse.core.errors import LakehouseError, logged_reason

REQUEST_SECONDS = 10
"""Time limit for a request to arrive."""

Problems = Callable[[], Iterable[str]]
"""A function that returns what is wrong, one sentence for each problem; nothing if all is well."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 (the standard library's)
        """Log what failed, unless the client sent no request: a probe of the port may only connect."""
        error = sys.exception()
        if error and not isinstance(error, ConnectionError | TimeoutError):
            logged_reason("A request for metrics failed", error)


class _Handler(WSGIRequestHandler):
    server_version, sys_version = "lakehouse", ""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name of the standard library)
        """Log nothing: Prometheus sends a request every few seconds."""


@contextmanager
def serving(address: tuple[str, int], registry: CollectorRegistry, probes: Mapping[str, Problems]) -> Iterator[str]:
    """Serve `/metrics` and the paths of probes until the end of the body, and yield the server's URL.

    Args:
        address: The host and the port to listen on. Port 0 is any free one.
        registry: The metrics.
        probes: What answers the other paths: 200 without problems, and else 503 with one line for each.

    Raises:
        LakehouseError: Another process listens there, or the host is no address of this machine.
    """
    metrics = make_wsgi_app(registry)

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return metrics(environ, start_response)
        if path not in probes:
            status, lines = HTTPStatus.NOT_FOUND, [f"Paths: {', '.join(['/metrics', *probes])}"]
        else:
            lines = [*probes[path]()]
            status = HTTPStatus.SERVICE_UNAVAILABLE if lines else HTTPStatus.OK
        start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
        return ["\n".join([*(lines or ["ok"]), ""]).encode()]

    host, port = address
    listening = type("Server", (_Server,), {"address_family": socket.AF_INET6 if ":" in host else socket.AF_INET})
    handler = type("Handler", (_Handler,), {"timeout": REQUEST_SECONDS})
    try:
        server = listening(address, handler)
    except OSError as error:
        raise LakehouseError(
            f"Metrics cannot be served on {host}:{port} ({error.strerror})",
            "Nothing was started",
            "Use another address",
        ) from error
    server.set_app(application)
    with server:
        Thread(target=server.serve_forever, name="metrics", daemon=True).start()
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}"
        server.shutdown()
