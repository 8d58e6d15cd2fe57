"""The result of a query, and its lossless formats.

Values are written as in Iceberg's JSON single-value serialization (Iceberg, Table spec, appendix D): decimals and
binary are text, so that no parser rounds or corrupts them; binary is hexadecimal; times have six fractional digits,
or nine.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lakehouse.core.errors import LakehouseError

if TYPE_CHECKING:
    import pyarrow as pa

NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""Text for the numbers that JSON does not have."""


@dataclass(frozen=True)
class QueryResult:
    """Column names, and rows of Python values in that order."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @classmethod
    def of_arrow(cls, table: pa.Table) -> QueryResult:
        """Return an Arrow table as a result; two columns may have the same name."""
        from lakehouse.core.tables.arrow_values import pylist

        values = [pylist(column) for column in table.columns]
        return cls(table.column_names, list(zip(*values, strict=True)))

    def csv(self) -> str:
        """Return the result as CSV (RFC 4180) with a header.

        As in PostgreSQL, null is an empty field and empty text is `""`.
        """
        lines = [self.columns, *self.rows]
        return "".join(",".join(map(_field, line)) + "\r\n" for line in lines)

    def json(self) -> str:
        """Return the result as a JSON array with one object per line."""
        if twice := [name for name, count in Counter(self.columns).items() if count > 1]:
            raise LakehouseError(
                f"The result has several columns named {', '.join(twice)}, of which a JSON object would keep one. "
                f"Nothing was printed. Rename them with AS, or use `--output csv`"
            )
        lines = (json.dumps(dict(zip(self.columns, map(plain, row), strict=True))) for row in self.rows)
        return "[" + ",".join(f"\n{line}" for line in lines) + "\n]\n"

    def terminal_rows(self) -> list[list[Any]]:
        """Return the rows for a terminal: numbers and nulls unchanged, other values as text."""
        json_types = (int, float, Decimal, type(None))
        return [
            [v if isinstance(v, json_types) and not isinstance(v, bool) else text(v) for v in row] for row in self.rows
        ]


def plain(value: Any) -> Any:
    """Convert a value to its JSON form.

    Timestamps with a time zone are in UTC. A decimal with scale 0 is an integer, because engines differ in which of the
    two they return.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else NOT_FINITE[str(value)]
        case Decimal():
            return int(value) if value.as_tuple().exponent == 0 else f"{value:f}"
        case dt.datetime():
            # Arrow returns times in nanoseconds as a class of pandas.
            unit = "nanoseconds" if getattr(value, "nanosecond", 0) else "microseconds"
            return (value.astimezone(dt.UTC) if value.tzinfo else value).isoformat(timespec=unit)
        case dt.time():
            return value.isoformat(timespec="microseconds")
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case dict():
            return {text(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    return str(value)


def text(value: Any) -> str:
    """Convert a value to text; numbers, objects and arrays are written as JSON."""
    plain_value = plain(value)
    return plain_value if isinstance(plain_value, str) else json.dumps(plain_value)


def _field(value: Any) -> str:
    if value is None:
        return ""
    field = text(value)
    if field == "" or field != field.strip() or any(special in field for special in ',"\r\n'):
        return '"' + field.replace('"', '""') + '"'
    return field
