"""Versions of a schema that cannot share the columns of a table, by the topic's policy."""

import json
import re
import struct

import pytest
from confluent_kafka.schema_registry import Schema

from lakehouse.cli.schema_plan import plan_registered
from lakehouse.core.errors import IncompatibleSchema
from tests.support.protobuf_messages import message_class
from tests.support.topics import Stream, registry


def json_text(name):
    return json.dumps({"type": "object", "properties": {"id": {"type": "integer"}, name: {"type": "string"}}})


def protobuf_text(fields):
    return f'syntax = "proto3"; message M {{ int32 id = 1; {fields} }}'


SCHEMAS = {
    "protobuf": (
        "PROTOBUF",
        protobuf_text("string a = 2; string b = 3;"),
        protobuf_text("string b = 2; string a = 3;"),
    ),
    "json_schema": ("JSON", json_text("a"), json_text("A")),
}
FIELD_AND_RULE = {"protobuf": r"'b' has number 2.*NAME_REUSED", "json_schema": "'a' of an older version is 'A'"}


class Topic:
    """A topic with records of two versions, whose field `a` is the second one's `a` or `A`."""

    def __init__(self, resources, value_format, policy):
        settings = {"key": [], "value_format": value_format, "on_incompatible": policy}
        self.value_format, self.stream = value_format, Stream(resources, partitions=1, settings=settings)
        registry().set_compatibility(subject_name=f"{self.stream.name}-value", level="NONE")
        self.type, *self.texts = SCHEMAS[value_format]
        self.register(0)
        self.produce(0, 1)
        self.stream.ingest()

    def register(self, version):
        return registry().register_schema(f"{self.stream.name}-value", Schema(self.texts[version], self.type))

    def produce(self, version, id_):
        head = struct.pack(">bI", 0, self.register(version))
        if self.value_format == "protobuf":
            body = b"\0" + message_class(self.texts[version], "M")(id=id_, a="x").SerializeToString()
        else:
            body = json.dumps({"id": id_, "aA"[version]: "x"}).encode()
        self.stream.produce([{"value": head + body}])

    def rows(self):
        return [(row["id"], row["a"]) for row in self.stream.rows()]


@pytest.mark.parametrize("value_format", SCHEMAS)
def test_ingest_conflicting_version_is_dead_letter_by_policy(resources, value_format):
    topic = Topic(resources, value_format, "dead_letter")
    topic.produce(1, 2)
    topic.produce(0, 3)
    topic.stream.ingest()
    assert topic.rows() == [(1, "x"), (3, "x")]
    [letter] = topic.stream.dead_letters()
    assert (letter["kafka_offset"], letter["error_reason"]) == (1, "unfit_schema")
    assert re.search(FIELD_AND_RULE[value_format], letter["error_message"])
    assert topic.stream.table().scan().to_arrow().column_names.count("A") == 0


@pytest.mark.parametrize("value_format", SCHEMAS)
def test_ingest_conflicting_version_stops_then_continues_in_new_table(resources, value_format):
    topic = Topic(resources, value_format, "stop")
    stream = topic.stream
    topic.produce(1, 2)
    topic.produce(0, 3)
    before = stream.table().schema()
    plan = plan_registered(stream.config, stream.topic, stream.systems)
    assert not plan.is_accepted and re.search(FIELD_AND_RULE[value_format], plan.invalid)
    with pytest.raises(IncompatibleSchema, match=FIELD_AND_RULE[value_format]):
        stream.ingest()
    assert (topic.rows(), stream.table().schema()) == ([(1, "x")], before)

    stream.topic = stream.topic.model_copy(update={"on_incompatible": "new_table"})
    stream.ingest()
    assert topic.rows() == [(1, "x")]
    new = stream.table(f"{stream.topic.table}__v2").scan().to_arrow().to_pylist()
    assert [(row["id"], row["A" if value_format == "json_schema" else "a"]) for row in new] == [(2, "x")]
    topic.produce(1, 4)
    stream.ingest()
    new = stream.table(f"{stream.topic.table}__v2").scan().to_arrow()
    assert sorted(new["id"].to_pylist()) == [2, 4]
