"""The HTTP server: Snowflake's login and query protocol, by fakesnow's handlers with this package's authentication.

`python -m lakehouse.local.snowflake.server` serves on the loopback interface until SIGTERM. Environment:
SNOWFLAKE_PORT, SNOWFLAKE_ACCOUNT, SNOWFLAKE_ADMIN_PASSWORD, LAKEHOUSE_ALLOWED_HOSTS, and the variables of
`Lake.from_environment`. The data is in snowflake/data of the state folder. GET /healthz succeeds when the server is
ready.
"""

import json
import logging
import os
import sys
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import fakesnow.server
import uvicorn
from sqlglot import Expr, exp
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakehouse.local import guard
from lakehouse.local.guard import Hosts
from lakehouse.local.home import Home
from lakehouse.local.snowflake.account import Account
from lakehouse.local.snowflake.engine import Connection, Instance
from lakehouse.local.snowflake.iceberg import Lake
from lakehouse.local.snowflake.login import Authenticator, LoginRefused, Sessions, SessionTokens, Validity
from lakehouse.local.snowflake.statements import Parser

logger = logging.getLogger("lakehouse.snowflake")

MAX_BODY_BYTES = 16 * 1024**2
"""Largest request, before and after decompression."""

REQUIRED = (
    "SNOWFLAKE_PORT",
    "SNOWFLAKE_ACCOUNT",
    "SNOWFLAKE_ADMIN_PASSWORD",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
)

Handler = Callable[[Request], Awaitable[Response]]


def application(
    *,
    account: Account,
    parser: Parser | None = None,
    admin_password: str,
    lake: Lake,
    folder: Path,
    sessions: Sessions | None = None,
) -> Starlette:
    """Return the ASGI application of one account.

    Args:
        account: The account.
        parser: Parser of the statements that fakesnow lacks.
        admin_password: The password of its user ADMIN.
        lake: Access to Glue and S3.
        folder: Folder of the data, which is emptied.
        sessions: Its sessions; by default with Snowflake's lifetimes.
    """
    sessions = sessions or Sessions(fakesnow.server.sessions)
    parser = parser or Parser()
    instance = Instance(account, parser, lake, folder)
    authenticator = Authenticator(account, admin_password)
    _extend_statement_types(parser)

    async def login(request: Request) -> JSONResponse:
        data = (await request.json())["data"]
        query = request.query_params
        try:
            user = await run_in_threadpool(authenticator.user, data)
            role = authenticator.role(user, query.get("roleName"))
        except LoginRefused as refused:
            ticket = uuid.uuid4()
            logger.warning("Login refused (%s): %s %s [%s]", refused.code, refused.message, refused.reason, ticket)
            return _failure(refused.code, f"{refused.message} [{ticket}]")
        warehouse = _upper(query.get("warehouse")) or _default(account, user, "WAREHOUSE")
        database, schema = _upper(query.get("databaseName")), _upper(query.get("schemaName"))
        if not database:
            namespace = (_default(account, user, "NAMESPACE") or "").split(".")
            database, schema = namespace[0] or None, schema or (namespace[1] if len(namespace) > 1 else None)
        connection = await run_in_threadpool(Connection, instance, user, role, warehouse, database, schema)
        session = sessions.open(connection)
        context = {"databaseName": database, "schemaName": schema, "warehouseName": warehouse, "roleName": role}
        data = _login_response(session, sessions.validity, user) | {"sessionInfo": context}
        return JSONResponse({"success": True, "data": data})

    async def renew(request: Request) -> JSONResponse:
        session = sessions.renew(_token(request))
        if session is None:
            return _failure("390114", "Authentication token has expired.  The user must authenticate again.")
        data = {
            "sessionToken": session.token,
            "validityInSecondsST": sessions.validity.token_seconds,
            "masterToken": session.master_token,
            "validityInSecondsMT": sessions.validity.master_seconds,
        }
        return JSONResponse({"success": True, "data": data})

    async def session(request: Request) -> JSONResponse:
        response = await fakesnow.server.session(request)
        if request.query_params.get("delete"):
            sessions.close(_token(request))
        return response

    def current(handler: Handler) -> Handler:
        """Restrict a handler to tokens that have not expired. For others, the client renews it and repeats the
        request."""

        async def handle(request: Request) -> Response:
            if sessions.has_expired(_token(request)):
                return _failure("390112", "Your session has expired. Please login again.")
            return await handler(request)

        return handle

    async def query(request: Request) -> JSONResponse:
        response = await fakesnow.server.query_request(request)
        if response.status_code < 500:
            return response
        # Clients retry a request with response 500 for minutes. Report a failed statement instead.
        return _failure("261000", "The local Snowflake server cannot run this statement: " + _message(response))

    handlers = {
        "/session/v1/login-request": login,
        "/session/token-request": renew,
        "/session": session,
        "/session/heartbeat": current(fakesnow.server.session),
        "/queries/v1/query-request": current(query),
    }
    # fakesnow's upload of staged files is left out: it would let anyone write files.
    reused = ("/queries/v1/abort-request", "/monitoring/queries/{sfqid}")
    routes = [Route(path, handler, methods=["POST"]) for path, handler in handlers.items()]
    routes += [route for route in fakesnow.server.routes if route.path in reused]
    routes.append(Route("/healthz", lambda _: JSONResponse({"ok": True})))
    return Starlette(routes=routes, middleware=[Middleware(guard.plain_bodies, limit=MAX_BODY_BYTES)])


def _extend_statement_types(parser: Parser) -> None:
    """Let fakesnow.server accept this package's statements: it parses each statement again to determine its type."""
    parse_one = fakesnow.server.parse_one

    def parse_type(sql: str) -> Expr:
        return exp.Command(this="") if parser.parse(sql) else parse_one(sql)

    fakesnow.server.parse_one = parse_type


def _token(request: Request) -> str:
    """Return the token of `Authorization: Snowflake Token="..."`; empty, which no session has, if there is none."""
    return request.headers.get("Authorization", "").removeprefix('Snowflake Token="').removesuffix('"')


def _login_response(session: SessionTokens, validity: Validity, user: str) -> dict[str, Any]:
    return {
        "token": session.token,
        "masterToken": session.master_token,
        "validityInSeconds": validity.token_seconds,
        "masterValidityInSeconds": validity.master_seconds,
        "sessionId": uuid.uuid4().int >> 66,
        "displayUserName": user,
        "serverVersion": fakesnow.server.SERVER_VERSION,
        "parameters": [
            {"name": "AUTOCOMMIT", "value": True},
            {"name": "CLIENT_SESSION_KEEP_ALIVE_HEARTBEAT_FREQUENCY", "value": 3600},
            # Clients must send the parameters of batches in the request, because there are no stages.
            {"name": "CLIENT_STAGE_ARRAY_BINDING_THRESHOLD", "value": 0},
        ],
    }


def _default(account: Account, user: str, option: str) -> str | None:
    with account.lock:
        entity = account.find("USER", (user,))
        return entity.options.get(f"DEFAULT_{option}") if entity else None


def _upper(name: str | None) -> str | None:
    return name.upper() if name else None


def _failure(code: str, message: str) -> JSONResponse:
    return JSONResponse({"success": False, "code": code, "message": message, "data": {}})


def _message(response: JSONResponse) -> str:
    return str(json.loads(bytes(response.body)).get("message", ""))


def main(account_type: type[Account] = Account, parser: Parser | None = None) -> None:
    """Serve until stopped, with the access control of a type of account and the checks of a parser."""
    if missing := [name for name in REQUIRED if not os.environ.get(name)]:
        sys.exit(f"The Snowflake server was not started: set {', '.join(missing)}")

    # Arrow's default allocator does not return memory: 600 MB resident after 3 million rows, and 360 with malloc.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

    port = int(os.environ["SNOWFLAKE_PORT"])
    app = application(
        account=account_type(os.environ["SNOWFLAKE_ACCOUNT"]),
        parser=parser,
        admin_password=os.environ.pop("SNOWFLAKE_ADMIN_PASSWORD"),
        lake=Lake.from_environment(os.environ),
        # Relative, because fakesnow quotes no apostrophe in the path of the databases.
        folder=Path(os.path.relpath(Home.default().folder("snowflake") / "data")),
    )
    # Clients keep connections open: a graceful shutdown would wait for them without end.
    uvicorn.run(
        guard.asgi(app, Hosts.of(port)),
        host="127.0.0.1",
        port=port,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=2,
    )


if __name__ == "__main__":
    main()
