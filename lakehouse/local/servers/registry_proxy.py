"""`python -m lakehouse.local.servers.registry_proxy PORT COMMAND...`: the schema registry, protected by `guard`.

COMMAND starts a registry that listens on any loopback port and requires a PROXY protocol line on each connection.
Browsers cannot send that line, so they can use the registry only by PORT, where the guard checks requests.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable

import httpcore2
import psutil
import uvicorn

from lakehouse.core.polling import poll
from lakehouse.local import guard
from lakehouse.local.guard import App, Hosts, Malformed, Receive, Scope, Send, TooLarge, read_body
from lakehouse.local.processes.description import LOOPBACK

MAX_BODY_BYTES = 16 * 1024**2
SECONDS = 60
"""Timeout for connecting to the registry, and for each read and write."""
POLL_SECONDS = 0.1

_HOP_BY_HOP = {
    *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"),
    *(b"trailer", b"transfer-encoding", b"upgrade", b"expect"),
}
"""Headers that a proxy must not forward (RFC 9110, 7.6.1)."""


class ProxyLine(httpcore2.AsyncNetworkBackend):
    """Connections that begin with a PROXY protocol (version 1) line without the client's address."""

    def __init__(self) -> None:
        self._backend = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        stream = await self._backend.connect_tcp(host, port, timeout, local_address, socket_options)
        await stream.write(b"PROXY UNKNOWN\r\n", timeout)
        return stream


def proxy(port: int, seconds: float = SECONDS) -> App:
    """Return an application that forwards requests to the registry on a port.

    Args:
        port: The registry's port.
        seconds: Timeout for connecting, and for each read and write.
    """
    timeouts = dict.fromkeys(("connect", "read", "write", "pool"), seconds)
    pool = httpcore2.AsyncConnectionPool(network_backend=ProxyLine(), max_connections=64, keepalive_expiry=30)

    async def forward(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            body = await read_body(receive, MAX_BODY_BYTES)
        except TooLarge:
            await _fail(scope, send, 413, f"The request is larger than {MAX_BODY_BYTES >> 20} MiB.")
            return
        except Malformed:
            return
        started = False
        try:
            async with pool.stream(
                scope["method"],
                httpcore2.URL(scheme=b"http", host=LOOPBACK.encode(), port=port, target=_target(scope)),
                headers=[*_forwarded(scope["headers"], b"content-length"), *_length(scope["method"], body)],
                content=body,
                extensions={"timeout": timeouts},
            ) as response:
                started = True
                headers = list(_forwarded(response.headers))
                await send({"type": "http.response.start", "status": response.status, "headers": headers})
                async for part in response.aiter_stream():
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            if started:
                raise  # the server closes the connection, so that the client detects an incomplete response
            status = 504 if isinstance(error, httpcore2.TimeoutException) else 502
            await _fail(scope, send, status, f"The registry does not respond ({type(error).__name__}).")

    return forward


def _target(scope: Scope) -> bytes:
    """Return path and query exactly as the client sent them, since names of subjects may contain encoded slashes."""
    return scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")


def _forwarded(headers: Iterable[tuple[bytes, bytes]], *excluded: bytes) -> Iterable[tuple[bytes, bytes]]:
    return ((name, value) for name, value in headers if name.lower() not in {*_HOP_BY_HOP, *excluded})


def _length(method: str, body: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"content-length", str(len(body)).encode())] if body or method in ("POST", "PUT", "PATCH") else []


async def _fail(scope: Scope, send: Send, status: int, problem: str) -> None:
    body = {"error_code": status, "message": f"{problem} No change was confirmed. See registry.log."}
    await guard.respond(scope, send, status, json.dumps(body), "application/json")


def _port_of(registry: subprocess.Popen) -> int:
    """Wait until the registry listens, and return its port; exit with its status if it ends instead."""

    def listening_port() -> int | None:
        if registry.poll() is not None:
            sys.exit(registry.returncode)
        with contextlib.suppress(psutil.Error):  # the registry may just have ended
            sockets = psutil.Process(registry.pid).net_connections("tcp")
            return next((socket.laddr.port for socket in sockets if socket.status == psutil.CONN_LISTEN), None)
        return None

    port = poll(listening_port, pause=POLL_SECONDS)
    assert port is not None
    return port


def main() -> None:
    """Run the registry and its guard until either is stopped."""
    port = int(sys.argv[1])
    hosts = Hosts.of(port)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # runs `finally`, which ends the registry
    registry = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL)  # noqa: S603 (the command of `up`)
    try:
        app = guard.asgi(proxy(_port_of(registry)), hosts)

        def exit_with_registry() -> None:
            registry.wait()
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=exit_with_registry, daemon=True).start()
        uvicorn.run(
            app,
            host=LOOPBACK,
            port=port,
            access_log=False,
            log_level="warning",
            date_header=False,  # the registry's headers are forwarded
            server_header=False,
            timeout_graceful_shutdown=2,  # clients keep connections open, for which a shutdown would wait
        )
    finally:
        registry.terminate()
        registry.wait()


if __name__ == "__main__":
    main()
