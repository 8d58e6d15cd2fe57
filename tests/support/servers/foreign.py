"""Requests that a browser sends for a page of the server itself or of another site."""

import http.client
import json
from dataclasses import dataclass, field
from urllib.parse import quote

EVIL = "https://evil.example"
FOREIGN = {
    "a name that was pointed at 127.0.0.1": {"Host": "evil.example:{port}"},
    "a name without a port": {"Host": "evil.example"},
    "another port": {"Host": "127.0.0.1:1"},
    "no name": {"Host": ""},
    "a page": {"Origin": EVIL},
    "a page of another server of this machine": {"Origin": "http://localhost:5173", "Sec-Fetch-Site": "same-site"},
    "a sandboxed page": {"Origin": "null"},
    "a link or an image": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
    "a link or an image on this machine": {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
}
"""Headers that identify a request as foreign, by its origin."""


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str] = field(repr=False)
    text: str


@dataclass(frozen=True)
class Ask:
    """A request, which is legitimate without further headers."""

    method: str
    path: str
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict, repr=False)

    def send(self, port: int, **headers: str) -> Response:
        """Send the request to a local port, with further headers."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.putrequest(self.method, self.path, skip_host=True, skip_accept_encoding=True)
        sent = {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(self.body)), **self.headers, **headers}
        for name, value in sent.items():
            connection.putheader(name, value.format(port=port))
        connection.endheaders(self.body.encode())
        response = connection.getresponse()
        try:
            return Response(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read().decode())
        finally:
            connection.close()

    def preflight(self, port: int) -> Response:
        """Send the CORS preflight of a page of another site."""
        requested = {"Access-Control-Request-Method": self.method, "Access-Control-Request-Headers": "content-type"}
        return Ask("OPTIONS", self.path).send(port, Origin=EVIL, **requested)


def assert_refused(response: Response) -> None:
    """Assert that a request was refused and that no page may read the response."""
    assert response.status == 403 and "nothing was done" in response.text, response
    assert not [name for name in response.headers if name.startswith("access-control")]


def hostile_page(dagster: str, mutation: str) -> str:
    """Return a page that sends Dagster a mutation in each possible way; `attack()` returns the observable results."""
    by_get = f"{dagster}/graphql?query={quote(mutation)}"
    return f"""
        <a href="{dagster}/assets">an alert</a>
        <img src="{by_get}">
        <form method="post" enctype="text/plain" target="frame" action="{by_get}"><input name="a"></form>
        <iframe name="frame"></iframe>
        <script>
          const body = JSON.stringify({{query: {json.dumps(mutation)}}})
          const send = (type, mode) =>
            fetch("{dagster}/graphql", {{
              method: "POST", body, mode, headers: {{"Content-Type": type}}, credentials: "include",
            }}).then((response) => response.type, () => "refused")
          const listen = () => new Promise((done) => {{
            const socket = new WebSocket("{dagster.replace("http:", "ws:")}/graphql", "graphql-ws")
            socket.onopen = () => done("open")
            socket.onerror = () => done("refused")
          }})
          document.forms[0].submit()
          window.attack = () => Promise.all([send("text/plain", "no-cors"), send("application/json", "cors"), listen()])
        </script>"""
