"""Time to plan and decode a batch of one record, by the number of columns and the format.

    python benchmarks/planning.py --columns 42 150 300 600 1500

It starts a separate embedded Spark and reads no topic, because only the planning depends on the number of columns. The
first round of each is not counted.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lakehouse.formats.schema import RegisteredSchema
from lakehouse.local import stack
from lakehouse.local.client_environment import environment
from lakehouse.local.home import Home

AVRO = ["string", "int", "double", {"type": "int", "logicalType": "date"}, {"type": "array", "items": "string"}]
AVRO += [{"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, ["null", "long"]]
JSON = [{"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "string", "format": "date"}]
JSON += [{"type": "array", "items": {"type": "string", "format": "date-time"}}, {"type": ["null", "boolean"]}]
PROTOBUF = ["string", "int32", "double", "repeated string", "uint64", "google.protobuf.Timestamp", "optional bool"]


def avro(columns: int) -> RegisteredSchema:
    """Return a record with `columns` fields, of all types in turn."""
    fields = [{"name": f"c{i}", "type": AVRO[i % len(AVRO)]} for i in range(columns)]
    return RegisteredSchema(1, json.dumps({"type": "record", "name": "Wide", "fields": fields}))


def json_schema(columns: int) -> RegisteredSchema:
    """Return an object with `columns` properties, of all types in turn."""
    properties = {f"c{i}": JSON[i % len(JSON)] for i in range(columns)}
    return RegisteredSchema(1, json.dumps({"type": "object", "properties": properties}), "JSON")


def protobuf(columns: int) -> RegisteredSchema:
    """Return a message with `columns` fields, of all types in turn."""
    fields = "".join(f"{PROTOBUF[i % len(PROTOBUF)]} c{i} = {i + 1};" for i in range(columns))
    text = f'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message Wide {{ {fields} }}'
    return RegisteredSchema(1, text, "PROTOBUF")


FORMATS: dict[str, Callable[[int], RegisteredSchema]] = {
    "avro": avro,
    "json_schema": json_schema,
    "protobuf": protobuf,
}


def main() -> None:
    """Measure each number of columns in each format, and print the medians."""
    from resources.spark.servers import Connect

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, nargs="+", default=[42, 150, 300, 600, 1500])
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        stack.up(home, ["spark"])
        try:
            os.environ.update(environment(home))
            spark = Connect(remote=os.environ["SPARK_REMOTE"])
            print("format       columns  seconds  ms/column")
            for format_ in arguments.formats:
                for columns in arguments.columns:
                    seconds = [_decode(spark, format_, columns) for _ in range(arguments.rounds + 1)][1:]
                    median = statistics.median(seconds)
                    print(f"{format_:12} {columns:7,}  {median:7.2f}  {1000 * median / columns:9.2f}", flush=True)
            spark.close()
        finally:
            stack.down(home)


def _decode(spark: object, format_: str, columns: int) -> float:
    """Decode one malformed record and return the seconds."""
    from pyspark.sql import types as T

    from lakehouse.pipeline.engine_values import Decoding
    from lakehouse.pipeline.schemas.decoding import side_schema
    from spark.decoding.decode import decode
    from spark.decoding.decoded import record as record_column
    from spark.engine import codec_of

    began = time.monotonic()
    codec = codec_of(side_schema(format_, [FORMATS[format_](columns)], "").side)
    decoding = Decoding(codec, None, tuple(codec.columns), (), "append")
    names = {"key": T.BinaryType(), "value": T.BinaryType(), "topic": T.StringType(), "partition": T.IntegerType()}
    names |= {"offset": T.LongType(), "timestamp": T.TimestampType(), "timestampType": T.IntegerType()}
    schema = T.StructType([T.StructField(name, type_) for name, type_ in names.items()])
    record = (None, b"\x00\x00\x00\x00\x01{}", "t", 0, 0, dt.datetime.now(dt.UTC), 0)
    # The repartition prevents Spark from decoding the record, which is part of the plan, while it plans.
    records = spark.session({}).createDataFrame([record], schema).repartition(1)
    good = decode(records, decoding).filter(record_column("reason").isNull())
    good.select(*codec.columns).write.format("noop").mode("overwrite").save()
    return time.monotonic() - began


if __name__ == "__main__":
    main()
