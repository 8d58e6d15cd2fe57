"""Statistics of the columns that a data file has in its manifest: those of Iceberg's own writer.

pyiceberg reads the same properties in another way: it has no bounds of fields within structs, no limit of columns, does
not prefer the columns of the sort order, and refuses a mode that Iceberg's writer ignores.

Source: Iceberg 1.12, Configuration: write properties (`write.metadata.metrics.*`), and MetricsConfig.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode, StatisticsCollector, parquet_path_to_id_mapping
from pyiceberg.schema import Schema, build_position_accessors
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
)

from spark.native.plan import Unsupported

if TYPE_CHECKING:
    from pyiceberg.table import Table

MOST_CHARACTERS = 16
"""Characters of the bounds of text by default, which have at most 64 bytes: footers of the decoder have no more."""

MOST_COLUMNS = 100
"""Number of columns that have statistics if a table declares neither their mode nor another number."""

NONE, COUNTS, FULL = map(MetricsMode, (MetricModeTypes.NONE, MetricModeTypes.COUNTS, MetricModeTypes.FULL))
TRUNCATED = MetricsMode(MetricModeTypes.TRUNCATE, MOST_CHARACTERS)
MODES: Mapping[str, MetricsMode] = {"none": NONE, "counts": COUNTS, "full": FULL}

PREFIX = "write.metadata.metrics."
COLUMN = f"{PREFIX}column."


def collectors(table: Table) -> dict[int, StatisticsCollector]:
    """Return the statistics of each leaf of a table's columns, by field id. Items of lists and maps have none."""
    schema = table.schema()
    modes, default = _modes(schema, table.properties, table.sort_order())
    columns, result = build_position_accessors(schema), {}
    for id_ in parquet_path_to_id_mapping(schema).values():
        name, type_ = schema.find_column_name(id_), schema.find_type(id_)
        assert name is not None and isinstance(type_, PrimitiveType), "files have values of leaves"
        mode = modes.get(name, default) if id_ in columns else NONE
        if mode.type == MetricModeTypes.TRUNCATE and not _is_truncated(type_):
            mode = FULL
        result[id_] = StatisticsCollector(field_id=id_, iceberg_type=type_, mode=mode, column_name=name)
    return result


def has_long_bounds(table: Table) -> bool:
    """Return whether bounds of text or bytes have more than MOST_CHARACTERS characters or bytes."""
    return any(
        _is_truncated(column.iceberg_type) and (column.mode == FULL or (column.mode.length or 0) > MOST_CHARACTERS)
        for column in collectors(table).values()
    )


def _is_truncated(type_: IcebergType) -> bool:
    return isinstance(type_, StringType | BinaryType)


def _modes(
    schema: Schema, properties: Mapping[str, str], order: SortOrder
) -> tuple[dict[str, MetricsMode], MetricsMode]:
    """Return the modes of some columns by their paths, and that of all others."""
    modes: dict[str, MetricsMode] = {}
    declared, most = properties.get(f"{PREFIX}default"), _most_columns(properties)
    if declared is not None:
        default = _mode(declared, TRUNCATED)
    elif _number(schema.as_struct()) <= most:
        default = TRUNCATED
    else:
        default = NONE
        modes = {_name(schema, id_): TRUNCATED for id_ in islice(_leaves(schema.as_struct()), most)}
    of_order = TRUNCATED if default in (NONE, COUNTS) else default
    modes |= {_name(schema, field.source_id): of_order for field in order.fields if field.transform.preserves_order}
    of_columns = {name.removeprefix(COLUMN): mode for name, mode in properties.items() if name.startswith(COLUMN)}
    return modes | {name: _mode(mode, default) for name, mode in of_columns.items()}, default


def _most_columns(properties: Mapping[str, str]) -> int:
    number = properties.get(f"{PREFIX}max-inferred-column-defaults", "-1")
    try:
        return int(number) if int(number) >= 0 else MOST_COLUMNS
    except ValueError as error:
        raise Unsupported("the number of columns with statistics is no number") from error


def _mode(text: str, otherwise: MetricsMode) -> MetricsMode:
    """Return a mode that a property declares, or another one if its text is not valid."""
    length = re.fullmatch(r"truncate\(([0-9]{1,9})\)", text.lower())
    if length and int(length[1]):
        return MetricsMode(MetricModeTypes.TRUNCATE, int(length[1]))
    return MODES.get(text.lower(), otherwise)


def _name(schema: Schema, id_: int) -> str:
    return schema.find_column_name(id_) or ""


def _number(type_: IcebergType) -> int:
    """Return the number of columns in a type, which decides whether all of them have statistics."""
    within = sum(_number(field.field_type) for field in _fields(type_))
    types = [field.field_type for field in _fields(type_)]
    if isinstance(type_, StructType):
        return within + sum(isinstance(of, StructType | PrimitiveType) for of in types)
    # Keys count only beside values without columns of their own.
    return within + (len(types) if types and isinstance(types[-1], PrimitiveType) else 0)


def _leaves(type_: IcebergType) -> Iterator[int]:
    """Yield the ids of the leaves of a type in the order in which they get statistics: those within others last."""
    fields = _fields(type_)
    yield from (field.field_id for field in fields if isinstance(field.field_type, PrimitiveType))
    for field in fields:
        yield from _leaves(field.field_type)


def _fields(type_: IcebergType) -> Sequence[NestedField]:
    match type_:
        case StructType():
            return type_.fields
        case ListType():
            return [type_.element_field]
        case MapType():
            return [type_.key_field, type_.value_field]
    return []
