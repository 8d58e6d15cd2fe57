"""The HTTP side: Snowflake's login and query protocol, by fakesnow's handlers behind our own door."""

from __future__ import annotations

import gzip
import json
import logging
import secrets
import uuid
from pathlib import Path
from typing import Any

import fakesnow.server
from sqlglot import Expr, exp
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from lakehouse.local.snowflake.account import Account
from lakehouse.local.snowflake.engine import Instance
from lakehouse.local.snowflake.iceberg import Lake
from lakehouse.local.snowflake.login import Authenticator, Refused
from lakehouse.local.snowflake.statements import parse

logger = logging.getLogger("lakehouse.snowflake")

_SESSION_SECONDS, _MASTER_SECONDS = 3600, 14400
"""How long the tokens of a session say they are valid; Snowflake's defaults."""


def application(*, account: str, admin_password: str, lake: Lake, folder: Path) -> Starlette:
    """The server of one account.

    Parameters: the account's name; the password of its user ADMIN; where Glue and S3 are; a folder for the data, which
    is emptied.
    """
    state = Account(account)
    instance = Instance(state, lake, folder)
    authenticator = Authenticator(state, admin_password)
    _teach_statements()

    async def login(request: Request) -> JSONResponse:
        data = (await _body(request))["data"]
        query = request.query_params
        try:
            user = await run_in_threadpool(authenticator.user, data)
            role = authenticator.role(user, query.get("roleName"))
        except Refused as refused:
            ticket = uuid.uuid4()
            logger.warning("Login refused (%s): %s %s [%s]", refused.code, refused.message, refused.reason, ticket)
            return _failure(refused.code, f"{refused.message} [{ticket}]")
        warehouse = _upper(query.get("warehouse")) or _default(state, user, "WAREHOUSE")
        database, schema = _upper(query.get("databaseName")), _upper(query.get("schemaName"))
        if not database:
            namespace = (_default(state, user, "NAMESPACE") or "").split(".")
            database, schema = namespace[0] or None, schema or (namespace[1] if len(namespace) > 1 else None)
        session = await run_in_threadpool(instance.open, user, role, warehouse, database, schema)
        token = secrets.token_urlsafe(32)
        fakesnow.server.sessions[token] = session
        return JSONResponse({"success": True, "data": _login_answer(token, user, role, warehouse, database, schema)})

    async def query(request: Request) -> JSONResponse:
        answer = await fakesnow.server.query_request(request)
        if answer.status_code < 500:
            return answer
        # A client repeats what was answered with HTTP 500 for minutes. The statement has failed: say so.
        return _failure("261000", "The local Snowflake server cannot run this statement: " + _message(answer))

    own = {"/session/v1/login-request": login, "/queries/v1/query-request": query}
    # Not fakesnow's upload of staged files: it would let anybody write them.
    kept = ("/session", "/session/heartbeat", "/queries/v1/abort-request", "/monitoring/queries/{sfqid}")
    routes = [Route(path, handler, methods=["POST"]) for path, handler in own.items()]
    routes += [route for route in fakesnow.server.routes if route.path in kept]
    routes.append(Route("/healthz", lambda _: JSONResponse({"ok": True})))
    return Starlette(routes=routes)


def _teach_statements() -> None:
    """fakesnow.server parses each statement once more, only to tell the client its type."""
    parse_one = fakesnow.server.parse_one

    def parse_type(sql: str) -> Expr:
        return exp.Command(this="") if parse(sql) else parse_one(sql)

    fakesnow.server.parse_one = parse_type


async def _body(request: Request) -> dict[str, Any]:
    body = await request.body()
    return json.loads(gzip.decompress(body) if request.headers.get("Content-Encoding") == "gzip" else body)


def _login_answer(
    token: str, user: str, role: str, warehouse: str | None, database: str | None, schema: str | None
) -> dict[str, Any]:
    return {
        "token": token,
        "masterToken": token,
        "validityInSeconds": _SESSION_SECONDS,
        "masterValidityInSeconds": _MASTER_SECONDS,
        "sessionId": uuid.uuid4().int >> 66,
        "displayUserName": user,
        "serverVersion": fakesnow.server.SERVER_VERSION,
        "parameters": [
            {"name": "AUTOCOMMIT", "value": True},
            {"name": "CLIENT_SESSION_KEEP_ALIVE_HEARTBEAT_FREQUENCY", "value": 3600},
            # Batches are bound in the request itself: there is no stage to put them on.
            {"name": "CLIENT_STAGE_ARRAY_BINDING_THRESHOLD", "value": 0},
        ],
        "sessionInfo": {
            "databaseName": database,
            "schemaName": schema,
            "warehouseName": warehouse,
            "roleName": role,
        },
    }


def _default(account: Account, user: str, what: str) -> str | None:
    with account.lock:
        entity = account.find("USER", (user,))
        return entity.options.get(f"DEFAULT_{what}") if entity else None


def _upper(name: str | None) -> str | None:
    return name.upper() if name else None


def _failure(code: str, message: str) -> JSONResponse:
    return JSONResponse({"success": False, "code": code, "message": message, "data": {}})


def _message(answer: JSONResponse) -> str:
    return str(json.loads(bytes(answer.body)).get("message", ""))
