"""Format `avro`: columns of Avro schemas, matching Spark's from_avro, and the reader type of all versions of a schema.

Sources: Spark, "Apache Avro Data Source Guide" (supported types for Avro → Spark SQL); Iceberg table specification,
"Appendix A: Avro". docs/types.md has the table of types.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse.core.errors import SchemaError
from lakehouse.core.table_protocol import UNION_BRANCH
from lakehouse.formats.avro import avro_types
from lakehouse.formats.avro.avro_types import MAX_PRECISION, PRIMITIVES, Type, merged, parse, require_bounded
from lakehouse.formats.avro.connect_types import with_logical_types
from lakehouse.formats.columns import distinct
from lakehouse.formats.format import MessageSchema, RegisteredFormat
from lakehouse.formats.json import json_text
from lakehouse.formats.schema import RegisteredSchema, Shape

if TYPE_CHECKING:
    from pyiceberg.types import IcebergType, StructType


RECORD_OF_VALUE = "LakehouseValue"
"""The name of a record with a single value, which has no name of its own."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Names in Avro (specification, Names)."""


class AvroFormat(RegisteredFormat):
    """Avro records in the Confluent wire format."""

    name = "avro"
    decoder = "spark.codecs.avro_codec:decoder"
    schema_type = "AVRO"
    suffix = ".avsc"

    def reader(self, schema: MessageSchema) -> Type:
        versions = [with_logical_types(version, schema.conversions) for version in schema.read_by]
        return reader(versions, limits_decimals=schema.conversions.wide_decimals == "limit")

    def columns(self, reader: Type) -> Shape:
        return columns(reader)

    def names(self, schema: RegisteredSchema) -> tuple[str, ...]:
        parsed = self.parse(schema)
        if not isinstance(parsed, dict) or not isinstance(name := parsed.get("name"), str):
            return ()
        namespace, aliases = parsed.get("namespace"), parsed.get("aliases")
        namespace = name.rpartition(".")[0] if "." in name else namespace if isinstance(namespace, str) else ""
        others = [alias for alias in aliases if isinstance(alias, str)] if isinstance(aliases, list) else []
        return tuple(alias if "." in alias or not namespace else f"{namespace}.{alias}" for alias in (name, *others))

    def as_record(self, schema: RegisteredSchema, column: str) -> RegisteredSchema:
        # Avro, Binary encoding: a record is encoded as the concatenation of its fields.
        try:
            type_ = parse(schema)
        except SchemaError:
            return schema
        kinds = {type_.kind, *(branch.kind for branch in type_.inner if type_.kind == "union")}
        if not kinds <= {*PRIMITIVES, "enum", "fixed", "union"} or not NAME.fullmatch(column):
            return schema
        record = {"type": "record", "name": RECORD_OF_VALUE, "fields": [{"name": column, "type": self.parse(schema)}]}
        return replace(schema, text=json.dumps(record))

    def is_named(self, schema: RegisteredSchema, record: str) -> bool:
        return any(record in (name, name.rpartition(".")[2]) for name in self.names(schema)[:1])


def reader(schemas: Sequence[RegisteredSchema], *, limits_decimals: bool = False) -> Type:
    """Return the reader type of records of every version: the newest version merged with the older ones.

    Fields that the newest version dropped follow the others and are optional; enums have the symbols and unions the
    branches of all versions; a field that an older version lacks is null there unless it has a default. Fields renamed
    by alias, or in case only, are not dropped.

    Args:
        schemas: The subject's versions, newest last.
        limits_decimals: Whether decimals of more digits than Iceberg has are read with its maximum.
    """
    type_, *older = (parse(schema) for schema in reversed(schemas))
    if type_.kind != "record":
        raise SchemaError("The Avro schema is not a record, so it has no columns. Wrap the value in a record")
    for version in older:
        type_ = merged(type_, version)
    require_bounded(type_)
    return _limited(type_) if limits_decimals else type_


def _limited(type_: Type) -> Type:
    """Return the type with at most MAX_PRECISION digits in each decimal."""
    if type_.logical == "decimal":
        return replace(type_, precision=min(type_.precision, MAX_PRECISION))
    fields = tuple(replace(field, type=_limited(field.type)) for field in type_.fields)
    return replace(type_, fields=fields, inner=tuple(map(_limited, type_.inner)))


def field_names(schema: str) -> list[str]:
    """Return the names of the top-level fields of a record schema, in order.

    Raises:
        SchemaError: The schema is not a record, or a field has no name.
        ValueError: The schema is not JSON.
    """
    parsed = json.loads(schema)
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise SchemaError("The Avro schema is not a record, so it has no columns. Wrap the value in a record")
    try:
        return [field["name"] for field in parsed["fields"]]
    except (KeyError, TypeError) as error:
        problem = "'fields' must be a list of objects, each with a 'name'"
        raise SchemaError(f"The Avro schema is not valid: {problem}. Correct it") from error


MAX_BRANCH_CHARACTERS = 200
"""Maximum characters of a type's name in a column comment, which Glue limits to 255 (AWS Glue API, CommentString)."""


def is_long(type_: Type) -> bool:
    """Return whether Spark reads the union as one long."""
    return _kinds(type_) == ["int", "long"] and not any(branch.logical for branch in type_.branches)


def is_double(type_: Type) -> bool:
    """Return whether Spark reads the union as one double."""
    return _kinds(type_) == ["double", "float"]


def _kinds(type_: Type) -> list[str]:
    return sorted(branch.kind for branch in type_.branches)


def columns(root: Type) -> Shape:
    """Return the columns of a record type."""
    walk = _Columns()
    try:
        return Shape(walk.struct(root, ""), walk.previous_names)
    except (TypeError, ValueError) as error:
        # An attribute has a value of the wrong type, such as a number as `doc`.
        raise SchemaError(f"The Avro schema is not valid: {type(error).__name__} {error}. Correct it") from error


class _Columns:
    """Columns of one type, and the former names of fields by path, collected recursively."""

    def __init__(self) -> None:
        self.previous_names: dict[str, tuple[str, ...]] = {}
        self.fields = 0

    def next_id(self) -> int:
        """Return a unique field id. The table's own ids replace it later."""
        self.fields += 1
        return self.fields

    def struct(self, record: Type, path: str) -> StructType:
        from pyiceberg.types import NestedField, StructType

        fields = []
        for column in record.fields:
            at = f"{path}{column.name}"
            if column.aliases:
                self.previous_names[at] = column.aliases
            type_ = self.type(column.type, at)
            doc = json_text.avro_comment(column.doc)
            fields.append(NestedField(self.next_id(), column.name, type_, required=False, doc=doc))
        if not fields:
            where = f" at '{path.rstrip('.')}'" if path else ""
            raise SchemaError(
                f"The Avro record '{record.name}'{where} has no fields, so it has no columns. Add a field to it"
            )
        distinct(fields)
        return StructType(*fields)

    def type(self, place: Type, path: str) -> IcebergType:
        """Return the type that Spark decodes to: logical types as such, enums as strings, fixed as binary.

        Null makes a column optional, int|long is long, float|double is double, and any other union is a struct with one
        field `member<n>` per branch, exactly one of which is set (Spark, Avro Data Source Guide).
        """
        from pyiceberg import types as t

        match place.branches:
            case ():
                return self.branch(place, path)
            case (branch,):
                return self.branch(branch, path)
        if is_long(place):
            return t.LongType()
        if is_double(place):
            return t.DoubleType()
        members = []
        for i, branch in enumerate(place.branches):
            type_ = self.branch(branch, f"{path}.member{i}")
            members.append(t.NestedField(self.next_id(), f"member{i}", type_, required=False, doc=_comment(branch)))
        return t.StructType(*members)

    def branch(self, type_: Type, path: str) -> IcebergType:
        from pyiceberg import types as t

        match type_.kind, type_.logical:
            case _, "decimal":
                if type_.precision > MAX_PRECISION:
                    raise SchemaError(
                        f"Avro decimal({type_.precision}, {type_.scale}) at '{path}' has more than the {MAX_PRECISION} "
                        f"digits of Iceberg. Add 'wide_decimals: limit' to the topic in lakehouse.yaml, which makes "
                        f"values with more digits undecodable, or lower the precision (`connect.decimal.precision`)"
                    )
                if type_.scale > MAX_PRECISION:
                    raise SchemaError(
                        f"Avro decimal at '{path}' has a scale of {type_.scale}, more than the {MAX_PRECISION} digits "
                        f"of Iceberg. Lower its scale, or register it as a string"
                    )
                return t.DecimalType(type_.precision, type_.scale)
            case _, avro_types.VARIABLE_DECIMAL:
                return t.DecimalType(type_.precision, type_.scale)
            case _, "date":
                return t.DateType()
            case _, "timestamp-millis" | "timestamp-micros" | avro_types.ZONED_TIMESTAMP:
                return t.TimestamptzType()
            case _, "local-timestamp-millis" | "local-timestamp-micros":
                return t.TimestampType()
            case "record", _:
                return self.struct(type_, f"{path}.")
            case "array", _:
                element = self.type(type_.inner[0], f"{path}.element")
                return t.ListType(self.next_id(), element, element_required=False)
            case "map", _:
                value = self.type(type_.inner[0], f"{path}.value")
                return t.MapType(self.next_id(), t.StringType(), self.next_id(), value, value_required=False)
        plain = {
            "boolean": t.BooleanType,
            "int": t.IntegerType,
            "long": t.LongType,
            "float": t.FloatType,
            "double": t.DoubleType,
            "bytes": t.BinaryType,
            "fixed": t.BinaryType,
            "string": t.StringType,
            "enum": t.StringType,
        }
        if type_.kind not in plain:
            raise SchemaError(f"Avro type '{type_.kind}' at '{path}' has no Iceberg column type. Use another type")
        return plain[type_.kind]()


def _comment(branch: Type) -> str:
    """Return the comment of a union's member, with the name of its branch in the oldest version."""
    name = branch.origin or branch.name or branch.kind
    if len(name) > MAX_BRANCH_CHARACTERS:
        name = f"{name[:MAX_BRANCH_CHARACTERS]}… {hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return f"{UNION_BRANCH}{name}"
