"""What in Spark SQL may give another answer for the same row: the clock, chance, and where a query runs."""

from __future__ import annotations

import re
from collections.abc import Iterable

FUNCTIONS = frozenset(
    ("curdate", "current_date", "current_time", "current_timestamp", "localtimestamp", "now")
    + ("monotonically_increasing_id", "rand", "randn", "random", "randstr", "shuffle", "uniform", "uuid")
    + ("input_file_block_length", "input_file_block_start", "input_file_name", "spark_partition_id")
    + ("java_method", "reflect", "try_reflect")
)
"""Spark SQL, Built-in Functions."""

KEYWORDS = frozenset(("current_date", "current_time", "current_timestamp", "localtimestamp"))
"""Those of them that need no parentheses."""

MOMENT = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s+\S+)?\s*", re.IGNORECASE)
"""A text that means a time of the clock, in a time zone, where it becomes a date or a timestamp (Spark SQL)."""

_TOKENS = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")   # a literal
    |   `(?:[^`]|``)*` | --[^\n]* | /\*.*?\*/               # a quoted name, a comment
    |   (?P<name>[A-Za-z_]\w*)(?P<called>\s*\(\s*\)?)?        # a word, perhaps called, perhaps with nothing
    """,
    re.VERBOSE | re.DOTALL,
)


def found(expressions: Iterable[str]) -> str:
    """Return the first word of SQL expressions whose answer is not the row's alone; empty where there is none."""
    for expression in expressions:
        for token in _TOKENS.finditer(expression):
            name, called = (token["name"] or "").lower(), token["called"] or ""
            # Behind a point it is a field of a column.
            is_field = expression[: token.start()].rstrip().endswith(".")
            if token["text"] and MOMENT.fullmatch(token["text"][1:-1]):
                return token["text"]
            if name in FUNCTIONS and not is_field and (called or name in KEYWORDS):
                return token["name"]
            if name == "unix_timestamp" and called.rstrip().endswith(")"):
                return token["name"]
    return ""
