"""Avro schemas of Spark rows."""

import json

import fastavro
import pytest
from pyspark.sql import types as T

from lakehouse.core.errors import SchemaError
from spark.avro_schema import avro_schema


def avro_type(type_):
    schema = avro_schema(T.StructType([T.StructField("a", type_)]), "t")
    fastavro.parse_schema(json.loads(schema))
    return json.loads(schema)["fields"][0]["type"][1]


@pytest.mark.parametrize(
    ("spark", "avro"),
    [
        (T.BooleanType(), "boolean"),
        (T.ShortType(), "int"),
        (T.IntegerType(), "int"),
        (T.LongType(), "long"),
        (T.FloatType(), "float"),
        (T.DoubleType(), "double"),
        (T.StringType(), "string"),
        (T.BinaryType(), "bytes"),
        (T.DateType(), {"type": "int", "logicalType": "date"}),
        (T.TimestampType(), {"type": "long", "logicalType": "timestamp-micros"}),
        (T.TimestampNTZType(), {"type": "long", "logicalType": "local-timestamp-micros"}),
        (T.DecimalType(12, 3), {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}),
        (T.ArrayType(T.LongType()), {"type": "array", "items": ["null", "long"]}),
        (T.MapType(T.StringType(), T.LongType()), {"type": "map", "values": ["null", "long"]}),
    ],
    ids=str,
)
def test_avro_schema_each_type_has_avro_type(spark, avro):
    assert avro_type(spark) == avro


def test_avro_schema_nested_records_have_distinct_names():
    inner = T.StructType([T.StructField("x", T.LongType())])
    outer = T.StructType([T.StructField("p", inner), T.StructField("q", T.ArrayType(inner))])
    schema = json.loads(avro_schema(outer, "9-my.topic"))
    fastavro.parse_schema(schema)
    assert schema["name"] == "_9_my_topic"
    assert schema["fields"][0] == {"name": "p", "type": schema["fields"][0]["type"], "default": None}


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (T.StructField("a b", T.LongType()), "'a b' is not a valid Avro field name"),
        (T.StructField("a", T.DayTimeIntervalType()), "no type for interval"),
        (T.StructField("a", T.MapType(T.LongType(), T.LongType())), "no type for map"),
    ],
)
def test_avro_schema_unsupported_field_is_refused(field, message):
    with pytest.raises(SchemaError, match=message):
        avro_schema(T.StructType([field]), "t")


def test_avro_schema_similar_paths_have_distinct_names():
    inner = T.StructType([T.StructField("x", T.LongType())])
    rows = T.StructType([T.StructField("a_b", inner), T.StructField("a", T.StructType([T.StructField("b", inner)]))])
    fastavro.parse_schema(json.loads(avro_schema(rows, "t")))
