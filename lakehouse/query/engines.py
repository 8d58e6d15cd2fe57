"""The query engines by name, and the refusal of statements that are not queries.

The same statement runs in each engine: tables are named `namespace.table`.
"""

import logging
import re

import sqlglot
from sqlglot import Expr, exp
from sqlglot.errors import ParseError, SqlglotError

from lakehouse.core.errors import LakehouseError
from lakehouse.core.tables import naming
from lakehouse.query.result import QueryResult
from resources.aws.athena import Athena
from resources.protocols import Resources, find_resource, resource_of
from resources.snowflake.snowflake import Snowflake

QUERIES = (exp.Query, exp.Values, exp.Show, exp.Describe)

EFFECTS = (exp.DML, exp.DDL, exp.Command, exp.Into, exp.QueryTransform)
"""Parts of a query that write, or that run a script (`SELECT TRANSFORM … USING` of Spark)."""

CALLS = (exp.Anonymous, exp.DynamicIdentifier)
"""Calls of functions that are not part of standard SQL, by a name or by `IDENTIFIER('name')`."""

FUNCTIONS_WITH_EFFECTS = re.compile(r"SYSTEM\$|\b(java_method|(try_)?reflect)\b", re.IGNORECASE)
"""Snowflake's system functions, some of which control sessions, and Spark's functions that call Java."""

# sqlglot logs each statement of which it knows only the first word.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


def require_query(statement: str, engine: str) -> None:
    """Verify that a text is one statement that only reads.

    Args:
        engine: The engine, by which sqlglot also names its dialect.
    """
    if problem := _problem(statement, engine):
        raise LakehouseError(
            f"The SQL is not a single query: {problem}. Nothing was run. Correct the SQL; run a statement that writes "
            f"with a client of the engine"
        )


def _problem(statement: str, engine: str) -> str:
    """Return the reason why a text is not a single query; empty if it is one."""
    try:
        # A comment after the last semicolon is a statement to sqlglot.
        trees = [tree for tree in sqlglot.parse(statement, read=engine) if tree and tree.key != "semicolon"]
    except ParseError as error:  # Its text has escape sequences of terminals.
        return "{description} (line {line}, column {col})".format_map(error.errors[0])
    except (SqlglotError, RecursionError) as error:
        return str(error)
    if len(trees) != 1:
        return f"it has {len(trees)} statements"
    [tree] = trees
    # In Snowflake, `->>` precedes another statement.
    is_show = isinstance(tree, exp.Command) and tree.name.upper() == "SHOW" and "->>" not in statement
    if not is_show and not isinstance(tree, QUERIES):
        return f"it is {_kind(tree)}"
    for node in tree.find_all(*EFFECTS, *CALLS):
        if isinstance(node, CALLS) and FUNCTIONS_WITH_EFFECTS.search(node.name):
            return f"it calls {node.name}, which can have effects"
        if isinstance(node, EFFECTS) and node is not tree:
            return f"it contains {_kind(node)}"
    return ""


def _kind(node: Expr) -> str:
    return (node.name if isinstance(node, exp.Command) else node.key).upper()


def in_snowflake(statement: str, resources: Resources) -> QueryResult:
    """Run a statement in Snowflake."""
    return QueryResult(*resource_of(resources, "snowflake", Snowflake).query(statement))


def in_athena(statement: str, resources: Resources) -> QueryResult:
    """Run a statement in Athena."""
    return QueryResult(*resource_of(resources, "athena", Athena).query(statement))


def in_duckdb(statement: str, resources: Resources) -> QueryResult:
    """Run a statement in DuckDB, in this process."""
    from lakehouse.query.duckdb import query

    return query(statement, resources)


def in_spark(statement: str, resources: Resources) -> QueryResult:
    """Run a statement in Spark."""
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    # This logger prints every error as JSON, in addition to raising it.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel("CRITICAL")
    session = resources.spark.session(resources.catalog.spark_settings())
    try:
        session.catalog.setCurrentCatalog(naming.CATALOG)
        # Not collect(), which returns timestamps as local times without a time zone.
        return QueryResult.of_arrow(session.sql(statement).toArrow())
    except PySparkException as error:
        problem = str(error).partition("\n\nJVM stacktrace")[0].strip()
        raise LakehouseError(
            f"Spark refused the statement: {problem}. Correct the SQL and run `lakehouse query` again"
        ) from error


ENGINES = {"snowflake": in_snowflake, "athena": in_athena, "duckdb": in_duckdb, "spark": in_spark}
"""The function that runs a statement, by engine. Arguments: the statement, and the environment's resources."""


def run(statement: str, engine: str | None, resources: Resources) -> QueryResult:
    """Run a query in an engine; None is Snowflake where the environment has it, and else DuckDB."""
    engine = engine or ("snowflake" if find_resource(resources, "snowflake", Snowflake) else "duckdb")
    require_query(statement, engine)
    return ENGINES[engine](statement, resources)
