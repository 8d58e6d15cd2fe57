"""Decoding of records by the project's code on a Spark Connect server, without other servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.config.model import Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.formats.columns import table_schema
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.engine_values import Decoding
from lakehouse.pipeline.schemas import decoding
from lakehouse.pipeline.schemas.schema_decision import decide_schema
from spark.decoding.decode import Codec, decode
from spark.decoding.decoded import record
from spark.engine import codec_of, with_codecs
from tests.support.fuzz.cells import Column, fits, of_arrow, of_iceberg, plain
from tests.support.fuzz.model import METADATA_NAMES, Case

RECORDS = T.StructType(
    [
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("timestamp", T.TimestampType()),
        T.StructField("timestampType", T.IntegerType()),
        T.StructField("headers", T.ArrayType(T.StructType().add("key", "string").add("value", "binary"))),
    ]
)
"""The columns of Spark's Kafka source (Structured Streaming + Kafka Integration Guide)."""

LETTER = "dead letter"
LEFT = "left to the reference decoder"
"""The outcome of a record that the compiled decoder makes no row."""
UNEXPLAINED = "dead letter without a reason that names what is wrong"


@dataclass(frozen=True)
class Decoded:
    """The result of decoding: column types by name, and for each record its row or LETTER."""

    columns: dict[str, Column]
    outcomes: list[dict[str, Any] | str]


@dataclass(frozen=True)
class Versions:
    """A schema registry that has one subject."""

    schemas: Sequence[RegisteredSchema]

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """Return the versions of the subject, oldest first."""
        return list(self.schemas)


class Decoder:
    """A session of a Spark Connect server."""

    def __init__(self, session: SparkSession):
        self.session = session
        # Otherwise, Spark computes constants in the planner, by other code than for the records of a topic.
        rule = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
        session.conf.set("spark.sql.optimizer.excludedRules", rule)

    def decode(self, cases: Sequence[Case]) -> list[Decoded | LakehouseError]:
        """Decode the records of some cases in one job; of a case whose schema is refused, return the error."""
        planned: list[DataFrame | LakehouseError] = []
        tables: dict[int, Schema] = {}
        codecs: dict[int, Codec] = {}
        for number, case in enumerate(cases):
            try:
                known, tables[number] = columns(case)
            except LakehouseError as error:
                planned.append(error)
                continue
            rows = decode(self._records([record.value for record in case.records]), instructions(known))
            planned.append(_packed(rows, tables[number], number))
            codecs[number] = codec_of(known.value.side)
        frames = [frame for frame in planned if isinstance(frame, DataFrame)]
        rows = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames).toArrow() if frames else None
        return [
            plan if isinstance(plan, LakehouseError) else _unpacked(rows, tables[number], number, case, codecs[number])
            for number, (plan, case) in enumerate(zip(planned, cases, strict=True))
        ]

    def _records(self, values: Sequence[bytes | None]) -> DataFrame:
        now = datetime(2026, 1, 1, tzinfo=UTC)
        rows = [(None, value, "fuzz", 0, offset, now, 0, None) for offset, value in enumerate(values)]
        return self.session.createDataFrame(rows, RECORDS)


def instructions(schemas: decoding.TopicSchemas) -> Decoding[Codec]:
    """Return the instructions that decode records of a topic without schema ids in headers."""
    return with_codecs(replace(schemas, reads_header_ids=False).decoding())


def columns(case: Case) -> tuple[decoding.TopicSchemas, Schema]:
    """Return the schemas that decode the records of a case, and the schema of their table.

    Raises:
        LakehouseError: The schema is refused.
    """
    settings = {"name": "fuzz", "value_format": case.format, "record": case.record, **case.settings}
    topic = Topic.model_validate(settings)
    known = decide_schema(topic, decoding.resolve_schemas(Versions(case.versions), topic), None).schemas
    return known, table_schema(topic.metadata.names, known.struct, None)


def _packed(rows: DataFrame, table: Schema, number: int) -> DataFrame:
    """Return the rows of one case as two columns, to be combined with the rows of other cases."""
    cells = (rows[f"`{field.name.replace('`', '``')}`"].alias(field.name) for field in table.fields)
    good = record("reason").isNull() & ~record("filtered") & ~record("tombstone")
    return rows.select(
        F.struct(*cells).alias(f"row{number}"), good.alias(f"good{number}"), record("reason").alias(f"reason{number}")
    )


def _unpacked(rows: pa.Table, table: Schema, number: int, case: Case, codec: Codec) -> Decoded:
    wanted = {field.name: of_iceberg(field.field_type) for field in table.fields}
    cells = rows.column(f"row{number}")
    types = {field.name: of_arrow(field.type) for field in cells.type}
    assert fits(("struct", tuple(types.items())), ("struct", tuple(wanted.items()))), f"{types} are no {wanted}"
    outcomes: list[dict[str, Any] | str] = [""] * len(case.records)
    goods, reasons = rows.column(f"good{number}"), rows.column(f"reason{number}")
    for cell, good, reason in zip(cells, goods, reasons, strict=True):
        if not cell.is_valid:
            continue
        offset = cell["kafka_offset"].as_py()
        if good.as_py():
            outcomes[offset] = {name: plain(cell[name]) for name in types if name not in METADATA_NAMES}
        else:
            is_explained = reason.as_py() != "undecodable" or codec.explain(case.records[offset].value)
            outcomes[offset] = LETTER if is_explained else UNEXPLAINED
    assert "" not in outcomes, "a record is neither a row nor a dead letter"
    return Decoded({name: type_ for name, type_ in wanted.items() if name not in METADATA_NAMES}, outcomes)
