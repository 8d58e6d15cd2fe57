"""The result of a query, and how it is written without losing anything.

Values are written as Iceberg writes single values in JSON (Iceberg, Table spec, appendix D): decimals and binary are
text, so that no reader rounds or mangles them; binary is hexadecimal; times have six digits.
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
"""JSON has no numbers for these."""


@dataclass(frozen=True)
class Result:
    """Columns' names, and rows of Python values in their order."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @classmethod
    def of_arrow(cls, table: pa.Table) -> Result:
        """The same rows; two columns may have one name."""
        from lakehouse.core.arrow_values import pylist

        values = [pylist(column) for column in table.columns]
        return cls(table.column_names, list(zip(*values, strict=True)))

    def csv(self) -> str:
        """RFC 4180, with a header. As in PostgreSQL's CSV format null is nothing, and the empty text is `""`."""
        lines = [self.columns, *self.rows]
        return "".join(",".join(map(_field, line)) + "\r\n" for line in lines)

    def json(self) -> str:
        """An array of objects, one a line.

        Raises: LakehouseError when two columns have one name: an object would keep one of them.
        """
        if twice := [name for name, count in Counter(self.columns).items() if count > 1]:
            raise LakehouseError(
                f"The result has several columns called {', '.join(twice)}, of which a JSON object keeps one. Nothing "
                f"was printed. Name them apart with AS, or use `--output csv`"
            )
        lines = (json.dumps(dict(zip(self.columns, map(plain, row), strict=True))) for row in self.rows)
        return "[" + ",".join(f"\n{line}" for line in lines) + "\n]\n"

    def shown(self) -> list[list[Any]]:
        """Rows for a terminal: numbers and nulls as they are, the rest as text."""
        kept = (int, float, Decimal, type(None))
        return [[v if isinstance(v, kept) and not isinstance(v, bool) else text(v) for v in row] for row in self.rows]


def plain(value: Any) -> Any:
    """A value as JSON has it. Instants are in UTC; a decimal without fraction digits is a whole number, as engines
    differ in which of the two they return."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else NOT_FINITE[str(value)]
        case Decimal():
            return int(value) if value.as_tuple().exponent == 0 else f"{value:f}"
        case dt.datetime():
            return (value.astimezone(dt.UTC) if value.tzinfo else value).isoformat(timespec="microseconds")
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
    """A value as text; what JSON has as a number, an object or an array is written as JSON."""
    found = plain(value)
    return found if isinstance(found, str) else json.dumps(found)


def _field(value: Any) -> str:
    if value is None:
        return ""
    found = text(value)
    if found == "" or found != found.strip() or any(special in found for special in ',"\r\n'):
        return '"' + found.replace('"', '""') + '"'
    return found
