"""Derive the Avro schema of a DataFrame's rows, for topics without a schema file."""

from __future__ import annotations

import json
import re
from typing import Any

from pyspark.sql import types as T

from lakehouse.core.errors import SchemaError

PLAIN: dict[type[T.DataType], Any] = {
    T.BooleanType: "boolean",
    T.ByteType: "int",
    T.ShortType: "int",
    T.IntegerType: "int",
    T.LongType: "long",
    T.FloatType: "float",
    T.DoubleType: "double",
    T.StringType: "string",
    T.BinaryType: "bytes",
    T.DateType: {"type": "int", "logicalType": "date"},
    T.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    T.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}
"""Avro types of Spark's types (Spark, Apache Avro Data Source Guide: Spark SQL → Avro)."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Valid names (Avro specification, Names)."""


def avro_schema(rows: T.StructType, name: str) -> str:
    """Return a record schema in which every field is optional.

    Args:
        rows: The columns.
        name: The name of the record, such as a topic's; characters that Avro does not allow are replaced by `_`.

    Raises:
        SchemaError: Avro does not allow a column's name or type.
    """
    return json.dumps(_record(rows, re.sub(r"^(?=\d)|[^A-Za-z0-9_]", "_", name)))


def _record(struct: T.StructType, name: str) -> dict[str, Any]:
    if invalid := [field.name for field in struct if not NAME.fullmatch(field.name)]:
        raise SchemaError(
            f"'{invalid[0]}' is not a valid Avro field name. Nothing was produced. Rename the column in the transform"
        )
    fields = [
        {"name": field.name, "type": ["null", _type(field.dataType, f"{name}.{field.name}")], "default": None}
        for field in struct
    ]
    return {"type": "record", "name": name, "fields": fields}


def _type(type_: T.DataType, name: str) -> Any:
    match type_:
        case T.StructType():
            return _record(type_, name)
        case T.ArrayType():
            return {"type": "array", "items": ["null", _type(type_.elementType, name)]}
        case T.MapType() if isinstance(type_.keyType, T.StringType):
            return {"type": "map", "values": ["null", _type(type_.valueType, name)]}
        case T.DecimalType():
            return {"type": "bytes", "logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
    if type(type_) not in PLAIN:
        raise SchemaError(
            f"Avro has no type for {type_.simpleString()} at '{name}'. Nothing was produced. Cast it in the transform"
        )
    return PLAIN[type(type_)]
