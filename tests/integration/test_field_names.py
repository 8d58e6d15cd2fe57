"""Fields with any name that their format allows, in every mode, through ingestion, replay and redrive."""

import json

import pytest
from confluent_kafka.schema_registry import Schema

from lakehouse.pipeline.ledger.reconciliation import reconcile
from lakehouse.pipeline.redrive import Redriven, redrive
from lakehouse.pipeline.replay import replay
from tests.support.topics import Stream, framed, registry, with_checks

WORDS = [
    "__check", "__op", "__deleted", "__v", "__value", "__key", "__end", "__decoded", "__reason", "__tombstone",
    "__filtered", "__timestamp_type", "__headers", "v", "k", "row", "good", "value", "key", "topic", "partition",
    "offset", "timestamp", "timestampType", "headers", "schema_id", "reason", "check", "filtered", "tombstone",
    "chosen", "kept", "n", "rows", "source", "table", "branch_staged", "newest", "partitions", "row_partition",
    "row_offset", "p", "o", "place", "count", "touched_v", "after", "before", "op", "element", "member0", "missing",
    "found", "snapshot", "range", "bin",
]  # fmt: skip
"""Names that this project, Spark's Kafka source or a derived query might use itself."""

MARKS = ["a`b", "`", "a.b", ".", "a b", " ", "'", '"', "\n", "ü", "🦆", "$$offset", "a,b", "x:y", "(", "{}", "1"]
"""Names that JSON allows and other formats do not."""


def avro(names):
    return {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "id", "type": "string"}] + [{"name": name, "type": ["null", "string"]} for name in names],
    }


ENVELOPE = json.dumps(
    {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", avro(WORDS)]},
            {"name": "after", "type": ["null", "Row"]},
            {"name": "op", "type": "string"},
        ],
    }
)


def register_json(stream, properties):
    """Register the schema of an object, and return the bytes before each message."""
    text = json.dumps({"type": "object", "properties": properties})
    return b"\x00" + registry().register_schema(f"{stream.name}-value", Schema(text, "JSON")).to_bytes(4, "big")


def rows_by_key(stream):
    """Return the rows by key, without metadata columns."""
    rows = [{k: v for k, v in row.items() if not k.startswith("kafka_")} for row in stream.rows()]
    [key] = stream.topic.key
    assert len({row[key] for row in rows}) == len(rows)
    return {row[key]: row for row in rows}


def assert_names_keep_values(stream, names, message):
    """Ingest, replay and redrive records in which every field has another value, and compare the rows each time.

    Args:
        stream: the topic, with a key of one field.
        names: the other fields.
        message: the function that converts a record to a message.
    """
    topic, checked = stream.topic, names[-1]
    [key] = topic.key
    quarantine = {"given": {"type": "not_null", "column": checked, "severity": "quarantine"}}

    def fields(id_, version, **others):
        """Return a record in which the value of every field is unique."""
        return {key: id_} | {name: f"{id_} {version} {name}" for name in names} | others

    records, again = [fields(id_, "first") for id_ in "abc"], fields("b", "second")
    stream.produce([message(record) for record in records])
    stream.ingest()
    # The second batch is merged with the rows of the first one.
    added, late = fields("d", "first"), fields("e", "first", **{checked: None})
    stream.produce([message(record) for record in (again, added, late)])
    stream.topic = with_checks(topic, quarantine)
    stream.ingest()
    expected = {record[key]: record for record in (*records, added)}
    if topic.mode != "dedup":
        expected["b"] = again

    assert rows_by_key(stream) == expected
    assert [letter["error_reason"] for letter in stream.dead_letters()] == ["check"]
    replay(stream.namespace, stream.topic, stream.systems, "earliest")
    assert rows_by_key(stream) == expected
    stream.topic = topic
    assert redrive(stream.namespace, topic, stream.systems) == Redriven(1, 1)
    assert rows_by_key(stream) == expected | {"e": late}
    assert reconcile(stream.namespace, topic, stream.systems, whole_log=True).findings == []


# Decoded records have the same form in all formats, so that each mode needs one of them. The mode append has a part of
# what dedup does.
def test_avro_fields_with_any_name_keep_values(resources):
    stream = Stream(resources, partitions=1, settings={"mode": "debezium", "key": "id"})
    schema_id = stream.schema(ENVELOPE)

    def message(record):
        event = {"before": None, "after": record, "op": "u"}
        return {"key": record["id"].encode(), "value": framed(schema_id, ENVELOPE, event)}

    assert_names_keep_values(stream, WORDS, message)


@pytest.mark.parametrize("mode", ["upsert", "dedup"])
def test_json_fields_with_any_name_keep_values(resources, mode):
    key, names = "a`b.c", WORDS + MARKS
    stream = Stream(resources, partitions=1, settings={"mode": mode, "key": key, "value_format": "json_schema"})
    properties = {name: {"type": ["string", "null"]} for name in names} | {key: {"type": "string"}}
    frame = register_json(stream, properties)

    assert_names_keep_values(
        stream, names, lambda record: {"key": record[key].encode(), "value": frame + json.dumps(record).encode()}
    )
