"""Compile the schemas of writer, reader and table into the plan by which the compiled decoder reads Avro records.

The rules of schema resolution are those of lakehouse.formats.avro.avro_resolution. The plan contains the part of them
that the decoder implements; whatever else a schema has is `Unsupported`, and Spark's own decoder reads its topic.
`native/src/avro.rs`, `native/src/columns.rs`, `native/src/partitions.rs` and `native/src/sorting.rs` have the form of a
plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from lakehouse.formats.avro.avro_defaults import encoded
from lakehouse.formats.avro.avro_format import is_double, is_long
from lakehouse.formats.avro.avro_resolution import fault, read_by, target
from lakehouse.formats.avro.avro_types import MAX_PRECISION, RecordField, Type

METADATA = (
    "kafka_topic",
    "kafka_partition",
    "kafka_offset",
    "kafka_timestamp",
    "kafka_timestamp_type",
    "kafka_raw_key",
    "kafka_raw_value",
    "kafka_schema_id",
)
"""Metadata columns, by their internal names, that the decoder writes."""

COLUMN_TYPES: Mapping[type[IcebergType], str] = {
    BinaryType: "binary",
    BooleanType: "boolean",
    DateType: "date",
    DoubleType: "double",
    FloatType: "float",
    IntegerType: "int",
    LongType: "long",
    StringType: "string",
    TimestampType: "timestamp",
    TimestamptzType: "timestamptz",
}

MILLIS, MICROS = ("timestamp-millis", "local-timestamp-millis"), ("timestamp-micros", "local-timestamp-micros")

TEMPORAL: Mapping[str, IcebergType] = {
    "date": DateType(),
    "timestamp-millis": TimestamptzType(),
    "timestamp-micros": TimestamptzType(),
    "local-timestamp-millis": TimestampType(),
    "local-timestamp-micros": TimestampType(),
}
"""Column types of logical types that are times."""

PLAIN: Mapping[str, IcebergType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
}
"""Column types of types without a logical type."""

MAX_WIDTH = 1 << 30
"""Maximum number of buckets, or width of a truncation: Java's numbers of 32 bits overflow beyond it."""


class Unsupported(Exception):
    """The decoder does not read these records. The text says why, and has no value."""


def layout(
    writers: Mapping[int, Type], reads: Type, schema: Schema, metadata: Mapping[str, str], key: Sequence[str] = ()
) -> dict[str, Any]:
    """Return how values become rows of a table (native/src/range.rs).

    Args:
        writers: The types that values were written with, by registry id; records.
        reads: The reader's type of all of them.
        schema: The columns of the table.
        metadata: The table's names of metadata columns by their internal names.
        key: The columns that must not be null.

    Raises:
        Unsupported: The decoder does not read such values, or does not write such columns.
    """
    if unknown := metadata.keys() - {*METADATA}:
        raise Unsupported(f"the decoder does not know the metadata column {min(unknown)}")
    places = {field.name: place for place, field in enumerate(schema.fields)}
    of_value = {n: field for n, field in enumerate(schema.fields) if field.name not in metadata.values()}
    plans: dict[int, dict[str, Any]] = {}
    reasons: list[Unsupported] = []
    for id_, wrote in writers.items():
        try:
            plans[id_] = _value(wrote, reads, of_value, frozenset(key))
        except Unsupported as reason:
            # Records of this version do not become rows.
            reasons.append(reason)
    if not plans:
        raise reasons[0]
    return {
        "writers": plans,
        # Names that Avro lacks differ in files, as those of Iceberg's own writer do. Readers use the ids of fields.
        "columns": [_column(field) for field in sanitize_column_names(schema).fields],
        "metadata": [(places[name], internal) for internal, name in metadata.items()],
    }


def partition_fields(spec: PartitionSpec, schema: Schema) -> list[dict[str, Any]]:
    """Return the fields of a partition spec for the decoder (native/src/partitions.rs).

    Args:
        spec: The spec by which rows are grouped.
        schema: The columns of the table.

    Raises:
        Unsupported: The decoder has no certain values of a field.
    """
    return [_partition_field(field, schema) for field in spec.fields]


def _partition_field(field: PartitionField, schema: Schema) -> dict[str, Any]:
    name = f"partition field '{field.name}'"
    transformed = _transformed(field.source_id, field.transform, schema, name)
    type_ = schema.fields[transformed["column"]].field_type
    # Numbers that are equal or NaN may differ in their bits.
    if isinstance(field.transform, IdentityTransform) and isinstance(type_, FloatType | DoubleType):
        raise Unsupported(f"the {name} is {field.transform} of {type_}")
    return transformed


def sort_fields(order: SortOrder, schema: Schema) -> list[dict[str, Any]]:
    """Return the fields of a sort order for the decoder (native/src/sorting.rs).

    Args:
        order: The order of rows in files.
        schema: The columns of the table.

    Raises:
        Unsupported: The decoder does not know the order of a field's values.
    """
    return [
        _transformed(field.source_id, field.transform, schema, f"sort field {number}")
        | {
            "descending": field.direction is SortDirection.DESC,
            "nulls_first": field.null_order is NullOrder.NULLS_FIRST,
        }
        for number, field in enumerate(order.fields, 1)
        if not isinstance(field.transform, VoidTransform)
    ]


def _transformed(source_id: int, transform: Transform[Any, Any], schema: Schema, name: str) -> dict[str, Any]:
    """Return a column and its transform.

    Args:
        source_id: The field id of the column.
        transform: The transform.
        schema: The columns of the table.
        name: The field of the partition spec or sort order, for messages.
    """
    place = next((place for place, column in enumerate(schema.fields) if column.field_id == source_id), None)
    if place is None:
        raise Unsupported(f"the source of {name} is not a column")
    type_, width = schema.fields[place].field_type, 1
    match transform:
        case BucketTransform():
            width = transform.num_buckets
        case TruncateTransform():
            width = transform.width
    is_known = isinstance(transform, VoidTransform) or transform.can_transform(type_)
    if isinstance(transform, UnknownTransform) or not is_known or not 0 < width <= MAX_WIDTH:
        raise Unsupported(f"the {name} is {transform} of {type_}")
    return {"column": place, "transform": str(transform).partition("[")[0], "width": width}


def _column(field: NestedField) -> dict[str, Any]:
    of = {"name": field.name, "id": field.field_id}
    match field.field_type:
        case DecimalType() as decimal:
            return of | {"type": "decimal", "precision": decimal.precision, "scale": decimal.scale}
        case StructType() as struct:
            return of | {"type": "struct", "fields": [_column(part) for part in struct.fields]}
        case ListType() as items:
            return of | {"type": "list", "element": _column(items.element_field)}
        case MapType() as entries:
            return of | {"type": "map", "key": _column(entries.key_field), "value": _column(entries.value_field)}
    name = COLUMN_TYPES.get(type(field.field_type))
    if name is None:
        raise Unsupported(f"column '{field.name}' has the type {field.field_type}")
    return of | {"type": name}


def _value(wrote: Type, reads: Type, into: Mapping[int, NestedField], key: frozenset[str]) -> dict[str, Any]:
    """Return the plan of values that one writer wrote."""
    if fault(wrote, reads):
        raise Unsupported("a version of the schema cannot be read by the newest one")
    return _record(wrote, reads, into, key)


def _record(wrote: Type, reads: Type, into: Mapping[int, NestedField], key: frozenset[str]) -> dict[str, Any]:
    """Return the plan of a record, whose fields become columns, given by their places."""
    places = {field.name: place for place, field in into.items()}
    if lacking := {field.name for field in reads.fields} - places.keys():
        raise Unsupported(f"the table has no column for field '{min(lacking)}'")
    readers, absent = read_by(wrote, reads), dict(places)
    fields: list[dict[str, Any]] = []
    for field in wrote.fields:
        reader = readers.get(field.name)
        if reader is None:
            fields.append({"node": _skipped(field.type), "column": None})
            continue
        place = absent.pop(reader.name)
        node = _place(field.type, reader.type, into[place].field_type)
        fields.append({"node": node, "column": place, "required": reader.name in key})
    unread = [field for field in reads.fields if field.name in absent and field.default != "null"]
    defaults = [_default(field, place := absent.pop(field.name), into[place].field_type) for field in unread]
    if null_key := key & absent.keys():
        raise Unsupported(f"a version of the schema lacks the key '{min(null_key)}'")
    return {"kind": "record", "fields": fields, "absent": sorted(absent.values()), "defaults": defaults}


def _default(field: RecordField, place: int, column: IcebergType) -> dict[str, Any]:
    """Return the plan of the value that a column has in records without its field."""
    assert field.default is not None, "the reader reads records without the field"
    try:
        value = encoded(field.type, json.loads(field.default))
    except ValueError as error:
        raise Unsupported(f"the default of field '{field.name}' is of another branch") from error
    return {"node": _place(field.type, field.type, column), "value": list(value), "column": place}


def _place(wrote: Type, reads: Type, column: IcebergType) -> dict[str, Any]:
    """Return the plan of a value that becomes a value of a column."""
    if wrote.kind != "union":
        return _branch(wrote, wrote, reads, column)
    return {"kind": "union", "branches": [_branch(branch, wrote, reads, column) for branch in wrote.inner]}


def _branch(branch: Type, wrote: Type, reads: Type, column: IcebergType) -> dict[str, Any]:
    if branch.kind == "null":
        return {"kind": "null"} if reads.nullable else {"kind": "refused"}
    to = target(wrote, branch, reads)
    if to is None or fault(branch, to):
        return {"kind": "refused"}
    if len(reads.branches) == 1 or is_long(reads) or is_double(reads):
        return _value_of(branch, to, reads, column)
    # Any other union is a struct with one field for each type, of which one is set.
    if not isinstance(column, StructType):
        raise Unsupported(f"a union becomes {column}")
    place = next(place for place, other in enumerate(reads.branches) if other is to)
    return {"kind": "member", "place": place, "node": _value_of(branch, to, to, column.fields[place].field_type)}


def _value_of(branch: Type, to: Type, reads: Type, column: IcebergType) -> dict[str, Any]:
    """Return the plan of a value that is read as one type."""
    match branch.kind, column:
        case "record", StructType() if not to.logical:
            return _record(branch, to, dict(enumerate(column.fields)), frozenset())
        case "array", ListType():
            return {"kind": "array", "items": _place(branch.inner[0], to.inner[0], column.element_type)}
        case "map", MapType():
            return {"kind": "map", "values": _place(branch.inner[0], to.inner[0], column.value_type)}
        case "enum", StringType():
            read = branch.symbols if to.kind == "string" else to.symbols
            return {"kind": "enum", "symbols": [symbol if symbol in read else None for symbol in branch.symbols]}
    return _scalar(branch, to, reads, column)


def _scalar(branch: Type, to: Type, reads: Type, column: IcebergType) -> dict[str, Any]:
    """Return the plan of a value without inner types."""
    expected: IcebergType | None
    if branch.logical == "decimal" and to.precision <= MAX_PRECISION:
        expected = DecimalType(to.precision, to.scale)
        node: dict[str, Any] = {"kind": "decimal", "size": branch.size or None, "precision": to.precision}
    elif branch.logical and branch.logical in TEMPORAL:
        expected = TEMPORAL[branch.logical]
        node = {"kind": "millis" if branch.logical in MILLIS else branch.kind}
    elif branch.logical in (None, "time-millis", "time-micros", "timestamp-nanos", "local-timestamp-nanos"):
        # A column of another logical type is of the plain type.
        expected = LongType() if is_long(reads) else DoubleType() if is_double(reads) else PLAIN.get(to.kind)
        # Bytes and text have one encoding; which of them is checked depends on the column.
        kind = to.kind if (branch.kind, to.kind) in (("bytes", "string"), ("string", "bytes")) else branch.kind
        node = {"kind": kind} | ({"size": branch.size} if kind == "fixed" else {})
    else:
        expected, node = None, {}
    if expected is None or expected != column:
        raise Unsupported(f"a value of {branch.logical or branch.kind} becomes {column}")
    return node


def _skipped(wrote: Type) -> dict[str, Any]:
    """Return the plan of a value that no column has."""
    match wrote.kind:
        case "union":
            return {"kind": "union", "branches": [_skipped(branch) for branch in wrote.inner]}
        case "record":
            fields = [{"node": _skipped(field.type), "column": None} for field in wrote.fields]
            return {"kind": "record", "fields": fields, "absent": []}
        case "array":
            return {"kind": "array", "items": _skipped(wrote.inner[0])}
        case "map":
            return {"kind": "map", "values": _skipped(wrote.inner[0])}
        case "enum":
            return {"kind": "enum", "symbols": list(wrote.symbols)}
        case "fixed":
            return {"kind": "fixed", "size": wrote.size}
        case "null" | "boolean" | "int" | "long" | "float" | "double" | "bytes" | "string":
            return {"kind": wrote.kind}
    raise Unsupported(f"a value is {wrote.kind}")
