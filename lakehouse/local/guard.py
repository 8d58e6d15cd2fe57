"""Protection of HTTP servers on the loopback interface from cross-site requests, DNS rebinding and large bodies.

The user's browser sends such requests for a foreign page, so listening on loopback is no protection. Browsers set three
headers that a page cannot forge: Host (which reveals DNS rebinding), Origin and Sec-Fetch-Site. Other programs do not
send the last two and are accepted.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from lakehouse.core.errors import LakehouseError

VARIABLE = "LAKEHOUSE_ALLOWED_HOSTS"
"""Variable with the hosts of tunnels and port forwardings, separated by commas: `host` or `host:port` as in the
browser's address."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*(:\d{1,5})?")


class Rule(Enum):
    """The rule that a refused request violates."""

    HOST = "host"
    ORIGIN = "origin"
    SITE = "site"


@dataclass(frozen=True)
class Refusal:
    """The refusal of a request, with its reason."""

    rule: Rule
    message: str


@dataclass(frozen=True)
class Hosts:
    """The names under which browsers may reach a server."""

    loopback: frozenset[str]
    allowed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, port: int, allowed: str | None = None) -> Hosts:
        """Return the names of the server on a loopback port.

        Args:
            port: The port it listens on.
            allowed: Further hosts, separated by commas; by default those in LAKEHOUSE_ALLOWED_HOSTS.
        """
        listed = os.environ.get(VARIABLE, "") if allowed is None else allowed
        return cls(frozenset({f"127.0.0.1:{port}", f"localhost:{port}"}), frozenset(_entries(listed)))

    @property
    def origins(self) -> frozenset[str]:
        """Origins of the pages of these hosts. A tunnel may add TLS."""
        http = {f"http://{host}" for host in self.loopback | self.allowed}
        return frozenset(http | {f"https://{host}" for host in self.allowed})


def variables() -> dict[str, str]:
    """Return the environment variable that a guarded server reads."""
    return {VARIABLE: ",".join(_entries(os.environ.get(VARIABLE, "")))}


def _entries(listed: str) -> list[str]:
    entries = sorted({entry.strip().lower() for entry in listed.split(",") if entry.strip()})
    for entry in entries:
        if not _HOST.fullmatch(entry):
            raise LakehouseError(
                f"{VARIABLE} has '{entry}', which is not a host or host:port. Nothing was started."
                " Write hosts as in the browser's address bar, without https:// and path, separated by commas"
            )
    return entries


def refusal(headers: Mapping[str, str], hosts: Hosts) -> Refusal | None:
    """Check the headers of a request.

    Args:
        headers: Headers by name in lower case; the values of repeated headers are joined by commas.
        hosts: The names under which browsers may reach the server.

    Returns:
        The refusal, or None for an acceptable request.
    """
    host = headers.get("host", "").lower()
    if host not in hosts.loopback | hosts.allowed:
        return _refused(Rule.HOST, f"The host {host!r} is not a name of this server.", hosts)
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in hosts.origins:
        return _refused(Rule.ORIGIN, f"A page of {origin!r} sent this request.", hosts)
    site = headers.get("sec-fetch-site", "none").lower()
    # A page of a tunnel may use another allowed host of the same site; its origin was checked above.
    if site not in ("none", "same-origin") and not (site == "same-site" and origin is not None):
        return _refused(Rule.SITE, "A page of another site sent this request.", hosts)
    return None


def _refused(rule: Rule, problem: str, hosts: Hosts) -> Refusal:
    address = min(hosts.loopback)
    return Refusal(
        rule,
        f"{problem} It was refused and nothing was done. Use http://{address}, or name the host of a tunnel in"
        f" {VARIABLE} and run `lakehouse up` again.",
    )


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of an ASGI request in the form that `refusal` expects."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


def asgi(app: App, hosts: Hosts) -> App:
    """Wrap an ASGI application, including its websockets, so that requests are checked first."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        refused = refusal(headers_of(scope), hosts) if scope["type"] in ("http", "websocket") else None
        if refused:
            await respond(scope, send, 403, refused.message)
        else:
            await app(scope, receive, send)

    return guarded


async def respond(
    scope: Scope, send: Send, status: int, body: str, content_type: str = "text/plain", headers: Iterable = ()
) -> None:
    """Respond to an ASGI request instead of its application, by a status and a text, or by closing the websocket."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})  # before the acceptance, so the client gets status 403
        return
    content = body.encode()
    fixed = {
        b"content-type": f"{content_type}; charset=utf-8".encode(),
        b"content-length": str(len(content)).encode(),
        b"cache-control": b"no-store",
        b"x-content-type-options": b"nosniff",
    }
    await send({"type": "http.response.start", "status": status, "headers": [*fixed.items(), *headers]})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else content})


def wsgi(app: Callable[..., Iterable[bytes]], hosts: Hosts) -> Callable[..., Iterable[bytes]]:
    """Wrap a WSGI application, so that requests are checked first."""

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        sent = {k[5:].replace("_", "-").lower(): v for k, v in environ.items() if k.startswith("HTTP_")}
        if refused := refusal(sent, hosts):
            start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
            return [refused.message.encode()]
        return app(environ, start_response)

    return guarded


class TooLarge(Exception):
    """The body, as sent or decompressed, is larger than allowed."""


class Malformed(Exception):
    """The body is incomplete, or invalid for its encoding."""


async def read_body(receive: Receive, limit: int) -> bytes:
    """Return a request's body.

    Args:
        receive: ASGI's function for the next part.
        limit: Maximum size, in bytes.

    Raises:
        TooLarge: The body is larger.
        Malformed: The client disconnected before its end.
    """
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Malformed("the client disconnected")
        body += message.get("body", b"")
        if len(body) > limit:
            raise TooLarge
        if not message.get("more_body"):
            return bytes(body)


def decompress(body: bytes, limit: int) -> bytes:
    """Decompress a gzip body.

    Args:
        body: One gzip member.
        limit: Maximum size of the result, in bytes.

    Raises:
        TooLarge: The result is larger.
        Malformed: The body is not gzip, is truncated, or has data after the member.
    """
    member = zlib.decompressobj(wbits=31)
    try:
        content = member.decompress(body, limit + 1)
    except zlib.error as error:
        raise Malformed(str(error)) from error
    if len(content) > limit:
        raise TooLarge
    if not member.eof or member.unused_data:
        raise Malformed("it is truncated, or followed by other data")
    return content


def plain_bodies(app: App, limit: int) -> App:
    """Wrap an application, so that it receives bodies of a limited size and without content encoding."""

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        try:
            body = await read_body(receive, limit)
            if headers_of(scope).get("content-encoding", "").lower() == "gzip":
                body = decompress(body, limit)
        except TooLarge:
            await respond(scope, send, 413, f"The request is larger than {limit >> 20} MiB. Nothing was done.")
            return
        except Malformed as error:
            await respond(scope, send, 400, f"The request's body cannot be read: {error}. Nothing was done.")
            return
        replaced = (b"content-encoding", b"content-length", b"transfer-encoding")
        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in replaced]
        headers.append((b"content-length", str(len(body)).encode()))
        pending = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_plain():
            return pending.pop() if pending else await receive()

        await app({**scope, "headers": headers}, receive_plain, send)

    return limited
