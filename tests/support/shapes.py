"""The columns of messages in each format with registered schemas."""

from functools import partial

from lakehouse.formats import format_of
from lakehouse.formats.format import MessageSchema


def _shape(name, versions):
    return format_of(name).shape(MessageSchema(tuple(versions), tuple(versions)))


avro_shape, json_shape, protobuf_shape = (partial(_shape, name) for name in ("avro", "json_schema", "protobuf"))
