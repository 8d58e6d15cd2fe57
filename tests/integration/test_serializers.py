"""Records of Confluent's serializers, with the subject name strategies, references and settings that producers use."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.support.protobuf_messages import EVERYTHING, message_class
from tests.support.topics import Stream, registry

STRATEGIES = {
    "topic": topic_subject_name_strategy,
    "record": record_subject_name_strategy,
    "topic_record": topic_record_subject_name_strategy,
}
NAMES = {"avro": "s.Order", "json_schema": "Order", "protobuf": "shop.Everything"}


def item(name: str, type_: Any) -> dict[str, Any]:
    return {"name": name, "type": type_}


def serializer(format_: str, prefix: str, config: dict[str, Any]) -> Any:
    """Return the serializer of orders, whose items are of a registered reference of each producer."""
    inner = f"{prefix}-inner"
    if format_ == "avro":
        text = json.dumps({"type": "record", "name": "s.Item", "fields": [item("sku", "string")]})
        registry().register_schema(inner, Schema(text, "AVRO"))
        fields = [item("id", "string"), item("items", {"type": "array", "items": "s.Item"})]
        order = json.dumps({"type": "record", "name": "s.Order", "fields": fields})
        return AvroSerializer(registry(), Schema(order, "AVRO", [SchemaReference("s.Item", inner, 1)]), conf=config)
    if format_ == "json_schema":
        registry().register_schema(
            inner, Schema(json.dumps({"type": "object", "properties": {"sku": {"type": "string"}}}), "JSON")
        )
        properties = {"id": {"type": "string"}, "items": {"type": "array", "items": {"$ref": "item.json"}}}
        order = json.dumps({"title": "Order", "type": "object", "properties": properties})
        return JSONSerializer(Schema(order, "JSON", [SchemaReference("item.json", inner, 1)]), registry(), conf=config)
    kind = message_class(EVERYTHING, "shop.Everything")

    def serialize(order: dict[str, Any], context: SerializationContext) -> bytes:
        message = kind(text=order["id"], inners=[{"w": one["sku"]} for one in order["items"]])
        return to_bytes(message, context)

    to_bytes = ProtobufSerializer(kind, registry(), {**config, "use.deprecated.format": False})
    return serialize


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("format_", NAMES)
def test_records_of_serializers_become_rows(resources, format_, strategy):
    key = "text" if format_ == "protobuf" else "id"
    settings = {"mode": "upsert", "key": key, "value_format": format_, "record": NAMES[format_]}
    settings["subject_strategy"] = strategy
    stream = Stream(resources, partitions=1, settings=settings)
    config: dict[str, Any] = {"subject.name.strategy": STRATEGIES[strategy]}
    context = SerializationContext(stream.name, MessageField.VALUE)
    first = serializer(format_, stream.name, config)
    orders = [{"id": str(n), "items": [{"sku": "a"}, {"sku": f"b{n}"}]} for n in range(5)]
    values = [first(order, context) for order in orders[:3]]
    if format_ != "protobuf":
        # The embedded registry cannot return a descriptor in the form that this setting needs.
        config |= {"auto.register.schemas": False, "use.latest.version": True}
    latest = serializer(format_, stream.name, config)
    values += [latest(order, context) for order in orders[3:]]
    messages = [{"key": str(n), "value": value} for n, value in enumerate(values)]
    # No key, an empty key, another key; a deletion; and values that no serializer writes.
    messages += [{"key": None, "value": first({"id": "9", "items": []}, context)}]
    messages += [{"key": "", "value": values[0]}, {"key": "8", "value": values[0]}]
    messages += [{"key": "1", "value": None}, {"key": None, "value": None}, {"key": "2", "value": b""}]
    stream.produce(messages)

    stream.ingest()

    [items, name] = ["inners", "w"] if format_ == "protobuf" else ["items", "sku"]
    rows = {row[key]: [one[name] for one in row[items]] for row in stream.rows()}
    assert rows == {n: ["a", f"b{n}"] for n in "0234"} | {"9": []}
    assert [letter["error_reason"] for letter in stream.dead_letters()] == [
        "key_mismatch",
        "key_mismatch",
        "bad_key",
        "not_framed",
    ]
