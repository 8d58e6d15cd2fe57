"""An OpenID Connect provider: a token endpoint for client credentials, and its keys."""

from __future__ import annotations

import base64
import json
import time
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.support.servers.loopback_server import LoopbackServer

AUDIENCE = "lakehouse"


class TokenServer(LoopbackServer):
    """A provider that issues signed tokens (RFC 6749, section 4.4; RFC 7519; OpenID Connect Discovery).

    `clients` are secrets by client id, `lifetime` is that of new tokens in seconds, and `issued` are the User-Agent
    headers of the requests that got a token. Those that begin with `refused` get none. Roles of a client are in the
    claim `groups`.
    """

    def __init__(self, clients: dict[str, str], lifetime: int = 3600) -> None:
        super().__init__(_Handler)
        self.clients, self.lifetime = clients, lifetime
        self.issued: list[str] = []
        self.scopes: list[str] = []
        self.refused: str | None = None
        self.key = new_key()

    def token(self, client: str) -> str:
        """Return a signed token."""
        now = int(time.time())
        claims = {"iss": self.address, "sub": client, "aud": AUDIENCE, "iat": now, "exp": now + self.lifetime}
        claims |= {"scope": "records", "groups": ["sr-admin"], "jti": f"{len(self.issued)}"}
        return jwt.encode({"alg": "RS256", "kid": "test"}, claims, self.key)


def new_key() -> RSAKey:
    """Return a key with which a provider signs."""
    return RSAKey.generate_key(2048, {"kid": "test", "use": "sig", "alg": "RS256"})


class _Handler(BaseHTTPRequestHandler):
    server: TokenServer

    def do_GET(self) -> None:
        address = self.server.address
        if self.path == "/jwks":
            self._respond(200, {"keys": [self.server.key.as_dict(private=False)]})
        elif self.path == "/.well-known/openid-configuration":
            ends = {"issuer": address, "jwks_uri": f"{address}/jwks", "token_endpoint": f"{address}/token"}
            self._respond(200, ends)
        else:
            self._respond(404, {})

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
        kind, _, encoded = self.headers.get("Authorization", "").partition(" ")
        client, _, secret = base64.b64decode(encoded).decode().partition(":") if kind == "Basic" else ("", "", "")
        client, secret = client or form.get("client_id", [""])[0], secret or form.get("client_secret", [""])[0]
        if form.get("grant_type") != ["client_credentials"]:
            self._respond(400, {"error": "unsupported_grant_type"})
        elif not secret or self.server.clients.get(client) != secret or self._is_refused():
            self._respond(401, {"error": "invalid_client"})
        else:
            self.server.issued.append(self.headers.get("User-Agent", ""))
            self.server.scopes += form.get("scope", [])
            token = self.server.token(client)
            self._respond(200, {"access_token": token, "token_type": "Bearer", "expires_in": self.server.lifetime})

    def _is_refused(self) -> bool:
        return self.server.refused is not None and self.headers.get("User-Agent", "").startswith(self.server.refused)

    def _respond(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""
