"""Reasons why a JSON text does not decode: the field, the rule, and the byte, but no content of the value.

The text is parsed in plain Python, after Spark's parser refused it (RFC 8259, RFC 3339).
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from itertools import accumulate, chain
from typing import Any

from lakehouse.formats.json.json_format import JsonField

MAX_LEVELS, MAX_DIGITS = 1000, 1000
"""Limits of Spark's parser for values within values and characters of a number (Jackson, StreamReadConstraints)."""

EXACT = Context(prec=MAX_DIGITS, Emin=-(10**12), Emax=10**12)

_YEAR, _MONTH_AND_DAY = r"^(?!0000)\d{4}", r"-\d\d-\d\d"
_ZONE = r"([Zz]|[+-](?:(?:0\d|1[0-7]):[0-5]\d|18:00))"
_END = r"(?![\s\S])"
"""The end of the text. A dollar sign would also match before a final line break, in Java as in Python."""
DATE = _YEAR + _MONTH_AND_DAY + _END
_TIME = _MONTH_AND_DAY + r"[Tt ]\d\d:\d\d:\d\d(\.\d{1,6}0*)?"
TIME_AND_ZONE = _TIME + _ZONE + _END
LOCAL_TIME = _YEAR + _TIME + _END
MOMENT = _YEAR + TIME_AND_ZONE
"""RFC 3339, 5.6, with fractions that fit microseconds and zones of up to 18 hours (Java, java.time.ZoneOffset)."""
FIRST_MOMENT, LAST_MOMENT = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"

EXACT_INTEGER = 2**53
"""A double represents all smaller integers, but not the next larger one."""

DECIMAL = r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,9}))?"
"""Sign, integer digits, digits of the fraction, and exponent of a number (RFC 8259, 6)."""

_ESCAPES = re.compile(r"\\(?:u(?P<high>[dD][89abAB]..)\\u[dD][c-fC-F]..|u(?P<lone>[dD][89a-fA-F]..)|.)", re.DOTALL)


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


class _Number(str):
    """The text of a number."""


class _Object(dict[str, Any]):
    """An object. Of repeated members, the last one is used; `earlier` are the others by name."""

    def __init__(self, members: list[tuple[str, Any]]):
        super().__init__(members)
        self.earlier: dict[str, list[Any]] = {}
        if len(self) < len(members):
            counts = Counter(name for name, _ in members)
            for name, value in members:
                counts[name] -= 1
                if counts[name]:
                    self.earlier.setdefault(name, []).append(value)


def explain(data: bytes, start: int, fields: tuple[JsonField, ...], *, is_single: bool = False) -> str | None:
    """Return the reason why a JSON text is not an object with the fields; None if there is none.

    Args:
        data: The whole value.
        start: The index of the first byte of the text.
        fields: The fields of its schema.
        is_single: Whether the text is the value of the only field, and no object.
    """
    try:
        text = data[start:].decode()
    except UnicodeDecodeError as error:
        return f"the text is not valid UTF-8, at byte {start + error.start} of the value"

    def at(character: int) -> str:
        return f"at byte {start + len(text[:character].encode())} of the value"

    if _levels(text) > MAX_LEVELS:
        return f"values are nested more than {MAX_LEVELS} levels deep"
    for escape in _ESCAPES.finditer(text):
        if escape["lone"]:
            return f"half of a surrogate pair is escaped alone, {at(escape.start())}"
    try:
        value = json.loads(
            text, parse_int=_Number, parse_float=_Number, parse_constant=_refused, object_pairs_hook=_Object
        )
    except json.JSONDecodeError as error:
        return f"the text is not JSON ({error.msg}), {at(error.pos)}"
    except ValueError:
        return "the text is not JSON: it contains NaN or Infinity"
    except RecursionError:  # by the caller's stack, a few levels before the limit
        return f"values are nested more than {MAX_LEVELS} levels deep"
    if is_single:
        value = _Object([(fields[0].name, value)])
    if not isinstance(value, _Object):
        return f"an object is expected, but the text is {_kind(value)}"
    return next(_members(value, fields, ""), None)


def _levels(text: str) -> int:
    """Return how many objects and lists contain the innermost one. Python's parser has no such limit."""
    opened = (1 if bracket in "[{" else -1 for bracket in re.findall(r"[\[\]{}]", _STRING.sub("", text)))
    return max(accumulate(opened), default=0)


def _refused(_: str) -> None:
    raise ValueError


def _members(value: _Object, fields: tuple[JsonField, ...], path: str) -> Iterator[str]:
    for field in fields:
        member, member_path = value.get(field.name), f"{path}{field.name}"
        if member is not None:
            yield from _value(member, field, member_path)
        elif field.required:
            yield f"{member_path}: it is required, but {'null' if field.name in value else 'missing'}"
        # Spark's parser also refuses values of another type that a repeated member replaces.
        for replaced in value.earlier.get(field.name, ()):
            yield from () if replaced is None else _value(replaced, field, member_path)


def _value(value: Any, field: JsonField, path: str) -> Iterator[str]:
    """Yield the reasons why a value other than null does not fit a field."""
    kind = _kind(value)
    if isinstance(value, _Number) and len(value) > MAX_DIGITS:
        yield f"{path}: a number has more than {MAX_DIGITS:,} characters"
    match field.kind:
        case "struct" | "map" if not isinstance(value, _Object):
            yield f"{path}: an object is expected, but it is {kind}"
        case "struct":
            yield from _members(value, field.fields, f"{path}.")
        case "map":
            # Spark checks values that a repeated key replaces, too.
            for item in (*value.values(), *chain.from_iterable(value.earlier.values())):
                yield from _item(item, field.fields[0], f"{path}.value")
        case "list" if kind != "a list":
            yield f"{path}: a list is expected, but it is {kind}"
        case "list":
            for i, item in enumerate(value):
                yield from _item(item, field.fields[0], f"{path}[{i}]")
        case "long" | "double" if kind != "a number":
            yield f"{path}: a number is expected, but it is {kind}"
        case "long" if not re.fullmatch(DECIMAL, value):
            yield f"{path}: the exponent of a number has more than nine digits"
        case "long":
            yield from _integer(Decimal(value), path)
        case "double" if math.isinf(float(value)):
            yield f"{path}: a number does not fit a double"
        case "double" if field.of_integers and abs(float(value)) >= EXACT_INTEGER:
            yield f"{path}: an integer does not fit the 53 bits of a double, which a newer version of the schema has"
        case "text":
            yield from _any(value, path)
        case "string" if _has_infinite(value):
            yield f"{path}: a number does not fit a double"
        case "boolean" if not isinstance(value, bool):
            yield f"{path}: true or false is expected, but it is {kind}"
        case "date" if not (kind == "text" and _is_time(DATE, value, date)):
            yield f"{path}: a date as in RFC 3339 is expected, such as 2026-01-31"
        case "timestamp" if not (kind == "text" and _is_time(MOMENT, value.upper(), datetime)):
            yield (
                f"{path}: a date and time as in RFC 3339 is expected, with a zone of at most 18 hours and at most "
                f"microseconds, such as 2026-01-31T23:59:59.123456Z"
            )


def _integer(number: Decimal, path: str) -> Iterator[str]:
    """Yield the reasons why a number is not an integer of 64 bits. 1.0 and 1e2 are integers (JSON Schema, 6.1.1)."""
    sign, digits, exponent = number.normalize(EXACT).as_tuple()
    assert isinstance(exponent, int), "JSON has no infinite numbers"
    if exponent < 0:
        yield f"{path}: an integer is expected, but it has a fraction"
    elif any(digits) and (len(digits) + exponent > 19 or not -(2**63) <= int(number) < 2**63):
        yield f"{path}: an integer does not fit 64 bits"


def _any(value: object, path: str) -> Iterator[str]:
    """Yield the reasons why a value without a schema does not fit JSON text."""
    if isinstance(value, _Number) and math.isinf(float(value)):
        yield f"{path}: a number does not fit a double"
    if isinstance(value, _Object) and value.earlier:
        yield f"{path}: an object repeats a member"
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in items:
        yield from _any(item, path)


def _has_infinite(value: object) -> bool:
    """Return whether a value of any type contains a number that exceeds a double, also in repeated members."""
    match value:
        case _Number():
            return math.isinf(float(value))
        case _Object():
            return any(map(_has_infinite, (*value.values(), *chain.from_iterable(value.earlier.values()))))
        case list():
            return any(map(_has_infinite, value))
    return False


def _item(value: object, field: JsonField, path: str) -> Iterator[str]:
    if value is not None:
        yield from _value(value, field, path)
    elif field.required:
        yield f"{path}: it is required, but null"


def _is_time(pattern: str, text: str, kind: type[date]) -> bool:
    if not re.match(pattern, text):
        return False
    try:
        moment = kind.fromisoformat(re.sub(r"(\.\d{6})0+", r"\1", text))
        if isinstance(moment, datetime):
            moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return False
    return True


def _kind(value: object) -> str:
    match value:
        case _Number():
            return "a number"
        case str():
            return "text"
        case bool():
            return "true or false"
        case dict():
            return "an object"
        case list():
            return "a list"
    return "null"
