"""Records with their schema ids in headers, where confluent-kafka's serializers write them on request."""

from __future__ import annotations

import io
import json
import struct
import uuid
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from lakehouse.core.errors import BadRecords
from lakehouse.pipeline.redrive import Redriven, redrive
from tests.support.protobuf_messages import message_class
from tests.support.registry_stream import RegistryStream
from tests.support.servers.registry_server import RegistryServer
from tests.support.topics import Stream

AVRO = json.dumps({"type": "record", "name": "R", "fields": [{"name": name, "type": "int"} for name in "abcdef"]})
JSON = json.dumps({"title": "R", "type": "object", "properties": {name: {"type": "integer"} for name in "abcdef"}})
FIELDS = " ".join(f"int32 {name} = {number};" for number, name in enumerate("abcdef", 1))
# Its index is not the abbreviated one.
PROTOBUF = f'syntax = "proto3"; message Other {{ bool x = 1; }} message R {{ {FIELDS} }}'
VALUE, GUID = "__value_schema_id", uuid.UUID(int=7)
SCHEMAS = {"avro": AVRO, "json_schema": JSON, "protobuf": PROTOBUF}


def row(number: int) -> dict[str, int]:
    # In Avro, the body begins with the prefix of schema id 1.
    return dict.fromkeys("abcdef", 0) | {"e": -1, "f": number}


def serializer(format_: str, client: SchemaRegistryClient) -> Any:
    """Return Confluent's serializer of a format, which writes the GUID to the headers."""
    config: dict[str, Any] = {"schema.id.serializer": header_schema_id_serializer}
    if format_ == "avro":
        return AvroSerializer(client, AVRO, conf=config)
    if format_ == "json_schema":
        return JSONSerializer(JSON, client, conf=config)
    kind = message_class(PROTOBUF, "R")
    to_bytes = ProtobufSerializer(kind, client, {**config, "use.deprecated.format": False})
    return lambda fields, context: to_bytes(kind(**fields), context)


def body(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(AVRO)), row(number))
    return out.getvalue()


def framed(id_: int) -> bytes:
    return struct.pack(">bI", 0, id_)


def numbers(stream: Stream) -> list[int]:
    rows = stream.rows()
    assert [{name: one[name] for name in "abcdef"} for one in rows] == [row(one["f"]) for one in rows]
    return [one["f"] for one in rows]


@pytest.fixture
def server():
    with RegistryServer().listening() as server:
        yield server


@pytest.fixture
def stream(server, resources):
    stream = RegistryStream(resources, partitions=1, settings={"key": []})
    stream.listen(server)
    server.add(1, AVRO, f"{stream.name}-value")
    server.guids[str(GUID)] = 1
    return stream


@pytest.mark.parametrize("format_", SCHEMAS)
def test_ingest_guids_of_serializers_in_headers_are_decoded(server, resources, format_):
    settings = {"key": [], "value_format": format_, **({"record": "R"} if format_ == "protobuf" else {})}
    stream = RegistryStream(resources, partitions=1, settings=settings)
    stream.listen(server)
    client = SchemaRegistryClient.new_client({"url": f"mock://{stream.name}"})
    to_bytes, messages = serializer(format_, client), []
    for number in range(3):
        headers: list[tuple[str, bytes]] = [("trace", b"1")]
        value = to_bytes(row(number), SerializationContext(stream.name, MessageField.VALUE, headers))
        messages.append({"value": value, "headers": headers})
    registered = client.get_latest_version(f"{stream.name}-value")
    type_ = {"json_schema": "JSON"}.get(format_, format_.upper())
    id_ = server.add(1, registered.schema.schema_str, f"{stream.name}-value", type_)
    # The mock has one GUID for each request, and the serializer sends that of the registration.
    server.guids[str(uuid.UUID(bytes=messages[0]["headers"][1][1][1:17]))] = id_
    prefix = framed(id_) + messages[0]["headers"][1][1][17:]
    # Producers change one after another.
    stream.produce([*messages, {"value": prefix + messages[1]["value"]}])

    [published] = stream.ingest()

    assert published.counts.rows == 4 and numbers(stream) == [0, 1, 2, 1]
    assert {one["kafka_schema_id"] for one in stream.rows()} == {id_}


def test_ingest_header_has_precedence_over_prefix(stream):
    other = {"value": framed(1) + body(3), "headers": [("other", b"\0")]}
    empty = {"value": framed(1) + body(4), "headers": [(VALUE, None)]}
    twice = {"value": body(5), "headers": [(VALUE, framed(1)), (VALUE, framed(1))]}
    by_guid = {"value": body(1), "headers": [(VALUE, b"\1" + GUID.bytes)]}
    by_id = {"value": body(2), "headers": [(VALUE, framed(1))]}
    stream.topic = stream.topic.model_copy(update={"max_records_per_batch": 2})
    # The first batch has no schema id in a header, and the others have some.
    stream.produce([other, {"value": framed(1) + body(6)}, empty, by_guid, by_id, twice])

    batches = stream.ingest()

    assert len(batches) == 3 and sorted(numbers(stream)) == [1, 2, 3, 4, 5, 6]
    assert [one["kafka_schema_id"] for one in stream.rows()] == [1] * 6


def test_ingest_header_that_names_no_schema_is_dead_letter(stream):
    unknown = uuid.UUID(int=9)
    bad = {
        b"": "not_framed",
        b"\0\0\0": "not_framed",
        b"\2" + GUID.bytes: "not_framed",
        framed(1) + b"\0": "not_framed",
        b"\1" + GUID.bytes + b"\0": "not_framed",
        framed(8): "unknown_schema",
        b"\1" + unknown.bytes: "unknown_schema",
    }
    messages = [{"value": framed(1) + body(1), "headers": [(VALUE, header)]} for header in bad]
    contradictory = [[framed(1), framed(8)], [framed(1), framed(8), framed(1)], [None, framed(1)]]
    messages += [{"value": body(2), "headers": [(VALUE, header) for header in headers]} for headers in contradictory]
    stream.produce(messages)

    stream.ingest()

    letters = stream.dead_letters()
    assert [letter["error_reason"] for letter in letters] == [*bad.values(), *["not_framed"] * 3]
    assert f"schema GUID {unknown}" in letters[6]["error_message"] and "schema id 8" in letters[5]["error_message"]
    assert [letter["schema_id"] for letter in letters[5:7]] == [8, None]
    # The bytes are the record's own.
    assert {letter["value"] for letter in letters[:7]} == {framed(1) + body(1)}


def test_redrive_record_with_guid_in_header_decodes_as_ingestion(server, stream):
    late = uuid.UUID(int=11)
    stream.produce([{"value": body(6), "headers": [(VALUE, b"\1" + late.bytes)]}])
    stream.ingest()
    assert [letter["error_reason"] for letter in stream.dead_letters()] == ["unknown_schema"]
    server.add(2, AVRO.replace('"R"', '"R", "doc": "elsewhere"'))
    server.guids[str(late)] = 2

    assert redrive(stream.namespace, stream.topic, stream.systems) == Redriven(attempted=1, recovered=1)

    assert numbers(stream) == [6] and stream.rows()[0]["kafka_schema_id"] == 2


def test_ingest_keys_with_guid_in_header_upsert(server, resources):
    key = '{"type": "record", "name": "K", "fields": [{"name": "id", "type": "int"}]}'
    value = '{"type": "record", "name": "V", "fields": [{"name": "n", "type": "int"}]}'
    stream = RegistryStream(resources, partitions=1, settings={"mode": "upsert", "key": "id", "key_format": "avro"})
    stream.listen(server)
    server.add(1, value, f"{stream.name}-value")
    server.add(2, key, f"{stream.name}-key")
    server.guids[str(GUID)] = 2
    headers = [("__key_schema_id", b"\1" + GUID.bytes), (VALUE, framed(1))]
    sent = [(0, b"\2"), (1, b"\4"), (0, b"\6"), (1, None)]
    stream.produce([{"key": bytes([2 * id_]), "value": n, "headers": headers} for id_, n in sent])

    stream.ingest()

    assert [(one["id"], one["n"]) for one in stream.rows()] == [(0, 3)]


@pytest.mark.parametrize("embedded", [False, True])
def test_ingest_guid_registry_without_guids_is_named(server, stream, resources, embedded):
    server.knows_guids = False
    if embedded:
        stream = Stream(resources, partitions=1, settings={"key": []})
        stream.schema(AVRO)
    stream.topic = stream.topic.model_copy(update={"errors": "suspend"})
    stream.produce([{"value": body(1), "headers": [(VALUE, b"\1" + GUID.bytes)]}])

    with pytest.raises(BadRecords, match="does not look up GUIDs"):
        stream.ingest()

    assert stream.rows() == []
