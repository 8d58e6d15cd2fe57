"""Convert message keys to the types of their columns, if those represent them exactly.

A key that is rounded or cut would be that of another row, which a tombstone would delete.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.core.sql import SPARK
from lakehouse.formats.json.json_explain import DATE, FIRST_MOMENT, LAST_MOMENT, LOCAL_TIME, MOMENT
from spark.decoding.conditions import is_true
from spark.decoding.surrogates import has_lone_surrogate

NUMBERS = (T.BooleanType, T.NumericType)
FRACTIONAL = (T.FloatType, T.DoubleType)

_NUMBER = r"^\+?(-?)(?=\.?[0-9])([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]{1,4}))?$"
"""Sign, integer digits, digits of the fraction, and exponent of a number in text."""

_MOST = 2**63 - 1
"""The largest long. Spark converts 2^63, which the floating-point types have in its place, from and to it."""


def exactly(value: Column, have: T.DataType, want: T.DataType) -> Column:
    """Return a key in another type, or null if that type does not represent it exactly.

    Such a key is a bad key, and must not fail the batch. Numbers have no unit, and dates and local times have no zone,
    so that they are not moments.
    """
    # The types of nested values also differ by which of them may be null.
    if have.simpleString() == want.simpleString():
        return value
    match have, want:
        case T.StringType(), _:
            return _of_text(value, want)
        case T.BinaryType(), T.StringType():
            return F.try_validate_utf8(value.cast(want))
        case ((T.BooleanType() | T.NumericType() | T.DateType()), T.StringType()):
            return value.cast(want)
    if not (isinstance(have, NUMBERS) and isinstance(want, NUMBERS)):
        return F.lit(None).cast(want)
    converted = value.try_cast(want)
    is_exact = converted.try_cast(have).eqNullSafe(value)
    for number, type_, other in ((value, have, want), (converted, want, have)):
        if isinstance(type_, T.LongType) and isinstance(other, FRACTIONAL):
            is_exact &= number != _MOST
    return F.when(is_exact, converted)


def text_of_json(value: Column) -> Column:
    """Return the text of a JSON string, number or boolean, without quotation marks and escapes; null for other JSON."""
    trimmed = F.trim(value, F.lit(" \t\r\n"))
    unquoted = F.try_variant_get(F.try_parse_json(trimmed), "$", "string")
    return F.when(trimmed.startswith('"'), F.when(~has_lone_surrogate(trimmed), unquoted)).when(
        ~trimmed.rlike(r"^[\[{n]"), trimmed
    )


def member_of_json(value: Column, name: str, *, is_only: bool) -> Column:
    """Return the text of a string, number or boolean in a JSON object, or in its `payload` beside a `schema` (Kafka
    Connect, JsonConverter); null for other members.

    Args:
        value: The JSON texts.
        name: The name of the member.
        is_only: Whether the key has one column, so that it may also be the JSON itself.
    """
    trimmed = F.trim(value, F.lit(" \t\r\n"))
    parsed = F.try_parse_json(trimmed)
    has_schema = is_true(F.try_variant_get(parsed, "$.schema.type", "string") == "struct")

    def member(path: str) -> Column:
        is_nested = is_true(F.schema_of_variant(F.try_variant_get(parsed, path, "variant")).rlike("^(OBJECT|ARRAY)"))
        return F.when(~is_nested, F.try_variant_get(parsed, path, "string"))

    in_object, in_payload = (member(f"${within}[{SPARK.literal(name)}]") for within in ("", ".payload"))
    of_object = F.when(~has_lone_surrogate(trimmed), F.when(has_schema, in_payload).otherwise(in_object))
    is_object = trimmed.startswith("{")
    return F.when(is_object, of_object).otherwise(text_of_json(value)) if is_only else F.when(is_object, of_object)


def _moment(text: str) -> Column:
    return F.lit(text).cast("timestamp")


def _of_text(text: Column, want: T.DataType) -> Column:
    """Return a text in another type. Numbers may have any form: the text `007` is the number 7."""
    match want:
        case T.BinaryType():
            return text.cast(want)
        case T.DateType():
            return F.when(text.rlike(DATE), text.try_cast(want))
        case T.TimestampType():
            moment = F.upper(text).try_cast(want)
            return F.when(text.rlike(MOMENT) & moment.between(_moment(FIRST_MOMENT), _moment(LAST_MOMENT)), moment)
        case T.TimestampNTZType():
            return F.when(text.rlike(LOCAL_TIME), F.upper(text).try_cast(want))
        case T.BooleanType() | T.IntegralType():
            return text.try_cast(want)
        case T.NumericType():
            converted = text.try_cast(want)
            numbers = F.array(F.trim(text), converted.cast("string"))
            normal = F.call_function("transform", numbers, F.expr(f"number -> {_normal('number')}"))
            return F.when(normal[0].eqNullSafe(normal[1]), converted)
    return F.lit(None).cast(want)


def _normal(number: str) -> str:
    """Return the SQL expression of a number in text, such that equal numbers are equal texts; null if it is none."""

    def group(place: int) -> str:
        return f"regexp_extract({number}, {SPARK.literal(_NUMBER)}, {place})"

    digits, power = f"ltrim('0', concat({group(2)}, {group(3)}))", f"if({group(4)} = '', '0', {group(4)})"
    trimmed = f"rtrim('0', {digits})"
    exponent = f"CAST({power} AS INT) - length({group(3)}) + length({digits}) - length({trimmed})"
    normal = f"if({digits} = '', '0', concat({group(1)}, {trimmed}, 'e', {exponent}))"
    return f"CASE WHEN {number} RLIKE {SPARK.literal(_NUMBER)} THEN {normal} END"
