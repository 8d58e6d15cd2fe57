"""Behaviour that every format of values has. tests/fuzz covers each type of each format."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema

from lakehouse.core.errors import SchemaError
from lakehouse.formats import registered
from tests.support.protobuf_messages import message_class
from tests.support.topics import Stream, in_order, registry

Fields = dict[str, str]
"""Type of each field: `int` or `string`."""

NUMBER, TEXT = {"a": "int"}, {"a": "int", "b": "string"}


@dataclass(frozen=True)
class Example:
    """A format with schemas in the registry, written by a library that this project does not use for decoding.

    Attributes:
        schema: Returns the type and text of the schema with some fields.
        encode: Returns a record's bytes after the frame.
        malformed: Bytes that are no record of NUMBER.
    """

    schema: Callable[[Fields], Schema]
    encode: Callable[[Fields, dict[str, Any]], bytes]
    malformed: bytes


def _avro_schema(fields: Fields) -> str:
    defaults = {"int": 0, "string": ""}
    declared = [{"name": name, "type": type_, "default": defaults[type_]} for name, type_ in fields.items()]
    return json.dumps({"type": "record", "name": "R", "fields": declared})


def _avro(fields: Fields, record: dict[str, Any]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(_avro_schema(fields))), record)
    return body.getvalue()


def _json_schema(fields: Fields) -> str:
    types = {"int": "integer", "string": "string"}
    return json.dumps({"type": "object", "properties": {name: {"type": types[of]} for name, of in fields.items()}})


def _protobuf_schema(fields: Fields) -> str:
    types = {"int": "int64", "string": "string"}
    declared = " ".join(f"{types[of]} {name} = {number};" for number, (name, of) in enumerate(fields.items(), 1))
    return f'syntax = "proto3"; message R {{ {declared} }}'


EXAMPLES = {
    "avro": Example(lambda fields: Schema(_avro_schema(fields), "AVRO"), _avro, b"\xff" * 12),
    "json_schema": Example(
        lambda fields: Schema(_json_schema(fields), "JSON"), lambda _, record: json.dumps(record).encode(), b'{"a": '
    ),
    "protobuf": Example(
        lambda fields: Schema(_protobuf_schema(fields), "PROTOBUF"),
        lambda fields, record: b"\0" + message_class(_protobuf_schema(fields), "R")(**record).SerializeToString(),
        b"\0\x0a\x7f",
    ),
}
"""The formats with schemas in the registry."""

PLAIN = {
    "json": (b'{"a": [1, null]}', '{"a": [1, null]}', b'{"a": '),
    "string": ("ä".encode(), "ä", b"\xff\xfe"),
    "int": (struct.pack(">i", -5), -5, b"\0\0\0"),
    "long": (struct.pack(">q", -(2**63)), -(2**63), b"\0" * 7),
    "bytes": (b"\0\xff", b"\0\xff", None),
}
"""The formats without schemas: bytes, their value, and bytes that are no value."""


class Typed:
    """A topic of one format with a schema."""

    def __init__(self, resources: Any, name: str):
        self.stream, self.example = Stream(resources, settings={"value_format": name, "key": []}), EXAMPLES[name]

    def frame(self, fields: Fields) -> bytes:
        """Register the schema with these fields, whatever it changes, and return the frame of its records."""
        subject, schema = f"{self.stream.name}-value", self.example.schema(fields)
        registry().set_compatibility(subject, "NONE")
        return struct.pack(">bI", 0, registry().register_schema(subject, schema))

    def produce(self, fields: Fields, *records: dict[str, Any]) -> None:
        frame = self.frame(fields)
        self.stream.produce([{"value": frame + self.example.encode(fields, record)} for record in records])

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row[column] for column in columns) for row in in_order(self.stream.rows()))


@pytest.fixture(params=EXAMPLES)
def typed(request: Any, resources: Any) -> Typed:
    return Typed(resources, request.param)


def test_contract_covers_all_formats() -> None:
    assert {*EXAMPLES, *PLAIN} == set(registered())


def test_ingest_added_field_becomes_a_column(typed: Typed) -> None:
    typed.produce(NUMBER, {"a": 1})
    typed.stream.ingest()
    typed.produce(TEXT, {"a": 2, "b": "ä"})
    typed.produce(NUMBER, {"a": 3})
    typed.stream.ingest()
    assert [a for a, _ in typed.rows("a", "b")] == [1, 2, 3]
    # Old rows have null. An old record that is read later has the reader's default, where the format defines one.
    assert dict(typed.rows("a", "b"))[1] is None
    assert dict(typed.rows("a", "b"))[2] == "ä"


def test_ingest_undecodable_bytes_become_dead_letters(typed: Typed) -> None:
    frame = typed.frame(NUMBER)
    malformed = [frame + typed.example.malformed, b"", b"not framed", b"\0\xff\xff\xff\xff" + typed.example.malformed]
    typed.stream.produce([{"value": value} for value in malformed])
    typed.produce(NUMBER, {"a": 1})
    [published] = typed.stream.ingest()
    assert typed.rows("a") == [(1,)]
    assert published.counts.dead_letters == len(malformed)
    letters = typed.stream.dead_letters()
    assert sorted(letter["value"] for letter in letters) == sorted(malformed)
    assert all(letter["error_message"] for letter in letters)


def test_ingest_changed_type_is_refused_with_the_field(typed: Typed) -> None:
    typed.produce(TEXT, {"a": 1, "b": "x"})
    typed.stream.ingest()
    typed.produce({"a": "int", "b": "int"}, {"a": 2, "b": 2})
    with pytest.raises(SchemaError, match=r"\bb\b"):
        typed.stream.ingest()
    assert typed.rows("a", "b") == [(1, "x")]


@pytest.mark.parametrize("name", PLAIN)
def test_ingest_value_without_schema(resources: Any, name: str) -> None:
    encoded, value, malformed = PLAIN[name]
    stream = Stream(resources, settings={"value_format": name, "key": []})
    stream.produce([{"value": encoded}] + ([{"value": malformed}] if malformed else []))
    stream.ingest()
    assert [row["value"] for row in stream.rows()] == [value]
    assert [letter["value"] for letter in stream.dead_letters()] == ([malformed] if malformed else [])
