"""Snowflake's context functions (CURRENT_USER, ...) and SYSTEM$ functions."""

from collections.abc import Callable

from sqlglot import Expr, exp

from lakehouse.local.snowflake import snowflake_errors
from lakehouse.local.snowflake.execution import storage, table_commands
from lakehouse.local.snowflake.parsing.tokens import TokenReader
from lakehouse.local.snowflake.session import Session

_CONTEXT: dict[str, Callable[[Session], str | None]] = {
    "CURRENT_ACCOUNT": lambda session: session.account.name,
    "CURRENT_USER": lambda session: session.user,
    "CURRENT_ROLE": lambda session: session.role,
    "CURRENT_WAREHOUSE": lambda session: session.warehouse,
    "CURRENT_DATABASE": lambda session: session.database,
    "CURRENT_SCHEMA": lambda session: session.schema,
    "CURRENT_REGION": lambda session: "AWS_" + session.lake.region.upper().replace("-", "_"),
}


def substitute(session: Session, expression: Expr) -> Expr:
    """Replace the calls of these functions by their values, in place."""
    return expression.transform(lambda node: _value(session, node), copy=False)


def _value(session: Session, node: Expr) -> Expr:
    if not isinstance(node, exp.Func):
        return node
    name = node.name.upper() if isinstance(node, exp.Anonymous) else node.sql_name().upper()
    if name in _CONTEXT:
        value = _CONTEXT[name](session)
    elif name == "SYSTEM$GET_ICEBERG_TABLE_INFORMATION":
        value = table_commands.information(session, _name(node))
    elif name == "SYSTEM$VERIFY_EXTERNAL_VOLUME":
        value = storage.verify(session, "EXTERNAL VOLUME", _name(node)[-1])
    elif name == "SYSTEM$VERIFY_CATALOG_INTEGRATION":
        value = storage.verify(session, "CATALOG INTEGRATION", _text(node))
    else:
        return node
    constant = exp.convert(value) if value is not None else exp.cast(exp.null(), "text")
    named = isinstance(node.parent, exp.Select)
    return exp.alias_(constant, node.sql(dialect="snowflake").upper(), quoted=True) if named else constant


def _text(call: exp.Func) -> str:
    argument = call.expressions[0] if len(call.expressions) == 1 else None
    if not (isinstance(argument, exp.Literal) and argument.is_string):
        raise snowflake_errors.syntax_error(call.sql(dialect="snowflake"), "one string: the object's name")
    return argument.this


def _name(call: exp.Func) -> tuple[str, ...]:
    tokens = TokenReader(_text(call))
    name = tokens.name()
    tokens.expect_end()
    return name
