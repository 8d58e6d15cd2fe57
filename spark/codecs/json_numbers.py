"""Find and rewrite the numbers of JSON texts that Spark's parser reads inexactly, or not at all.

The numbers in text are not such numbers, so the JSON text is split into its tokens.
"""

from __future__ import annotations

import json

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.core.sql import SPARK
from lakehouse.formats.json.json_explain import DECIMAL

# The possessive quantifiers prevent a stack overflow for long text (java.util.regex.Pattern).
_TOKENS = r'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?[0-9][0-9.eE+-]*+|[^"0-9-]++|.'

_FRACTION = r"[0-9](?:\.[0-9]|[eE][0-9+-])"
"""Pattern of a number with a fraction or exponent. It may match text."""


def with_marked_infinite(text: Column, mark: str) -> Column:
    """Return a JSON text with the text `mark` in place of numbers that exceed a double."""
    tokens = F.regexp_extract_all(text, F.lit(_TOKENS), F.lit(0))
    is_infinite = "token RLIKE '^-?[0-9]' AND abs(try_cast(token AS DOUBLE)) = double('Infinity')"
    marked = f"token -> CASE WHEN {is_infinite} THEN {SPARK.literal(json.dumps(mark))} ELSE token END"
    return F.array_join(F.call_function("transform", tokens, F.expr(marked)), "")


def has_fraction(text: Column) -> Column:
    """Return whether a JSON text may have a number with a fraction or exponent."""
    return text.rlike(_FRACTION)


def with_plain_integers(text: Column) -> Column:
    """Return a JSON text with integers that are written with a fraction or exponent, such as 1.0, in plain digits."""
    tokens = F.regexp_extract_all(text, F.lit(_TOKENS), F.lit(0))
    return F.array_join(F.call_function("transform", tokens, F.expr(f"token -> {_plain('token')}")), "")


def _plain(token: str) -> str:
    """Return the SQL expression of a token, rewritten if it is an integer with a fraction or exponent."""

    def group(number: int) -> str:
        return f"regexp_extract({token}, {SPARK.literal(f'^{DECIMAL}$')}, {number})"

    # The digits without leading zeros, and the power of ten that they are multiplied by.
    digits = f"ltrim('0', concat({group(2)}, {group(3)}))"
    power = f"CAST(if({group(4)} = '', '0', {group(4)}) AS INT) - length({group(3)})"
    rewritten = f"""transform(array(struct({digits} AS digits, {power} AS power)), number -> CASE
        WHEN number.digits = '' THEN '0'
        WHEN number.power BETWEEN 0 AND 20 THEN concat({group(1)}, number.digits, repeat('0', number.power))
        WHEN number.power < 0 AND length(rtrim('0', number.digits)) <= length(number.digits) + number.power
        THEN concat({group(1)}, left(number.digits, length(number.digits) + number.power))
        ELSE {token} END)[0]"""
    is_integer = f"{token} RLIKE {SPARK.literal(f'^{DECIMAL}$')} AND {token} RLIKE '[.eE]'"
    return f"CASE WHEN {is_integer} THEN {rewritten} ELSE {token} END"
