"""fakesnow with this package's statements, functions and rights, by subclassing its three classes.

fakesnow has no plug-in point. What is used of its insides: `FakeSnow.duck_conn`, `FakeSnowflakeConnection._duck_conn`
and `_schema`, `FakeSnowflakeCursor._execute` and `_transform`, and the name `transforms.numeric_agg_implicit_cast`.
tests/stack/test_snowflake.py fails when another version of fakesnow changes them; 0.12.1 is locked.
"""

from __future__ import annotations

import shutil
from collections import OrderedDict
from pathlib import Path
from typing import Any

import fakesnow.transforms
from duckdb import DuckDBPyConnection
from fakesnow.conn import FakeSnowflakeConnection
from fakesnow.cursor import FakeSnowflakeCursor
from fakesnow.instance import FakeSnow
from fakesnow.transforms.transforms import _NUMERIC_ONLY_AGGS
from snowflake.connector.cursor import DictCursor
from snowflake.connector.errors import ProgrammingError
from sqlglot import Expr, exp

from lakehouse.core.sql import DUCKDB
from lakehouse.local.snowflake import commands, context, errors, rights, tables
from lakehouse.local.snowflake.account import Account
from lakehouse.local.snowflake.iceberg import Lake
from lakehouse.local.snowflake.session import Result
from lakehouse.local.snowflake.statements import parse
from lakehouse.local.snowflake.tokens import Name

MEMORY_LIMIT = "128MB"
"""Of DuckDB's buffers. The rows lie in files, so a table may be larger."""

RESULTS_KEPT = 32
"""fakesnow keeps each statement's rows for RESULT_SCAN and asynchronous queries, without an end."""


class Instance(FakeSnow):
    """One account's data, in DuckDB files."""

    def __init__(self, account: Account, lake: Lake, folder: Path):
        """
        Parameters: `folder` is emptied. The account's objects do not outlive the process, so neither does its data.
        """
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        super().__init__(create_database_on_connect=False, create_schema_on_connect=False, db_path=folder)
        self.account, self.lake = account, lake
        self.results_cache = RecentResults()
        self.duck_conn.execute(f"SET GLOBAL memory_limit = '{MEMORY_LIMIT}'")
        self.duck_conn.execute(f"SET GLOBAL temp_directory = {DUCKDB.literal(str(folder / 'spill'))}")
        self.duck_conn.execute("SET GLOBAL preserve_insertion_order = false")
        # DuckDB's own functions (read_csv, COPY, INSTALL ...) must not reach beyond the data.
        self.duck_conn.execute(f"SET GLOBAL allowed_directories = [{DUCKDB.literal(str(folder))}]")
        self.duck_conn.execute("SET GLOBAL enable_external_access = false")
        fakesnow.transforms.numeric_agg_implicit_cast = keep_numbers

    def open(self, user: str, role: str, warehouse: str | None, database: str | None, schema: str | None) -> Connection:
        """A session for a user who has proven to be one."""
        return Connection(self, user, role, warehouse, database, schema)


class Connection(FakeSnowflakeConnection):
    """A session: fakesnow's connection with a user, a role and a warehouse."""

    account: Account
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
        self.account, self.lake = instance.account, instance.lake
        self.user, self.role, self.warehouse = user, role, warehouse

    @property
    def duckdb(self) -> DuckDBPyConnection:
        """A new cursor on the same data, with a transaction of its own."""
        return self._duck_conn.cursor()

    def cursor(self, cursor_class: type = object) -> Cursor:
        """A cursor that knows all statements."""
        return Cursor(conn=self, duck_conn=self._duck_conn, use_dict_result=cursor_class is DictCursor)

    def run(self, sql: str) -> None:
        """Run a statement as plain fakesnow."""
        FakeSnowflakeCursor(conn=self, duck_conn=self._duck_conn).execute(sql)

    def resolve(self, name: Name, parts: int) -> Name:
        """The name with the session's database and schema in front, as far as it lacks them."""
        if len(name) > parts:
            raise errors.syntax_error(".".join(name), f"a name of at most {parts} part(s)")
        context = (self.database, self._schema)[: parts - 1]
        full: list[str] = []
        for part in (*context[: parts - len(name)], *name):
            if part is None:
                raise errors.no_schema()
            full.append(part)
        return tuple(full)


class Cursor(FakeSnowflakeCursor):
    """fakesnow's cursor: our statements run here, all others pass `_transform` on their way to DuckDB."""

    _conn: Connection

    def execute(self, command: str, params: Any = None, *args: Any, **kwargs: Any) -> FakeSnowflakeCursor:
        """Run one statement."""
        try:
            statement = parse(command)
            if statement is None:
                return super().execute(command, params, *args, **kwargs)
            self._execute(_select(commands.run(self._conn, statement)))
        except ProgrammingError as error:
            self._sqlstate = error.sqlstate
            raise
        return self

    def _transform(self, expression: Expr, params: Any) -> Expr:
        for name in rights.check(self._conn, expression):
            tables.refresh_if_due(self._conn, name)
        return super()._transform(context.substitute(self._conn, self._with_database(expression)), params)

    def _with_database(self, expression: Expr) -> Expr:
        """`X.T` is table T in schema X; where a database is named X too, DuckDB cannot tell and refuses."""
        for table in expression.find_all(exp.Table):
            if table.db and not table.catalog and table.db.upper() == (self._conn.database or "").upper():
                table.set("catalog", exp.to_identifier(self._conn.database, quoted=True))
        return expression


class RecentResults(OrderedDict[str, tuple]):
    """The results of the last statements only."""

    def __setitem__(self, key: str, value: tuple) -> None:
        super().__setitem__(key, value)
        while len(self) > RESULTS_KEPT:
            self.popitem(last=False)


def keep_numbers(aggregate: Expr) -> Expr:
    """In place of fakesnow's cast of what SUM, AVG ... aggregate to DOUBLE, which serves text and loses digits.

    sum(9007199254740993) must not be 9007199254740992. Only the column's name is set, as Snowflake spells it.
    """
    if isinstance(aggregate, (exp.Count, *_NUMERIC_ONLY_AGGS)) and isinstance(aggregate.parent, exp.Select):
        return exp.alias_(aggregate.copy(), aggregate.sql(dialect="snowflake").upper(), quoted=True)
    return aggregate


def _select(result: Result) -> Expr:
    """A query that gives these rows, so that they leave by the way of all others."""
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
