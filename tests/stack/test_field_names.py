"""A field of a record may have any name that its format allows, in every mode and whatever is done again."""

import json

import pytest
from confluent_kafka.schema_registry import Schema
from support import Stream, framed, registry, with_checks

from lakehouse.pipeline.proof import prove
from lakehouse.pipeline.replay import Redriven, redrive, replay

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
"""What JSON allows in a name, and others do not."""


def fields(key, changed, names, **own):
    """A record in which every field differs from every other."""
    return {"id": key} | {name: f"{key} {changed} {name}" for name in names} | own


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
    """Register an object's schema; returns what stands before each message."""
    text = json.dumps({"type": "object", "properties": properties})
    return b"\x00" + registry().register_schema(f"{stream.name}-value", Schema(text, "JSON")).to_bytes(4, "big")


def in_table(stream):
    """The rows by key, without metadata columns."""
    rows = [{k: v for k, v in row.items() if not k.startswith("kafka_")} for row in stream.rows()]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


def require_names(stream, names, message):
    """Ingest, replay and redrive records in which every field has another value, and compare the rows each time.

    Args:
        stream: the topic, with the key `id`.
        names: the fields besides.
        message: makes a message of a record.
    """
    own = stream.topic
    replaces, checked = own.mode in ("upsert", "debezium"), names[-1]
    quarantine = {"given": {"type": "not_null", "column": checked, "severity": "quarantine"}}
    records = [fields(key, "first", names) for key in "abc"]
    stream.produce([message(record) for record in records])
    stream.ingest()
    again = [fields("b", "second", names)] if own.mode != "append" else []
    late = fields("e", "first", names, **{checked: None})
    stream.produce([message(record) for record in (*again, fields("d", "first", names), late)])
    stream.topic = with_checks(own, quarantine)
    stream.ingest()
    expected = {record["id"]: record for record in records + again * replaces} | {"d": fields("d", "first", names)}

    assert in_table(stream) == expected
    assert [letter["error_reason"] for letter in stream.dead_letters()] == ["check"]
    replay(stream.namespace, stream.topic, stream.systems, "earliest")
    assert in_table(stream) == expected
    stream.topic = own
    assert redrive(stream.namespace, own, stream.systems) == Redriven(1, 1)
    assert in_table(stream) == expected | {"e": late}
    assert prove(stream.namespace, own, stream.systems, whole_log=True).findings == []


@pytest.mark.parametrize("mode", ["append", "upsert", "dedup", "debezium"])
def test_avro_fields_of_any_name_keep_their_values(resources, mode):
    stream = Stream(resources, partitions=1, settings={"mode": mode, "key": "id"})
    text = ENVELOPE if mode == "debezium" else json.dumps(avro(WORDS))
    schema_id = stream.schema(text)

    def message(record):
        value = {"before": None, "after": record, "op": "u"} if mode == "debezium" else record
        return {"key": record["id"].encode(), "value": framed(schema_id, text, value)}

    require_names(stream, WORDS, message)


@pytest.mark.parametrize("mode", ["append", "upsert", "dedup"])
def test_json_fields_of_any_name_keep_their_values(resources, mode):
    stream = Stream(resources, partitions=1, settings={"mode": mode, "key": "id", "value_format": "json_schema"})
    names = WORDS + MARKS
    properties = {name: {"type": ["string", "null"]} for name in names} | {"id": {"type": "string"}}
    frame = register_json(stream, properties)

    require_names(
        stream, names, lambda record: {"key": record["id"].encode(), "value": frame + json.dumps(record).encode()}
    )


def test_a_key_of_any_name_identifies_rows(resources):
    stream = Stream(resources, partitions=1, settings={"mode": "upsert", "key": "a`b.c", "value_format": "json_schema"})
    properties = {name: {"type": "string"} for name in ("a`b.c", "n", "chosen")}
    frame = register_json(stream, properties)
    for batch in (["1", "2"], ["2", "3"]):
        for key in batch:
            record = {"a`b.c": key, "n": f"n {batch}", "chosen": key}
            stream.produce([{"key": key.encode(), "value": frame + json.dumps(record).encode()}])
        stream.ingest()

    rows = {row["a`b.c"]: (row["n"], row["chosen"]) for row in stream.rows()}
    assert rows == {"1": ("n ['1', '2']", "1"), "2": ("n ['2', '3']", "2"), "3": ("n ['2', '3']", "3")}
    assert prove(stream.namespace, stream.topic, stream.systems, whole_log=True).findings == []
