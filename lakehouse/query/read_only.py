"""Refuse statements that are not queries, before an engine receives them."""

import logging
import re

import sqlglot
from sqlglot import Expr, exp
from sqlglot.errors import ParseError, SqlglotError

from lakehouse.core.errors import LakehouseError

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
        statement: The text.
        engine: The engine, by which sqlglot also names its dialect.

    Raises:
        LakehouseError: It is another statement, or several, or cannot be parsed.
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
