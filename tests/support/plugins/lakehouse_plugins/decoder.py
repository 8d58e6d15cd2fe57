"""A decoder of pairs."""

from dataclasses import dataclass

from pyspark.sql import functions as F

from spark.decoding.decode import Codec


def decoder(schema, reader):
    return PairCodec(reader)


@dataclass(frozen=True)
class PairCodec(Codec):
    """Text around the first semicolon."""

    names: tuple[str, str]

    @property
    def columns(self):
        return list(self.names)

    def decode(self, data):
        parts = F.split(F.try_validate_utf8(data.cast("string")), ";", 2)
        row = F.struct(*(F.get(parts, n).alias(name) for n, name in enumerate(self.names)))
        return F.struct(row.alias("row"), (F.size(parts) == len(self.names)).alias("good"))

    def schema_id(self, data):
        return F.lit(None).cast("int")

    def framed(self, data):
        return F.lit(True)
