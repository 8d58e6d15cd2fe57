"""A format: two texts with a semicolon between them."""

from lakehouse.formats.format import Format
from lakehouse.formats.schema import Shape


class PairFormat(Format):
    """Two columns."""

    name = "pair"
    decoder = "lakehouse_plugins.decoder:decoder"

    def reader(self, schema):
        return ("left", "right")

    def columns(self, reader):
        from pyiceberg.types import NestedField, StructType

        return Shape(StructType(*(NestedField(1, name, "string", required=False) for name in reader)))
