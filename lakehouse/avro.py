"""Avro schemas as Iceberg columns, the way Spark's from_avro decodes them.

Sources: Apache Avro 1.12 specification; Spark, "Apache Avro Data Source Guide" (supported types for Avro → Spark SQL);
Iceberg table specification, "Appendix A: Avro".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lakehouse.errors import SchemaError
from lakehouse.schema import RegisteredSchema, Shape

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType, NestedField

DECODED = "__decoded"
"""A field added to the reader's schema: true in every record that decoded, null where from_avro gave up."""


MAX_PRECISION = 38
"""Digits of a decimal (Iceberg table specification, Primitive types)."""


def field_names(schema: str) -> list[str]:
    """The top-level fields of a record schema, in order.

    Raises: SchemaError when the schema is not a record, the only shape that has columns.
    """
    parsed = json.loads(schema)
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise SchemaError("The Avro schema is not a record, so it has no columns. Wrap the value in a record")
    return [field["name"] for field in parsed["fields"]]


def reader_schema(schema: str) -> str:
    """The schema with the DECODED field, which has a default and so appears whenever a record resolves.

    from_avro (PERMISSIVE) answers a bad record with a record of nulls, which a good record may be too; the default
    tells them apart (Avro specification, Schema Resolution).
    """
    parsed = json.loads(schema)
    sentinel = {"name": DECODED, "type": "boolean", "default": True}
    return json.dumps({**parsed, "fields": [*parsed["fields"], sentinel]})


def iceberg_schema(schema: str, *extra: tuple[str, str, str]) -> Schema:
    """The columns of the table for records of this schema. All are optional, so that any of them may go away later.

    Parameters: `extra` columns follow the record's, as (name, Iceberg primitive type, comment).
    Raises: SchemaError for what is no record, is recursive, has a type that Iceberg lacks, or two columns of one name
    (upper and lower case are one).
    """
    from pyiceberg.schema import Schema, assign_fresh_schema_ids
    from pyiceberg.types import NestedField, PrimitiveType

    field_names(schema)
    builder = _Builder()
    fields = builder.struct(json.loads(schema)).fields
    fields += tuple(
        NestedField(builder.next_id(), name, PrimitiveType.model_validate(type_), required=False, doc=doc)
        for name, type_, doc in extra
    )
    _distinct(fields)
    return assign_fresh_schema_ids(Schema(*fields))


def _distinct(fields: Sequence[NestedField]) -> None:
    """Spark, Glue and Snowflake do not tell upper from lower case; the project's own columns have names too."""
    folded: dict[str, str] = {}
    for field in fields:
        other = folded.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise SchemaError(f"Columns '{other}' and '{field.name}' differ by case only; rename one in the schema")
    if len(folded) < len(fields):
        names = [field.name for field in fields]
        twice = next(name for name in names if names.count(name) > 1)
        raise SchemaError(
            f"Two columns are called '{twice}', a name that every table has or the schema repeats; rename the field"
        )


class _Builder:
    """One walk over a schema: named types seen so far, and field ids (replaced by fresh ones at the end)."""

    def __init__(self) -> None:
        self.ids: Iterator[int] = iter(range(1, 1_000_000))
        self.named: dict[str, Any] = {}
        self.open: list[str] = []

    def next_id(self) -> int:
        return next(self.ids)

    def struct(self, record: dict[str, Any], namespace: str = "") -> Any:
        from pyiceberg.types import StructType

        name, namespace = _full_name(record, namespace)
        if name in self.open:
            raise SchemaError(f"Avro record '{name}' contains itself; Iceberg has no recursive types")
        self.named[name] = record
        self.open.append(name)
        fields = [self.field(field, namespace) for field in record["fields"]]
        self.open.pop()
        _distinct(fields)
        return StructType(*fields)

    def field(self, field: dict[str, Any], namespace: str) -> NestedField:
        from pyiceberg.types import NestedField

        type_ = self.type(field["type"], namespace)
        return NestedField(self.next_id(), field["name"], type_, required=False, doc=field.get("doc"))

    def type(self, schema: Any, namespace: str) -> IcebergType:
        """The type Spark decodes to: logical types as such, enums as strings, fixed as binary, unions as below."""
        from pyiceberg import types as t

        if isinstance(schema, list):
            return self.union(schema, namespace)
        if isinstance(schema, str):
            schema = self.named.get(schema) or self.named.get(f"{namespace}.{schema}") or {"type": schema}
        kind, logical = schema["type"], schema.get("logicalType")
        if kind in ("enum", "fixed"):
            self.named[_full_name(schema, namespace)[0]] = schema
        match kind, logical:
            case (("bytes" | "fixed"), "decimal"):
                if schema["precision"] > MAX_PRECISION:
                    raise SchemaError(
                        f"Avro decimal({schema['precision']}) has more than Iceberg's {MAX_PRECISION} digits"
                    )
                return t.DecimalType(schema["precision"], schema.get("scale", 0))
            case "int", "date":
                return t.DateType()
            case "long", "timestamp-millis" | "timestamp-micros":
                return t.TimestamptzType()
            case "long", "local-timestamp-millis" | "local-timestamp-micros":
                return t.TimestampType()
            case "record", _:
                return self.struct(schema, namespace)
            case "array", _:
                return t.ListType(self.next_id(), self.type(schema["items"], namespace), element_required=False)
            case "map", _:
                value = self.type(schema["values"], namespace)
                return t.MapType(self.next_id(), t.StringType(), self.next_id(), value, value_required=False)
            case dict() | list(), _:
                return self.type(kind, namespace)
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
        if kind not in plain:
            raise SchemaError(f"Avro type '{kind}' has no Iceberg column type")
        return plain[kind]()

    def union(self, branches: list[Any], namespace: str) -> IcebergType:
        """Null makes a column optional, int|long is long, float|double is double, any other union is a struct with a
        field `member<n>` a branch, of which one is set (Spark, Avro Data Source Guide)."""
        from pyiceberg import types as t

        branches = [branch for branch in branches if branch != "null"] or ["null"]
        if len(branches) == 1:
            return self.type(branches[0], namespace)
        if set(map(str, branches)) == {"int", "long"}:
            return t.LongType()
        if set(map(str, branches)) == {"float", "double"}:
            return t.DoubleType()
        members = [
            t.NestedField(self.next_id(), f"member{i}", self.type(branch, namespace), required=False)
            for i, branch in enumerate(branches)
        ]
        return t.StructType(*members)


def _full_name(schema: dict[str, Any], namespace: str) -> tuple[str, str]:
    """A named type's full name and the namespace its fields inherit (Avro specification, Names)."""
    name = schema["name"]
    namespace = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace)
    return (name if "." in name or not namespace else f"{namespace}.{name}"), namespace


def shape(schemas: Sequence[RegisteredSchema]) -> Shape:
    """Shim."""
    return Shape(iceberg_schema(schemas[-1].text).as_struct())


def reader(schemas: Sequence[RegisteredSchema]) -> str:
    """Shim."""
    return schemas[-1].text
