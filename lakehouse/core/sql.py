"""SQL text: quoting of names and values for each engine, and detection of nondeterministic Spark SQL."""

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """Quoting rules of an engine."""

    mark: str
    """Encloses an identifier; doubled within it."""
    escapes: dict[str, str]
    """Replacements of characters within a string literal."""

    def identifier(self, *parts: str) -> str:
        """Quote a name of one or more parts: `("lake", "ns", "t")` → `"lake"."ns"."t"`."""
        return ".".join(f"{self.mark}{part.replace(self.mark, self.mark * 2)}{self.mark}" for part in parts)

    def literal(self, value: str | bool | int | float) -> str:
        """Return a value as a literal. Numbers are finite: lakehouse.yaml has no others."""
        if isinstance(value, bool):
            return str(value).upper()
        if isinstance(value, str):
            return f"'{''.join(self.escapes.get(character, character) for character in value)}'"
        return repr(value)


SPARK = Dialect("`", {"\\": "\\\\", "'": "\\'"})
"""Spark SQL, Identifiers and Literals."""

SNOWFLAKE = Dialect('"', {"\\": "\\\\", "'": "''"})
"""Snowflake, Identifier requirements and String & binary data types."""

DUCKDB = Dialect('"', {"'": "''"})
"""DuckDB, Keywords and identifiers, and Text types: a backslash is literal."""


def tried(condition: str) -> str:
    """Return Spark SQL for whether a condition is not false: null if its evaluation raises an error.

    Of Spark's functions, only `try_to_binary` returns null for every error in its argument. Spark computes
    subexpressions that several expressions have once and outside of it, unless it is in a branch of a CASE.
    """
    return f"(try_to_binary(IF(COALESCE({condition}, TRUE), '01', '00'), 'hex') = X'01')"


FUNCTIONS = frozenset(
    ("curdate", "current_date", "current_time", "current_timestamp", "localtimestamp", "now")
    + ("monotonically_increasing_id", "rand", "randn", "random", "randstr", "shuffle", "uniform", "uuid")
    + ("input_file_block_length", "input_file_block_start", "input_file_name", "spark_partition_id")
    + ("java_method", "reflect", "try_reflect")
)
"""Nondeterministic functions (Spark SQL, Built-in Functions)."""

KEYWORDS = frozenset(("current_date", "current_time", "current_timestamp", "localtimestamp"))
"""Functions that need no parentheses."""

JAVA_PATTERNS = re.compile(r"(rlike|regexp(_\w+)?)\b.*|(split|str_to_map)\s*\(.*", re.IGNORECASE | re.DOTALL)
"""Operators and calls that match by Java's regular expressions (Spark SQL, Built-in Functions)."""

_TEXTS = r"""(?:\s*(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))"""
LIKE = re.compile(
    rf"({_TEXTS}+)\s*($|[),;]|(and|or|then|when|else|end|escape|group|having|order|limit|union)\b)",
    re.IGNORECASE | re.DOTALL,
)
"""What may follow LIKE: a literal, of one or more strings, that is no part of an expression."""

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


def has_slow_like(expression: str) -> bool:
    """Return whether the time of a LIKE or ILIKE in a SQL expression may grow faster than the length of a value.

    Spark evaluates it by Java's regular expressions, which try all lengths for all `%` before the end of the pattern:
    the square of the length for two of them.
    """
    for token in _TOKENS.finditer(expression):
        is_field = expression[: token.start()].rstrip().endswith(".")
        if is_field or (token["name"] or "").lower() not in ("like", "ilike"):
            continue
        pattern = LIKE.match(expression, token.end("name"))
        if not pattern or pattern[1].rstrip("'\"").rstrip("%").count("%") > 1:
            return True
    return False


def first_java_pattern(expression: str) -> str:
    """Return the first function or operator of a SQL expression that uses Java's regular expressions; empty if none."""
    for token in _TOKENS.finditer(expression):
        is_field = expression[: token.start()].rstrip().endswith(".")
        if token["name"] and JAVA_PATTERNS.fullmatch(token["name"] + (token["call"] or "")) and not is_field:
            return token["name"]
    return ""
