"""Avro messages → rows, with Spark's own parser."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from lakehouse.core.framing import FRAME_BYTES, schema_id
from lakehouse.formats.avro_columns import columns
from lakehouse.formats.avro_explain import explain
from lakehouse.formats.avro_resolution import schemas
from lakehouse.formats.avro_types import Type, parse
from lakehouse.formats.format import MessageSchema
from spark import framing
from spark.avro_unions import without_spare
from spark.conditions import none_of
from spark.decode import Codec
from spark.fitting import misfits

ENDING = secrets.token_bytes(8)
"""Bytes that nobody can have put where a record ends: every process has others."""

END = f"end_{secrets.token_hex(8)}"
"""The field that takes them, by a name that no schema can have."""


def decoder(schema: MessageSchema, reader: Type) -> AvroCodec:
    """Return the decoder of records, each by the version that it was written with."""
    return AvroCodec({version.id: parse(version) for version in schema.versions}, reader)


@dataclass(frozen=True)
class AvroCodec(Codec):
    """Avro records in the Confluent wire format.

    Known bytes are appended to each body, and to each schema a field that takes them: a record that ends elsewhere than
    its bytes do, where Avro would not mind, does not find them.

    Parameters: `writers` are the types that records were written with, by registry id; `reader` is the type that all of
    them are read as (lakehouse.formats.avro_resolution).
    """

    writers: Mapping[int, Type]
    reader: Type

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self.reader.fields]

    def decode(self, data: Column) -> Column:
        body = F.concat(framing.body(data), F.lit(ENDING))

        def read(id_: int) -> Column:
            found = schemas(self.writers[id_], self.reader, END, len(ENDING))
            bytes_ = body if found else F.lit(None).cast("binary")
            readable = found or schemas(self.reader, self.reader, END, len(ENDING))
            assert readable is not None, "a schema reads what it wrote"
            written, wanted = readable
            # Spark 2 wrote another calendar before 1582, so Spark asks which one this is: Avro's, the proleptic
            # Gregorian.
            options = {"mode": "PERMISSIVE", "avroSchema": wanted, "datetimeRebaseMode": "CORRECTED"}
            return from_avro(bytes_, written, options)

        return framing.by_schema_id(data, self.writers, read)

    def finished(self, struct: Column) -> Column:
        found = without_spare(struct, self.reader)
        whole, faults = found[END] == F.lit(ENDING), misfits(found, columns(self.reader).struct)
        # The field that takes the ending stays in the row, by a name that no column has.
        return F.struct(found.alias("row"), none_of([~F.coalesce(whole, F.lit(False)), *faults]).alias("good"))

    def explain(self, data: bytes) -> str | None:
        id_ = schema_id(data)
        if id_ is None or id_ not in self.writers:
            return None
        return explain(data, FRAME_BYTES, self.writers[id_], self.reader)

    def schema_id(self, data: Column) -> Column:
        return framing.by_schema_id(data, self.writers, F.lit)

    def framed(self, data: Column) -> Column:
        # A record of no fields, as a version of the schema may have been, has no bytes.
        return framing.is_framed(data, may_be_empty=True)
