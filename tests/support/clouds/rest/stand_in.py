"""An empty REST catalog with the endpoints that a deployment uses: login, settings and tables."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.clouds.confluent.state import new_secret

TOKEN = "bearer-of-the-stand-in"


class RestStandIn:
    """The server, which runs within a `with` block and accepts the `secret` of one client."""

    def __init__(self):
        self.secret = new_secret()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # noqa: N802
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                if form.get("client_secret") != [outer.secret]:
                    return self._respond(401, {"error": "unauthorized_client"})
                self._respond(200, {"access_token": TOKEN, "token_type": "bearer", "expires_in": 3600})

            def do_GET(self) -> None:  # noqa: N802
                if self.headers["Authorization"] != f"Bearer {TOKEN}":
                    return self._respond(401, {"error": {"message": "Not authorized", "code": 401}})
                if urlsplit(self.path).path == "/v1/config":
                    return self._respond(200, {"defaults": {}, "overrides": {}})
                self._respond(404, {"error": {"message": "no such table", "type": "NoSuchTableException", "code": 404}})

            def _respond(self, status: int, body: Any) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *message: object) -> None:
                """Log nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> RestStandIn:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()
