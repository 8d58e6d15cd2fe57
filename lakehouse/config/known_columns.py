"""The columns that lakehouse.yaml names, compared with those that a topic's table will have.

The columns are those of a schema file, or of the newest schema in a registry. The comparison is not part of the
validation at the start of every process, because it reads the schemas of all topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import TYPE_CHECKING

from lakehouse.config import sensitive
from lakehouse.config.base import Fault, Location
from lakehouse.config.checks import AcceptedValues, Check, Range, References, Value
from lakehouse.config.model import Config, Topic
from lakehouse.config.sources import Derived, file_faults, is_file
from lakehouse.core import sql
from lakehouse.core.errors import SchemaError
from lakehouse.core.tables import layout
from lakehouse.core.text import did_you_mean
from lakehouse.formats import format_of
from lakehouse.formats.avro.avro_format import AvroFormat
from lakehouse.formats.columns import table_schema
from lakehouse.formats.format import MessageSchema
from lakehouse.formats.schema import RegisteredSchema, Shape

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType, NestedField, StructType

NUMBERS, TIMES = ("int", "long", "float", "double", "decimal"), ("timestamp", "timestamptz")
"""Types of Iceberg by their first words."""


@dataclass(frozen=True)
class KnownColumns:
    """The columns of values and keys that a topic's table will have."""

    origin: str
    """The schema that has them, for messages."""
    fields: Sequence[NestedField]
    previous: dict[str, tuple[str, ...]]
    """Previous names of fields by path."""

    def schema(self, topic: Topic) -> Schema:
        """Return the columns of the table, with the metadata columns."""
        from pyiceberg.types import StructType

        return table_schema(topic.metadata.names, StructType(*self.fields), StructType())


Columns = Callable[[Topic], KnownColumns | None]
"""A function that returns the columns of a topic; None if they are not known."""


def columns_of_files(config: Config) -> Columns:
    """Return the function for the columns of schema files. `schema_file_faults` has files without a valid schema."""

    def columns(topic: Topic) -> KnownColumns | None:
        files = [file for _, file in _schema_files(topic)]
        if topic.mode == "debezium" or not files or not all(is_file(config, file) for file in files):
            return None
        try:
            shapes = [_shape(config, topic, file) for file in files]
        except (ValueError, SchemaError):
            return None
        fields = [field for shape in shapes for field in shape.struct.fields]
        previous = {path: names for shape in shapes for path, names in shape.previous_names.items()}
        return KnownColumns(f"'{files[0]}'", with_key(topic, fields), previous)

    return columns


def schema_file_faults(config: Config) -> list[Fault]:
    """Return the schema files from which no table could be created."""
    entries = {("topics", name): topic for name, topic in config.topics.items()}
    entries |= {("routes", name): route for name, route in config.routes.items()}
    return [
        ((*place, *at), problem)
        for place, topic in entries.items()
        for at, file in (_schema_files(topic) if topic.mode != "debezium" else ())
        if (problem := _problem(config, topic, file))
    ]


def _problem(config: Config, topic: Topic, file: str) -> str:
    """Return why a file has no schema of a table; empty if it has one, or if `loader.load` reports it."""
    is_avro = bool(topic.source.schema_files)
    if not is_file(config, file) or (any(file_faults(config, (), file)) if is_avro else not topic.value_schema.strip()):
        return ""
    try:
        _shape(config, topic, file)
    except SchemaError as error:
        return f"'{file}' has no valid schema: {error}"
    except ValueError as error:
        return f"'{file}' has no valid schema: {error}. Correct the file"
    return ""


def _schema_files(topic: Topic) -> list[tuple[Location, str]]:
    """Return the files that together have the columns of a topic's values, each with the key that names it."""
    if files := topic.source.schema_files:
        keys = {getattr(topic.source, key): key for key in type(topic.source).model_fields}
        return [(("source", keys[file]), file) for file in files]
    return [(("value_schema_file",), topic.value_schema_file)] if topic.value_schema_file else []


def _shape(config: Config, topic: Topic, file: str) -> Shape:
    format_ = format_of(AvroFormat.name if topic.source.schema_files else topic.value_format)
    version = (RegisteredSchema(0, config.text(file)),)
    return format_.shape(MessageSchema(version, version, conversions=topic.conversions))


def with_key(topic: Topic, fields: Sequence[NestedField]) -> list[NestedField]:
    """Return fields with those that the message key adds: text, unless a schema says otherwise."""
    from pyiceberg.types import NestedField, StringType

    known = {field.name for field in fields}
    return [*fields, *(NestedField(1, name, StringType(), required=False) for name in topic.key if name not in known)]


def column_faults(config: Config, columns: Columns) -> list[Fault]:
    """Return schema files without columns, names that are no columns, and values of other types than their columns.

    Args:
        config: The configuration.
        columns: The columns of each topic.
    """
    faults = schema_file_faults(config)
    for name, topic in config.topics.items():
        source = config.topics.get(topic.source.upstream)
        if isinstance(topic.source, Derived) and source and (known := columns(source)):
            at = ("topics", name, "source", "group_by")
            faults += [(at, fault) for fault in _Named(known, source).unknown(topic.source.group_by)]
        if known := columns(topic):
            faults += [(("topics", name, *at), fault) for at, fault in _Named(known, topic).faults(config, columns)]
    return faults


@dataclass(frozen=True)
class _Named:
    """The columns that an entry names."""

    known: KnownColumns
    topic: Topic

    @cached_property
    def table(self) -> Schema:
        return self.known.schema(self.topic)

    def unknown(self, names: Sequence[str]) -> Iterator[str]:
        """Yield a fault if one of the names is no column."""
        if missing := sensitive.unmatched_names(names, self.table.fields, {}):
            yield f"{self.known.origin} {sensitive.unknown_columns(missing, self.known.fields)} Correct the name"

    def faults(self, config: Config, columns: Columns) -> Iterator[Fault]:
        """Yield the faults of one entry."""
        for key, terms in (("partition_by", self.topic.partition_by), ("sort_by", self.topic.sort_by)):
            for term in terms:
                with suppress(ValueError):  # which is reported elsewhere
                    yield from (((key,), fault) for fault in self._layout(term, key))
        for name, check in self.topic.checks.items():
            yield from ((("checks", name), fault) for fault in self.unknown(check.columns))
            yield from ((("checks", name, *at), fault) for at, fault in value_faults(check, self.table.as_struct()))
            if isinstance(check, References):
                other = next((one for one in config.topics.values() if one.table == check.table), None)
                if other and (columns_of_other := columns(other)):
                    column = check.table_column or check.column
                    yield from (
                        (("checks", name), fault) for fault in _Named(columns_of_other, other).unknown([column])
                    )

    def _layout(self, text: str, key: str) -> Iterator[str]:
        term = layout.parse(text, ordered=key == "sort_by")
        try:
            type_ = self.table.find_type(term.column)
        except ValueError:
            hint = did_you_mean(term.column, [field.name for field in self.table.fields])
            names = ", ".join(field.name for field in self.known.fields)
            yield f"{self.known.origin} has no column '{term.column}' among {names}.{hint} Correct the name"
            return
        if not term.iceberg.can_transform(type_):
            remedy = "Name another column, or write bucket(16, …)" if key == "partition_by" else "Name another column"
            yield f"'{term.column}' is a {type_}, to which {term.transform} does not apply. {remedy}"


def value_faults(check: Check, row: StructType) -> Iterator[Fault]:
    """Yield the values of a check that no value of its column equals.

    Args:
        check: The check.
        row: The columns.
    """
    types = {field.name.casefold(): field.field_type for field in row.fields}
    [name, *_] = check.columns or ("",)
    if (type_ := types.get(name.casefold())) is None:
        return
    values: list[tuple[Location, Value]] = []
    match check:
        case AcceptedValues():
            values = [(("values", number), value) for number, value in enumerate(check.values)]
        case Range():
            values = [(("min",), check.min)] if check.min is not None else []
            values += [(("max",), check.max)] if check.max is not None else []
    for at, value in values:
        if remedy := _wrong_type(value, type_):
            shown = f"'{value}'" if isinstance(value, str) else str(value).lower()
            yield at, f"{shown} is no value of column '{name}', which is a {type_}. {remedy}"


def _wrong_type(value: Value, type_: IcebergType) -> str:
    """Return how to correct a value that a column of the type cannot have; empty if it can."""
    kind = str(type_).partition("(")[0].partition("<")[0]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind in NUMBERS:
        return "" if is_number or (isinstance(value, str) and _is_number(value)) else "Write a number"
    if kind in ("string", "uuid"):
        return "" if isinstance(value, str) else "Write it in quotes"
    if kind == "boolean":
        is_bool = isinstance(value, bool) or str(value).lower() in ("true", "false")
        return "" if is_bool else "Write true or false"
    if kind == "date":
        return "" if _is_time(value, date) else "Write a date, such as '2026-01-31'"
    if kind in TIMES:
        return "" if _is_time(value, datetime) else "Write a time, such as '2026-01-31 12:00:00'"
    if kind in ("struct", "list", "map"):
        return "Use a check of type expression"
    return ""


def _is_number(text: str) -> bool:
    try:
        return Decimal(text) is not None
    except InvalidOperation:
        return False


def _is_time(value: Value, type_: type[date]) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return bool(sql.MOMENT.fullmatch(value)) or type_.fromisoformat(value) is not None
    except ValueError:
        return False
