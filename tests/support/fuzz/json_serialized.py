"""JSON messages by Confluent's serializer, which validates Python values against the schema with jsonschema."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from fractions import Fraction
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from hypothesis import strategies as st

from tests.support.fuzz.json_model import Draft, objects
from tests.support.fuzz.json_spelling import Members, Spelled
from tests.support.fuzz.model import Case, Record, refusal, rows_of
from tests.support.fuzz.registered import CONTEXT, SUBJECT, newest


class NotInPythonError(ValueError):
    """No Python value has the spelling."""


def in_python(sent: Any) -> Any:
    """Return the Python value of a message's value.

    Raises:
        NotInPythonError: It is no JSON, or json.dumps writes another number.
    """
    match sent:
        case Spelled(text):
            try:
                value = json.loads(text)
            except ValueError as error:
                raise NotInPythonError from error
            is_number = type(value) in (int, float) and math.isfinite(value)
            if is_number and Fraction(value) != Fraction(text):
                raise NotInPythonError
            return value
        case Members(items):
            return {name: in_python(member) for name, member in items}
        case list():
            return [in_python(item) for item in sent]
        case dict():
            return {name: in_python(member) for name, member in sent.items()}
    return sent


def is_json(text: bytes) -> bool:
    """Return whether a text has no NaN and infinity, which json.dumps writes and JSON lacks."""
    constants: list[str] = []
    json.loads(text, parse_constant=constants.append)
    return not constants


@st.composite
def cases(draw) -> Case:
    """Generate a schema, and the messages that the serializer writes of values; none of those that it refuses."""
    draft = Draft(draw)
    top = draw(objects(draft, 3, draw(st.integers(1, 5))))
    text = json.dumps(draft.document(top.schema) | {"title": "Top"})
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    for name, document in draft.files.items():
        client.register_schema(name, Schema(json.dumps(document), "JSON"))
    references = [SchemaReference(name, name, 1) for name in draft.files]
    schema = Schema(text, "JSON", references)
    serializer, id_ = JSONSerializer(schema, client), client.register_schema(SUBJECT, schema)
    records = []
    for value in (draw(top.values) for _ in range(draw(st.integers(1, 8)))):
        # The serializer refuses a value by an error of any type.
        with suppress(Exception):
            message = serializer(in_python(value.sent), CONTEXT)
            records.append(Record(message, value.cell, value.fate if is_json(message[5:]) else "letter"))
    assert all(int.from_bytes(record.value[1:5], "big") == id_ for record in records)
    return Case("json_schema", [newest(client)], dict(top.column[1]), records, refusal(top), rows_of(top) | draft.rows)
