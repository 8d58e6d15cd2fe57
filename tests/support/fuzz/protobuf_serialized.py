"""Protobuf messages by Confluent's serializer, which registers descriptors, those of imported files too."""

from __future__ import annotations

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from hypothesis import strategies as st

from tests.support.fuzz.model import Case, Record, refusal, rows_of
from tests.support.fuzz.protobuf_model import File, cells, files, filled
from tests.support.fuzz.registered import CONTEXT, newest


@st.composite
def cases(draw) -> Case:
    """Generate a file, and messages."""
    file: File = draw(files())
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    config = {"use.deprecated.format": False, "skip.known.types": draw(st.booleans())}
    serializer = ProtobufSerializer(file.message_type, client, config)
    records = []
    for value in (draw(file.top.values) for _ in range(draw(st.integers(1, 5)))):
        message, faults = filled(file.message_type(), value.sent), list[str]()
        data = serializer(message, CONTEXT)
        records.append(Record(data, cells(message, faults), "letter" if faults else "row"))
    top = file.top
    return Case("protobuf", [newest(client)], dict(top.column[1]), records, refusal(top), rows_of(top), file.record)
