"""Decode Avro messages with Spark's own parser."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from lakehouse.core.sql import SPARK
from lakehouse.formats.avro.avro_explain import Explainer
from lakehouse.formats.avro.avro_resolution import schemas
from lakehouse.formats.avro.avro_types import Type, parse
from lakehouse.formats.avro.connect_types import with_logical_types
from lakehouse.formats.format import MessageSchema
from lakehouse.formats.schema import FRAME_BYTES, MAGIC, frame, schema_id
from spark.codecs import avro_values
from spark.decoding import framing_columns
from spark.decoding.conditions import none_of
from spark.decoding.decode import Codec

END_MARKER = secrets.token_bytes(8)
"""Random bytes that mark the end of a record. They differ by process, so that no producer can forge them."""

ID_BYTES = FRAME_BYTES - len(MAGIC)

END_FIELD = f"end_{secrets.token_hex(8)}"
"""Name of the field that reads these bytes; no schema can have it."""


def decoder(schema: MessageSchema, reader: Type) -> AvroCodec:
    """Return the codec that decodes each record by the version that it was written with."""
    versions = (with_logical_types(version, schema.conversions) for version in schema.versions)
    return AvroCodec({version.id: parse(version) for version in versions}, reader)


@dataclass(frozen=True)
class AvroCodec(Codec):
    """Codec of Avro records in the Confluent wire format.

    END_MARKER and the schema id are appended to each body, and a field that reads them to each schema. A record that
    ends elsewhere than its bytes, which Avro does not detect, fails to read the marker.

    Attributes:
        writers: The types that records were written with, by registry id.
        reader: The type that all of them are read as (lakehouse.formats.avro.avro_resolution).
    """

    writers: Mapping[int, Type]
    reader: Type

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self.reader.fields]

    @property
    def heads(self) -> frozenset[bytes]:
        return frozenset(map(frame, self.writers))

    def decode(self, data: Column) -> Column:
        body = F.concat(framing_columns.body(data), F.lit(END_MARKER), framing_columns.id_bytes(data))
        size = len(END_MARKER) + ID_BYTES

        def read(id_: int) -> Column:
            resolved = schemas(self.writers[id_], self.reader, END_FIELD, size)
            bytes_ = body if resolved else F.lit(None).cast("binary")
            resolvable = resolved or schemas(self.reader, self.reader, END_FIELD, size)
            assert resolvable is not None, "a schema reads what it wrote"
            writer_schema, reader_schema = resolvable
            # Dates before 1582 are in the proleptic Gregorian calendar, as in Avro; Spark 2 wrote a hybrid calendar.
            options = {"mode": "PERMISSIVE", "avroSchema": reader_schema, "datetimeRebaseMode": "CORRECTED"}
            return from_avro(bytes_, writer_schema, options)

        return framing_columns.by_schema_id(data, self.writers, read)

    def finished(self, decoded: str) -> tuple[Column, Column]:
        end = F.col(decoded)[END_FIELD]
        is_complete = F.substring(end, 1, len(END_MARKER)) == F.lit(END_MARKER)
        faults = [F.expr(fault) for fault in avro_values.misfits(decoded, self.reader)]
        for id_, wrote in self.writers.items():
            if conditions := " OR ".join(avro_values.widened(decoded, wrote, self.reader)):
                id_bytes = F.substring(end, len(END_MARKER) + 1, ID_BYTES)
                is_of_writer = F.coalesce(id_bytes == F.lit(frame(id_)[len(MAGIC) :]), F.lit(False))
                faults.append(is_of_writer & F.expr(conditions))
        fields = [
            F.expr(avro_values.column(f"{decoded}.{SPARK.identifier(field.name)}", field.type)).alias(field.name)
            for field in self.reader.fields
        ]
        return F.struct(*fields), none_of([~F.coalesce(is_complete, F.lit(False)), *faults])

    def explain(self, data: bytes) -> str | None:
        explainer = self._explainers.get(schema_id(data))
        return explainer.explain(data, FRAME_BYTES) if explainer else None

    @cached_property
    def _explainers(self) -> Mapping[int | None, Explainer]:
        return {id_: Explainer(wrote, self.reader) for id_, wrote in self.writers.items()}

    def schema_id(self, data: Column) -> Column:
        return framing_columns.by_schema_id(data, self.writers, F.lit)

    def framed(self, data: Column) -> Column:
        # A record without fields, which a version of the schema may define, has no bytes.
        return framing_columns.is_framed(data, may_be_empty=True)
