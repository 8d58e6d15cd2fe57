"""Formats of messages that are one value, as Apache Kafka's client serializers write them."""

from typing import Any, ClassVar

from lakehouse.formats.format import Format, MessageSchema
from lakehouse.formats.schema import Shape


class PrimitiveFormat(Format):
    """A format with one column."""

    is_scalar = True
    type: ClassVar[str]
    """Type of the column (Iceberg table specification, Primitive types)."""

    def reader(self, schema: MessageSchema) -> Any:
        return schema.column

    def columns(self, reader: Any) -> Shape:
        from pyiceberg.types import NestedField, StructType

        return Shape(StructType(NestedField(1, reader, self.type, required=False)))


class StringFormat(PrimitiveFormat):
    """Text in UTF-8."""

    name = "string"
    decoder = "spark.codecs.plain_codecs:TextCodec.of"
    type = "string"


class IntFormat(PrimitiveFormat):
    """A number of four bytes, big endian."""

    name = "int"
    decoder = "spark.codecs.plain_codecs:IntegerCodec.of"
    type = "int"


class LongFormat(PrimitiveFormat):
    """A number of eight bytes, big endian."""

    name = "long"
    decoder = "spark.codecs.plain_codecs:LongCodec.of"
    type = "long"


class BytesFormat(PrimitiveFormat):
    """Any bytes."""

    name = "bytes"
    decoder = "spark.codecs.plain_codecs:BytesCodec.of"
    type = "binary"
