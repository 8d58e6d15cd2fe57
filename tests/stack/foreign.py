"""Requests as a browser sends them on behalf of a page: of another site, or of the server's own."""

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
"""What shows that a request is foreign."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str] = field(repr=False)
    text: str


@dataclass(frozen=True)
class Ask:
    """A request, legitimate as it is."""

    method: str
    path: str
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict, repr=False)

    def send(self, port: int, **headers: str) -> Answer:
        """Send it to a port of this machine, with further headers."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.putrequest(self.method, self.path, skip_host=True, skip_accept_encoding=True)
        sent = {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(self.body)), **self.headers, **headers}
        for name, value in sent.items():
            connection.putheader(name, value.format(port=port))
        connection.endheaders(self.body.encode())
        answer = connection.getresponse()
        try:
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())
        finally:
            connection.close()

    def preflight(self, port: int) -> Answer:
        """What a browser asks before it lets a page of another site send more than a form could."""
        asked = {"Access-Control-Request-Method": self.method, "Access-Control-Request-Headers": "content-type"}
        return Ask("OPTIONS", self.path).send(port, Origin=EVIL, **asked)


def assert_refused(answer: Answer) -> None:
    """It was refused, and no page may read why."""
    assert answer.status == 403 and "nothing was done" in answer.text, answer
    assert not [name for name in answer.headers if name.startswith("access-control")]


def hostile_page(dagster: str, mutation: str) -> str:
    """A page that sends Dagster a mutation in each way it can; `attack()` tells what came of those that tell."""
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
            }}).then((answer) => answer.type, () => "refused")
          const listen = () => new Promise((done) => {{
            const socket = new WebSocket("{dagster.replace("http:", "ws:")}/graphql", "graphql-ws")
            socket.onopen = () => done("open")
            socket.onerror = () => done("refused")
          }})
          document.forms[0].submit()
          window.attack = () => Promise.all([send("text/plain", "no-cors"), send("application/json", "cors"), listen()])
        </script>"""
