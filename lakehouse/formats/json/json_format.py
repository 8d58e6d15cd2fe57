"""Format `json`, without a registry: one column of text, or the columns of a JSON Schema in `value_schema_file`."""

from typing import Any

from lakehouse.formats.format import MessageSchema
from lakehouse.formats.json import json_schema_format
from lakehouse.formats.primitive_formats import PrimitiveFormat
from lakehouse.formats.schema import Shape


class JsonFormat(PrimitiveFormat):
    """JSON text."""

    name = "json"
    decoder = "spark.codecs.plain_codecs:json"
    type = "string"
    is_scalar = False
    file_type = "JSON"

    def reader(self, schema: MessageSchema) -> Any:
        """Return the properties of the schema; without a schema, the name of the column."""
        return json_schema_format.reader(schema.read_by) if schema.read_by else super().reader(schema)

    def columns(self, reader: Any) -> Shape:
        """Return one column per property; without a schema, the column of the text."""
        return super().columns(reader) if isinstance(reader, str) else json_schema_format.columns(reader)
