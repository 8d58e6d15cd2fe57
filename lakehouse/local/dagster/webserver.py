"""`python -m lakehouse.local.dagster.webserver PORT WORKSPACE`: Dagster's webserver, protected by `guard` and a login.

A login is required because Dagster executes code. Environment: LAKEHOUSE_UI_TOKEN, LAKEHOUSE_ALLOWED_HOSTS and
Dagster's variables.
"""

import hmac
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs

import uvicorn
from dagster import DagsterInstance
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._utils.log import configure_loggers
from dagster_webserver import cli
from dagster_webserver.app import create_app_from_workspace_process_context
from dagster_webserver.version import __version__
from starlette.requests import cookie_parser

from lakehouse.local import guard
from lakehouse.local.dagster import ui_login
from lakehouse.local.dagster.ui_login import TOKEN_VARIABLE
from lakehouse.local.guard import App, Hosts, Receive, Rule, Scope, Send

MAX_FORM_BYTES = 4096
COOKIE_SECONDS = 30 * 24 * 3600


@dataclass(frozen=True)
class Door:
    """Authentication for the UI of one stack."""

    token: str = field(repr=False)
    port: int

    @property
    def cookie_name(self) -> str:
        """Name with the stack's port, because browsers share cookies between all ports of 127.0.0.1."""
        return f"lakehouse-ui-{self.port}"

    def accepts(self, token: str) -> bool:
        """Return whether the token is correct."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def cookie(self) -> str:
        """Return a Set-Cookie header's value. The cookie does not contain the token, and expires."""
        expires = int(time.time()) + COOKIE_SECONDS
        value = f"{expires}.{self._signature(expires)}"
        return f"{self.cookie_name}={value}; Path=/; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Strict"

    def has_bearer(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request has the token as bearer."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.accepts(token.strip())

    def has_cookie(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request has a cookie that `cookie` issued and that has not expired."""
        value = cookie_parser(headers.get("cookie", "")).get(self.cookie_name, "")
        expires, _, signature = value.partition(".")
        if not (expires.isdecimal() and len(expires) <= 12 and int(expires) > time.time()):
            return False
        return hmac.compare_digest(signature.encode(), self._signature(int(expires)).encode())

    def _signature(self, expires: int) -> str:
        return hmac.digest(self.token.encode(), f"{self.cookie_name}={expires}".encode(), "sha256").hex()


def guarded(app: App, hosts: Hosts, door: Door) -> App:
    """Wrap an application, so that it receives only requests of logged-in users that no page of another site can send.

    Args:
        app: Dagster's application.
        hosts: The names under which browsers may reach the server.
        door: Authentication of users.
    """

    async def protected(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await app(scope, receive, send)
            return
        headers = guard.headers_of(scope)
        is_login = scope["type"] == "http" and scope["path"] == ui_login.PATH
        if refused := guard.refusal(headers, hosts):
            opened_by_link = refused.rule is Rule.SITE and _opens_a_page(scope, headers)
            if not opened_by_link:
                await guard.respond(scope, send, 403, refused.message)
                return
            if not is_login:  # a login link is valid on any site, because it has the token
                await _page(scope, send, 403, ui_login.foreign_link_page())
                return
        if is_login:
            await _log_in(scope, receive, send, door)
        elif not _is_logged_in(scope, headers, door):
            await _ask_to_log_in(scope, send, headers)
        elif problem := _wrong_form(scope, headers):
            await guard.respond(scope, send, *problem)
        else:
            await app(scope, receive, send)

    return protected


def _opens_a_page(scope: Scope, headers: Mapping[str, str]) -> bool:
    """Return whether a browser requests a page for a tab, and not a resource, a frame or data."""
    in_tab = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return scope["type"] == "http" and scope["method"] == "GET" and in_tab


def _is_logged_in(scope: Scope, headers: Mapping[str, str], door: Door) -> bool:
    # Browsers send an Origin with each websocket. Without one, the cookie's request cannot be attributed to a page.
    may_use_cookie = scope["type"] == "http" or "origin" in headers
    return door.has_bearer(headers) or (may_use_cookie and door.has_cookie(headers))


def _wrong_form(scope: Scope, headers: Mapping[str, str]) -> tuple[int, str] | None:
    """Return status and reason of the refusal of a request that an image or a form could send, or None.

    So only Dagster's scripts can cause changes.
    """
    if scope["type"] == "websocket":
        return None
    if scope["method"] in ("GET", "HEAD"):
        if scope["path"] == "/graphql" and "query" in parse_qs(scope["query_string"].decode("latin-1"), True):
            return 405, "GraphQL is not available by GET. Nothing was done. Send it by POST as application/json."
        return None
    media_type, _, parameters = headers.get("content-type", "").partition(";")
    if media_type.strip().lower() != "application/json" or parameters.strip().lower() not in ("", "charset=utf-8"):
        return 415, "Only application/json is accepted. Nothing was done. Set the Content-Type."
    return None


async def _log_in(scope: Scope, receive: Receive, send: Send, door: Door) -> None:
    if scope["method"] == "POST":
        token = ui_login.token_of_query(await _form(receive))
    else:
        token = ui_login.token_of_query(scope["query_string"])
    if token is None:
        await _page(scope, send, 401, ui_login.login_page())
    elif door.accepts(token):
        await _page(scope, send, 200, ui_login.entered_page(), (b"set-cookie", door.cookie().encode()))
    else:
        await _page(scope, send, 401, ui_login.login_page("This is not the token of this stack."))


async def _form(receive: Receive) -> bytes:
    """Return the body of a form; empty if it is longer than `MAX_FORM_BYTES`."""
    body, more = b"", True
    while more and len(body) <= MAX_FORM_BYTES:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body if len(body) <= MAX_FORM_BYTES else b""


async def _ask_to_log_in(scope: Scope, send: Send, headers: Mapping[str, str]) -> None:
    if "text/html" in headers.get("accept", ""):
        await _page(scope, send, 401, ui_login.login_page())
        return
    error = "Not logged in. Nothing was done. Send 'Authorization: Bearer TOKEN'; `lakehouse ui` prints the token."
    challenge = [(b"www-authenticate", b"Bearer")]
    await guard.respond(scope, send, 401, json.dumps({"error": error}), "application/json", challenge)


async def _page(scope: Scope, send: Send, status: int, html: str, *headers: tuple[bytes, bytes]) -> None:
    await guard.respond(scope, send, status, html, "text/html", [*ui_login.PAGE_HEADERS, *headers])


def main() -> None:
    """Serve Dagster's UI and its GraphQL API until stopped."""
    port, workspace = int(sys.argv[1]), sys.argv[2]
    token = os.environ.pop(TOKEN_VARIABLE, "")
    if not token:
        sys.exit(f"The webserver was not started: set {TOKEN_VARIABLE}")

    configure_loggers(log_level="INFO")
    with DagsterInstance.get() as instance:
        instance.optimize_for_webserver(
            cli.DEFAULT_DB_STATEMENT_TIMEOUT, cli.DEFAULT_POOL_RECYCLE, cli.DEFAULT_POOL_MAX_OVERFLOW
        )
        with WorkspaceProcessContext(
            instance, version=__version__, workspace_load_target=WorkspaceFileTarget([workspace])
        ) as context:
            app = create_app_from_workspace_process_context(context, live_data_poll_rate=2000)
            # No access log, because the path of a login link contains the token.
            uvicorn.run(
                guarded(app, Hosts.of(port), Door(token, port)),
                host="127.0.0.1",
                port=port,
                log_level="warning",
                access_log=False,
            )


if __name__ == "__main__":
    main()
