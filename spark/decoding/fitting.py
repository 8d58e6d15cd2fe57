"""Detect decoded values that the type of their column cannot hold: decimals with more digits, text that is not
UTF-8.

The conditions are SQL text: as columns, those of values within lists within lists would nest deeper than the messages
of Spark Connect may (spark.decoding.conditions).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lakehouse.core.sql import SPARK
from lakehouse.formats.avro.avro_resolution import LONG_DIGITS

if TYPE_CHECKING:
    from pyiceberg.types import IcebergType


def misfits(value: str, type_: IcebergType, level: int = 0) -> Iterator[str]:
    """Yield SQL conditions, never null, under which a value contains one that its type cannot hold.

    Decimals of more than 64 bits need no condition, because Spark refuses values that do not fit. Shorter decimals are
    truncated to 64 bits without an error, and text is not validated, so that readers of the file would fail (Parquet,
    LogicalTypes: STRING is UTF-8).

    Args:
        value: The SQL expression of the value.
        type_: The type of its column.
        level: The number of lists and maps that contain the value.
    """
    # Spark's Python workers, which unpickle codecs to explain dead letters, do not import it.
    from pyiceberg.types import DecimalType, ListType, MapType, StringType, StructType

    match type_:
        case DecimalType() if type_.precision <= LONG_DIGITS:
            yield f"coalesce(abs({value}) >= {10 ** (type_.precision - type_.scale)}BD, false)"
        case StringType():
            yield f"coalesce(NOT is_valid_utf8({value}), false)"
        case StructType():
            for field in type_.fields:
                yield from misfits(f"{value}.{SPARK.identifier(field.name)}", field.field_type, level)
        case ListType():
            yield from _misfit_items(value, type_.element_type, level)
        case MapType():
            yield from _misfit_items(f"map_keys({value})", type_.key_type, level)
            yield from _misfit_items(f"map_values({value})", type_.value_type, level)


def _misfit_items(items: str, type_: IcebergType, level: int) -> Iterator[str]:
    item = f"x{level}"
    if conditions := " OR ".join(misfits(item, type_, level + 1)):
        yield f"coalesce(exists({items}, {item} -> {conditions}), false)"
