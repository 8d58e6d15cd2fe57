"""Detect nondeterministic Spark SQL: functions of the clock, of chance, and of where a query runs."""

import re
from collections.abc import Iterable

FUNCTIONS = frozenset(
    ("curdate", "current_date", "current_time", "current_timestamp", "localtimestamp", "now")
    + ("monotonically_increasing_id", "rand", "randn", "random", "randstr", "shuffle", "uniform", "uuid")
    + ("input_file_block_length", "input_file_block_start", "input_file_name", "spark_partition_id")
    + ("java_method", "reflect", "try_reflect")
)
"""Nondeterministic functions (Spark SQL, Built-in Functions)."""

KEYWORDS = frozenset(("current_date", "current_time", "current_timestamp", "localtimestamp"))
"""Functions that need no parentheses."""

MOMENT = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s+\S+)?\s*", re.IGNORECASE)
"""A string that Spark SQL reads as a current date or time when it is cast to one."""

_TOKENS = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")   # a literal
    |   `(?:[^`]|``)*` | --[^\n]* | /\*.*?\*/               # a quoted name, a comment
    |   (?P<name>[A-Za-z_]\w*)(?P<call>\s*\(\s*\)?)?          # a word, perhaps a call, perhaps without arguments
    """,
    re.VERBOSE | re.DOTALL,
)


def first_nondeterministic(expressions: Iterable[str]) -> str:
    """Return the first token of SQL expressions whose value does not depend on the row alone; empty if none."""
    for expression in expressions:
        for token in _TOKENS.finditer(expression):
            name, call = (token["name"] or "").lower(), token["call"] or ""
            is_field = expression[: token.start()].rstrip().endswith(".")
            if token["text"] and MOMENT.fullmatch(token["text"][1:-1]):
                return token["text"]
            if name in FUNCTIONS and not is_field and (call or name in KEYWORDS):
                return token["name"]
            if name == "unix_timestamp" and call.rstrip().endswith(")"):
                return token["name"]
    return ""
