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

PLAIN: dict[str, tuple[dict[Any, bytes], list[bytes]]] = {
    "json": ({'{"a": [1, {"b": 2.50}]}': b'{"a": [1, {"b": 2.50}]}'}, [b"{broken", b'{"a": 1} x', b"1, 2", b""]),
    "string": ({"ä€": "ä€".encode(), "": b""}, [b"\xff\xfe"]),
    "int": ({n: struct.pack(">i", n) for n in (0, 1, -1, 2**31 - 1, -(2**31))}, [b"", b"\0", b"\0" * 5]),
    "long": ({n: struct.pack(">q", n) for n in (0, 1, -1, 2**63 - 1, -(2**63))}, [b"", b"\0" * 4, b"\0" * 9]),
    "bytes": ({b"\0\xff": b"\0\xff", b"": b""}, []),
}
"""The formats without schemas: values with their bytes, and bytes that are no value."""


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


def test_ingest_adds_a_field_and_refuses_a_changed_type(typed: Typed) -> None:
    typed.produce(NUMBER, {"a": 1})
    typed.stream.ingest()
    typed.produce(TEXT, {"a": 2, "b": "ä"})
    typed.produce(NUMBER, {"a": 3})
    typed.stream.ingest()
    rows = dict(typed.rows("a", "b"))
    assert list(rows) == [1, 2, 3]
    # Old rows have null. An old record that is read later has the reader's default, where the format defines one.
    assert (rows[1], rows[2]) == (None, "ä")

    typed.produce({"a": "int", "b": "int"}, {"a": 4, "b": 2})
    with pytest.raises(SchemaError, match=r"\bb\b"):
        typed.stream.ingest()
    assert dict(typed.rows("a", "b")) == rows


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


@pytest.mark.parametrize("name", PLAIN)
def test_ingest_keys_and_values_without_schema_are_kept(resources: Any, name: str) -> None:
    good, bad = PLAIN[name]
    stream = Stream(resources, partitions=1, settings={"key": [], "key_format": name, "value_format": name})
    stream.produce([{"key": data, "value": data} for data in good.values()])
    stream.produce([{"key": None, "value": data} for data in good.values()])
    stream.produce([{"value": data} for data in bad])
    any_good = next(iter(good.values()))
    stream.produce([{"key": data, "value": any_good} for data in bad])
    stream.ingest()
    assert [(row["key"], row["value"]) for row in stream.rows()] == [(v, v) for v in good] + [(None, v) for v in good]
    reasons = [letter["error_reason"] for letter in stream.dead_letters()]
    assert reasons == ["undecodable"] * len(bad) + ["bad_key"] * len(bad)
