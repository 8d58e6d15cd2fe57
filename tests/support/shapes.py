"""The columns of messages in each format with registered schemas."""

import json
from functools import partial

from lakehouse.formats import format_of
from lakehouse.formats.format import MessageSchema
from lakehouse.formats.json.json_format import reader
from lakehouse.formats.schema import RegisteredSchema


def _shape(name, versions):
    return format_of(name).shape(MessageSchema(tuple(versions), tuple(versions)))


avro_shape, json_shape, protobuf_shape = (partial(_shape, name) for name in ("avro", "json_schema", "protobuf"))


def json_version(schema, **references):
    """Return a version of a JSON Schema; references are registered as `name.json`."""
    texts = tuple((f"{name}.json", json.dumps(text)) for name, text in references.items())
    return RegisteredSchema(1, json.dumps(schema), "JSON", texts)


def json_kinds(schema, **references):
    """Return the columns of a JSON Schema as nested dictionaries, with the kind of each value."""
    return _kinds(reader([json_version(schema, **references)]))


def _kinds(fields):
    return {field.name: _kinds(field.fields) if field.fields else field.kind for field in fields}
