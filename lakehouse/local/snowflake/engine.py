"""Subclasses of fakesnow's three classes, which add this package's statements, functions and access control.

fakesnow has no extension point. These of its internals are used: `FakeSnow.duck_conn`,
`FakeSnowflakeConnection._duck_conn`, `_schema` and `variables`, `FakeSnowflakeCursor._execute` and `_transform`, and
`transforms.numeric_agg_implicit_cast`. tests/integration/test_snowflake.py fails when a version of fakesnow changes
them; 0.12.1 is locked.
"""

from __future__ import annotations

import re
import shutil
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakesnow.transforms
from duckdb import DuckDBPyConnection
from fakesnow.conn import FakeSnowflakeConnection
from fakesnow.cursor import FakeSnowflakeCursor
from fakesnow.instance import FakeSnow
from fakesnow.transforms.transforms import _NUMERIC_ONLY_AGGS
from fakesnow.variables import Variables
from snowflake.connector.cursor import DictCursor
from snowflake.connector.errors import ProgrammingError
from sqlglot import Expr, exp

from lakehouse.core.sql import DUCKDB
from lakehouse.local.snowflake import commands, iceberg_commands, linked_databases, snowflake_errors
from lakehouse.local.snowflake.account import Account, ClientSession, StatementResult
from lakehouse.local.snowflake.iceberg import Lake
from lakehouse.local.snowflake.statements import Name, Parser, TokenReader

MEMORY_LIMIT = "128MB"
"""Limit of DuckDB's buffers. Rows are in files, so a table may be larger."""

MAX_RESULTS = 32
"""Maximum number of results for RESULT_SCAN and asynchronous queries. fakesnow would never delete any."""


class Instance(FakeSnow):
    """One account's data, in DuckDB files."""

    def __init__(self, account: Account, parser: Parser, lake: Lake, folder: Path):
        """Create an empty database.

        Args:
            account: The account.
            parser: Parser of the statements that fakesnow lacks.
            lake: Access to Glue and S3.
            folder: Folder of the data. It is emptied, since the account's objects end with their process too.
        """
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        super().__init__(create_database_on_connect=False, create_schema_on_connect=False, db_path=folder)
        self.account, self.parser, self.lake = account, parser, lake
        self.results_cache = RecentResults()
        self.duck_conn.execute(f"SET GLOBAL memory_limit = '{MEMORY_LIMIT}'")
        self.duck_conn.execute(f"SET GLOBAL temp_directory = {DUCKDB.literal(str(folder / 'spill'))}")
        self.duck_conn.execute("SET GLOBAL preserve_insertion_order = false")
        # DuckDB's functions (read_csv, COPY, INSTALL ...) must not access anything but the data.
        self.duck_conn.execute(f"SET GLOBAL allowed_directories = [{DUCKDB.literal(str(folder))}]")
        self.duck_conn.execute("SET GLOBAL enable_external_access = false")
        fakesnow.transforms.numeric_agg_implicit_cast = keep_numbers


QUOTED = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"]|"")*"|\$\$.*?\$\$|--[^\n]*|//[^\n]*|/\*.*?\*/""", re.DOTALL)
"""Strings, quoted names and comments of a statement, in which `$name` is no variable (Snowflake, SQL variables)."""


class SessionVariables(Variables):
    """fakesnow's variables of a session, which it would also replace in quoted text."""

    def inline_variables(self, sql: str) -> str:
        parts, end = [], 0
        for quoted in QUOTED.finditer(sql):
            parts += [super().inline_variables(sql[end : quoted.start()]), quoted.group()]
            end = quoted.end()
        return "".join([*parts, super().inline_variables(sql[end:])])


class Connection(FakeSnowflakeConnection):
    """A session (account.ClientSession): fakesnow's connection with a user, a role and a warehouse."""

    account: Account
    parser: Parser
    lake: Lake
    user: str
    role: str
    warehouse: str | None

    def __init__(
        self, instance: Instance, user: str, role: str, warehouse: str | None, database: str | None, schema: str | None
    ):
        super().__init__(
            instance.duck_conn.cursor(),
            instance.results_cache,
            database,
            schema,
            create_database=False,
            create_schema=False,
            db_path=instance.db_path,
        )
        self.account, self.parser, self.lake = instance.account, instance.parser, instance.lake
        self.variables = SessionVariables()
        self.user, self.role, self.warehouse = user, role, warehouse

    @property
    def duckdb(self) -> DuckDBPyConnection:
        return self._duck_conn.cursor()

    def cursor(self, cursor_class: type = object) -> Cursor:
        return Cursor(conn=self, duck_conn=self._duck_conn, use_dict_result=cursor_class is DictCursor)

    def run(self, sql: str) -> None:
        FakeSnowflakeCursor(conn=self, duck_conn=self._duck_conn).execute(sql)

    def resolve(self, name: Name, parts: int) -> Name:
        if len(name) > parts:
            raise snowflake_errors.syntax_error(".".join(name), f"a name of at most {parts} part(s)")
        context = (self.database, self._schema)[: parts - 1]
        full: list[str] = []
        for part in (*context[: parts - len(name)], *name):
            if part is None:
                raise snowflake_errors.no_schema()
            full.append(part)
        return tuple(full)


class Cursor(FakeSnowflakeCursor):
    """fakesnow's cursor, which runs this package's statements, and transforms all others for DuckDB."""

    _conn: Connection

    def execute(self, command: str, params: Any = None, *args: Any, **kwargs: Any) -> FakeSnowflakeCursor:
        try:
            linked_databases.synchronize(self._conn)
            statement = self._conn.parser.parse(command)
            if statement is None:
                return super().execute(command, params, *args, **kwargs)
            self._execute(_select(commands.run(self._conn, statement)))
        except ProgrammingError as error:
            self._sqlstate = error.sqlstate
            raise
        return self

    def _transform(self, expression: Expr, params: Any) -> Expr:
        for name in _check_query(self._conn, expression):
            iceberg_commands.refresh_if_due(self._conn, name)
        return super()._transform(_substitute_functions(self._conn, self._with_database(expression)), params)

    def _with_database(self, expression: Expr) -> Expr:
        """Qualify `X.T`, table T of schema X, by the database. DuckDB rejects it if a database is named X."""
        for table in expression.find_all(exp.Table):
            if table.db and not table.catalog and table.db.upper() == (self._conn.database or "").upper():
                table.set("catalog", exp.to_identifier(self._conn.database, quoted=True))
        return expression


class RecentResults(OrderedDict[str, tuple]):
    """The results of the last `MAX_RESULTS` statements."""

    def __setitem__(self, key: str, value: tuple) -> None:
        super().__setitem__(key, value)
        while len(self) > MAX_RESULTS:
            self.popitem(last=False)


def keep_numbers(aggregate: Expr) -> Expr:
    """Name an aggregate's column as Snowflake does, and leave its argument unchanged.

    This replaces fakesnow's cast of the argument to DOUBLE, which supports text but loses digits: with it,
    sum(9007199254740993) is 9007199254740992.
    """
    if isinstance(aggregate, (exp.Count, *_NUMERIC_ONLY_AGGS)) and isinstance(aggregate.parent, exp.Select):
        return exp.alias_(aggregate.copy(), aggregate.sql(dialect="snowflake").upper(), quoted=True)
    return aggregate


def _select(result: StatementResult) -> Expr:
    """Return a query with these rows as its result, so that they are returned like those of other statements."""
    rows = result.rows or [tuple("" for _ in result.columns)]
    selects = [
        exp.select(
            *(exp.alias_(_constant(v), column, quoted=True) for column, v in zip(result.columns, row, strict=True))
        )
        for row in rows
    ]
    query = exp.union(*selects, distinct=False) if len(selects) > 1 else selects[0]
    return query if result.rows else selects[0].limit(0)


def _constant(value: Any) -> Expr:
    return exp.cast(exp.null(), "text") if value is None else exp.convert(value)


# sqlglot turns what it cannot parse into a Command, which DuckDB would run if it is one of DuckDB's statements.
_DUCKDB_STATEMENTS = (exp.Command, exp.Pragma, exp.Attach, exp.Detach)
_WRITES = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.TruncateTable, exp.Alter, exp.Drop)


def _check_query(session: ClientSession, expression: Expr) -> list[Name]:
    """Check that the session's role may run a statement.

    Returns:
        The Iceberg tables that the statement reads.
    """
    if isinstance(expression, _DUCKDB_STATEMENTS):
        raise snowflake_errors.not_emulated(f"The statement '{expression.sql(dialect='snowflake')[:80]}'")
    if isinstance(expression, exp.Use):
        return []
    local = {cte.alias.upper() for cte in expression.find_all(exp.CTE)}
    with session.account.lock:
        read = [
            _check_table(session, expression, table)
            for table in expression.find_all(exp.Table)
            if isinstance(table.this, exp.Identifier) and not (len(table.parts) == 1 and table.name.upper() in local)
        ]
    return [name for name in read if name]


def _check_table(session: ClientSession, expression: Expr, table: exp.Table) -> Name | None:
    """Check one table of a statement, and return its full name if it is an Iceberg table."""
    account, role = session.account, session.role
    parts: Name = tuple(part.name if part.args.get("quoted") else part.name.upper() for part in table.parts)
    if len(parts) > 3 or (len(parts) < 3 and not session.database) or (len(parts) == 1 and not session.schema):
        return None  # fakesnow reports the missing part
    name = session.resolve(parts, 3)
    if not any(part.args.get("quoted") for part in table.parts):
        name = linked_databases.spelled_in_catalog(account, name)
    for kind, container in (("DATABASE", name[:1]), ("SCHEMA", name[:2])):
        if account.find(kind, container):
            account.require("USAGE", kind, container, role)
    target = expression.this.this if isinstance(expression.this, exp.Schema) else expression.this
    if isinstance(expression, exp.Create) and target is table:
        account.require_unlinked(name)
        privilege = f"CREATE {expression.kind}"
        if expression.kind in ("TABLE", "VIEW") and account.find("SCHEMA", name[:2]):
            account.require(privilege, "SCHEMA", name[:2], role)
    if account.find("ICEBERG TABLE", name) is None:
        # DuckDB would ignore the case of quoted names.
        if linked_databases.is_linked(account, name) and name[1] != "INFORMATION_SCHEMA":
            raise snowflake_errors.missing("OBJECT", ".".join(name))
        return None
    if isinstance(expression, (*_WRITES, exp.Create)) and expression.find(exp.Table) is table:
        raise snowflake_errors.failed(f"Iceberg table {name[2]} is read-only: it belongs to an external catalog")
    account.require("SELECT", "ICEBERG TABLE", name, role)
    if not session.warehouse or not account.allowed("USAGE", "WAREHOUSE", (session.warehouse,), role):
        raise snowflake_errors.no_warehouse()
    return name


_CONTEXT: dict[str, Callable[[ClientSession], str | None]] = {
    "CURRENT_ACCOUNT": lambda session: session.account.name,
    "CURRENT_USER": lambda session: session.user,
    "CURRENT_ROLE": lambda session: session.role,
    "CURRENT_WAREHOUSE": lambda session: session.warehouse,
    "CURRENT_DATABASE": lambda session: session.database,
    "CURRENT_SCHEMA": lambda session: session.schema,
    "CURRENT_REGION": lambda session: "AWS_" + session.lake.region.upper().replace("-", "_"),
}


def _substitute_functions(session: ClientSession, expression: Expr) -> Expr:
    """Replace the calls of these functions by their values, in place."""
    return expression.transform(lambda node: _function_value(session, node), copy=False)


def _function_value(session: ClientSession, node: Expr) -> Expr:
    if not isinstance(node, exp.Func):
        return node
    name = node.name.upper() if isinstance(node, exp.Anonymous) else node.sql_name().upper()
    if name in _CONTEXT:
        value = _CONTEXT[name](session)
    elif name == "SYSTEM$GET_ICEBERG_TABLE_INFORMATION":
        value = iceberg_commands.table_information(session, _name(node))
    elif name == linked_databases.STATE:
        value = linked_databases.link_status(session, _name(node))
    elif name == "SYSTEM$VERIFY_EXTERNAL_VOLUME":
        value = iceberg_commands.verify(session, "EXTERNAL VOLUME", _name(node)[-1])
    elif name == "SYSTEM$VERIFY_CATALOG_INTEGRATION":
        value = iceberg_commands.verify(session, "CATALOG INTEGRATION", _text(node))
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
