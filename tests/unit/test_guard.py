"""The rules by which loopback servers refuse requests, and the ASGI and WSGI adapters."""

import asyncio
from io import BytesIO

import pytest

from lakehouse.core.errors import LakehouseError
from lakehouse.local import guard
from lakehouse.local.guard import Hosts, Rule

HOSTS = Hosts.of(3000, allowed="")
TUNNEL = Hosts.of(3000, allowed="tunnel.example, Forwarded:8443,127.0.0.1:13000")


@pytest.mark.parametrize(
    ("hosts", "headers", "rule"),
    [
        (HOSTS, {}, None),
        (HOSTS, {"host": "localhost:3000"}, None),
        (HOSTS, {"host": "LocalHost:3000"}, None),
        (HOSTS, {"origin": "http://127.0.0.1:3000", "sec-fetch-site": "same-origin"}, None),
        (HOSTS, {"sec-fetch-site": "none"}, None),
        (TUNNEL, {"host": "tunnel.example", "origin": "https://tunnel.example"}, None),
        (TUNNEL, {"host": "forwarded:8443", "origin": "http://forwarded:8443"}, None),
        (TUNNEL, {"host": "127.0.0.1:13000", "origin": "http://127.0.0.1:13000"}, None),
        (TUNNEL, {"origin": "https://tunnel.example"}, None),  # the tunnel rewrites the Host
        (TUNNEL, {"origin": "https://tunnel.example", "sec-fetch-site": "same-site"}, None),
        (HOSTS, {"host": ""}, Rule.HOST),
        (HOSTS, {"host": "evil.example"}, Rule.HOST),
        (HOSTS, {"host": "evil.example:3000"}, Rule.HOST),
        (HOSTS, {"host": "127.0.0.1"}, Rule.HOST),
        (HOSTS, {"host": "127.0.0.1:3001"}, Rule.HOST),
        (HOSTS, {"host": "127.0.0.1:3000.evil.example"}, Rule.HOST),
        (HOSTS, {"host": "127.0.0.1:3000,evil.example"}, Rule.HOST),
        (HOSTS, {"host": "127.0.0.1:3000@evil.example"}, Rule.HOST),
        (HOSTS, {"host": "tunnel.example"}, Rule.HOST),
        (TUNNEL, {"host": "sub.tunnel.example"}, Rule.HOST),
        (TUNNEL, {"host": "tunnel.example:3000"}, Rule.HOST),
        (HOSTS, {"origin": "https://evil.example"}, Rule.ORIGIN),
        (HOSTS, {"origin": "https://evil.example", "sec-fetch-site": "same-origin"}, Rule.ORIGIN),
        (HOSTS, {"origin": "null"}, Rule.ORIGIN),
        (HOSTS, {"origin": ""}, Rule.ORIGIN),
        (HOSTS, {"origin": "http://127.0.0.1:5173"}, Rule.ORIGIN),
        (HOSTS, {"origin": "https://127.0.0.1:3000"}, Rule.ORIGIN),
        (HOSTS, {"origin": "http://127.0.0.1:3000.evil.example"}, Rule.ORIGIN),
        (HOSTS, {"origin": "http://127.0.0.1:3000,https://evil.example"}, Rule.ORIGIN),
        (TUNNEL, {"origin": "https://tunnel.example.evil.example"}, Rule.ORIGIN),
        (HOSTS, {"sec-fetch-site": "cross-site"}, Rule.SITE),
        (HOSTS, {"sec-fetch-site": "Cross-Site"}, Rule.SITE),
        (HOSTS, {"sec-fetch-site": "same-site"}, Rule.SITE),
        (HOSTS, {"sec-fetch-site": "something-new"}, Rule.SITE),
        (TUNNEL, {"origin": "https://tunnel.example", "sec-fetch-site": "cross-site"}, Rule.SITE),
    ],
)
def test_refusal_names_broken_rule(hosts, headers, rule):
    refusal = guard.refusal({"host": "127.0.0.1:3000"} | headers, hosts)
    assert (refusal.rule if refusal else None) is rule
    if refusal:
        assert "nothing was done" in refusal.message and "LAKEHOUSE_ALLOWED_HOSTS" in refusal.message


@pytest.mark.parametrize("listed", ["https://tunnel.example", "tunnel.example/ui", "*", "*.example", "a b", "a:b"])
def test_variables_invalid_allowed_host_is_refused(monkeypatch, listed):
    monkeypatch.setenv("LAKEHOUSE_ALLOWED_HOSTS", f"good.example,{listed}")
    with pytest.raises(LakehouseError, match="Nothing was started"):
        guard.variables()


def test_variables_allowed_hosts_are_normalized(monkeypatch):
    monkeypatch.setenv("LAKEHOUSE_ALLOWED_HOSTS", " Tunnel.example ,,")
    assert guard.variables() == {"LAKEHOUSE_ALLOWED_HOSTS": "tunnel.example"}
    assert Hosts.of(3000).allowed == {"tunnel.example"}


def responses(scope):
    """Return the messages of a guarded ASGI application that always responds 200."""
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200})

    async def send(message):
        sent.append(message)

    asyncio.run(guard.asgi(app, HOSTS)(scope, None, send))
    return sent


def scope(kind="http", **headers):
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": kind, "method": "GET", "path": "/", "headers": pairs}


def test_asgi_foreign_request_is_refused():
    assert responses(scope(host="127.0.0.1:3000"))[0]["status"] == 200
    assert responses(scope(host="evil.example"))[0]["status"] == 403
    assert responses({"type": "lifespan"})[0]["status"] == 200
    [closed] = responses(scope("websocket", host="127.0.0.1:3000", origin="https://evil.example"))
    assert closed["type"] == "websocket.close"


def test_asgi_duplicate_header_is_refused():
    duplicated = scope(host="127.0.0.1:3000", origin="http://127.0.0.1:3000")
    duplicated["headers"].append((b"Origin", b"https://evil.example"))
    assert responses(duplicated)[0]["status"] == 403


def test_wsgi_foreign_request_is_refused():
    statuses = []
    app = guard.wsgi(lambda environ, start: start("200 OK", []) or [b"fine"], HOSTS)

    def start(status, headers):
        statuses.append(status)

    environ = {"HTTP_HOST": "127.0.0.1:3000", "wsgi.input": BytesIO()}
    assert b"".join(app(environ, start)) == b"fine"
    for foreign in ({"HTTP_HOST": "evil.example"}, {"HTTP_ORIGIN": "null"}, {"HTTP_SEC_FETCH_SITE": "cross-site"}):
        app(environ | foreign, start)
    assert statuses == ["200 OK", *["403 Forbidden"] * 3]
