"""Dedup, change events, record types in one topic, metadata columns and layouts, compared with the topic."""

import json
import math

import pytest

from lakehouse.core.errors import SchemaError
from lakehouse.pipeline.ingestion import ingest
from lakehouse.streaming.stream import Stream as RunningStream
from lakehouse.streaming.stream_events import Commit
from tests.support.topics import TRADES, Stream, framed, register, registry, trade

ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "key", "type": ["null", "string"]},
    ],
}
ENVELOPE = json.dumps(
    {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", ROW]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"]},
        ],
    }
)
KEY = json.dumps({"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]})


@pytest.mark.parametrize("mode", ["dedup", "upsert"])
def test_key_that_is_negative_zero_is_unchanged(resources, mode):
    stream = Stream(resources, partitions=1, settings={"mode": mode, "key": "at"})
    schema = json.dumps({"type": "record", "name": "Place", "fields": [{"name": "at", "type": "double"}]})
    schema_id = stream.schema(schema)
    for first, second in ((-0.0, 1.0), (0.0, -1.0)):
        stream.produce([{"value": framed(schema_id, schema, {"at": at})} for at in (first, second)])
        stream.ingest()
        kept = [row["at"] for row in stream.rows()]
        # Both zeros are one key.
        assert len(set(kept)) == len(kept)
        [zero] = [at for at in kept if at == 0]
        assert math.copysign(1, zero) == math.copysign(1, -0.0 if mode == "dedup" else first)


@pytest.mark.parametrize("key_format", ["avro", None])
def test_debezium_events_become_rows_of_database(resources, key_format):
    settings = {"mode": "debezium", "key": "id", "key_format": key_format}
    stream = Stream(resources, partitions=2, settings=settings)
    value_id, key_id = stream.schema(ENVELOPE), register(f"{stream.name}-key", KEY)

    def row(id_, name):
        return {"id": id_, "name": name, "key": f"k{id_}"}

    def event(op, before, after):
        id_ = (after or before)["id"]
        value = {"before": before, "after": after, "op": op, "ts_ms": None}
        key = framed(key_id, KEY, {"id": id_})
        return {"key": key, "value": framed(value_id, ENVELOPE, value), "partition": id_ % 2}

    def tombstone(id_):
        return {"key": framed(key_id, KEY, {"id": id_}), "value": None, "partition": id_ % 2}

    stream.produce([event("r", None, row(n, f"snapshot {n}")) for n in range(6)])
    stream.produce([event("d", row(0, None), None), tombstone(0), event("c", None, row(0, "again"))])
    stream.ingest()
    stream.produce([event("u", row(1, "snapshot 1"), row(1, "new")), event("u", None, row(1, "newer"))])
    stream.produce([event("d", row(2, None), None), tombstone(2), event("c", None, row(7, None))])
    [published] = stream.ingest()

    actual = {row["id"]: (row["name"], row["key"]) for row in stream.rows()}
    names = {0: "again", 1: "newer", 3: "snapshot 3", 4: "snapshot 4", 5: "snapshot 5", 7: None}
    assert actual == {id_: (name, f"k{id_}") for id_, name in names.items()}
    assert len(stream.rows()) == 6
    assert published.counts.is_balanced and published.counts.consumed == 5


def test_debezium_invalid_event_is_dead_letter(resources):
    stream = Stream(resources, partitions=1, settings={"mode": "debezium", "key": "id"})
    schema_id = stream.schema(ENVELOPE)
    values = [("x", None), ("c", None), ("m", None), ("r", {"id": 1, "name": "x", "key": None})]
    stream.produce(
        [
            {"value": framed(schema_id, ENVELOPE, {"before": None, "after": after, "op": op, "ts_ms": 1})}
            for op, after in values
        ]
    )

    [published] = stream.ingest()

    assert [row["id"] for row in stream.rows()] == [1]
    assert [x["error_reason"] for x in stream.dead_letters()] == ["unknown_operation", "no_row"]
    assert published.counts.filtered == 1


def test_debezium_schema_without_envelope_is_refused(resources):
    stream = Stream(resources, settings={"mode": "debezium"})
    stream.produce_trades(range(3))

    with pytest.raises(SchemaError, match="no record 'after'"):
        stream.ingest()


@pytest.mark.parametrize("strategy", ["topic", "record", "topic_record"])
def test_ingest_record_types_of_topic_fill_own_tables(resources, strategy):
    stream = Stream(resources, partitions=2, settings={"errors": "suspend"})
    space = f"shop{stream.namespace}"
    subjects = {"topic": "{topic}-value", "record": "{record}", "topic_record": "{topic}-{record}"}
    ids, schemas, source = {}, {}, stream.name
    registry().set_compatibility(subject_name=f"{source}-value", level="NONE")
    for name in ("Order", "Refund"):
        record = f"{space}.{name}"
        fields = [{"name": f"{name.lower()}_id", "type": "int"}]
        schemas[name] = json.dumps({"type": "record", "name": name, "namespace": space, "fields": fields})
        ids[name] = register(subjects[strategy].format(topic=source, record=record), schemas[name])
    sent = [("Order", "Refund")[n % 3 == 0] for n in range(30)]
    stream.produce(
        [{"value": framed(ids[name], schemas[name], {f"{name.lower()}_id": n})} for n, name in enumerate(sent)]
    )

    topics = []
    for name in ("Order", "Refund"):
        update = {"kafka_topic": source, "name": name, "key": (), "record": f"{space}.{name}"}
        settings = {"subject_strategy": strategy, "errors": "suspend", "table": name.lower()} | update
        topics.append(type(stream.topic).model_validate(settings))
    if strategy == "topic":
        running = RunningStream(stream.config, topics, stream.systems, once=True)
        published = {event.topic.name: event.published for event in running.run() if isinstance(event, Commit)}
        assert running.errors == {}
    else:
        published = {}
        for topic in topics:
            [published[topic.name]] = ingest(stream.namespace, topic, stream.systems)

    for topic in topics:
        stream.topic = topic
        expected = [n for n, other in enumerate(sent) if other == topic.name]
        assert sorted(row[f"{topic.name.lower()}_id"] for row in stream.rows()) == expected
        assert published[topic.name].counts.filtered == 30 - len(expected)


def test_ingest_metadata_columns_equal_kafka(resources):
    columns = ("topic", "partition", "headers", "offset", "timestamp", "timestamp_type")
    columns += ("raw_key", "raw_value", "schema_id")
    stream = Stream(resources, settings={"metadata": {"columns": columns, "naming": "confluent"}})
    schema_id = stream.schema()
    for n in range(12):
        headers = [("h", b"\x00\xff"), ("h", b""), ("n", None)][: n % 4]
        value = framed(schema_id, TRADES, trade(n))
        stream.produce([{"key": f"k{n}".encode() if n % 2 else None, "value": value, "headers": headers}])

    stream.ingest()

    rows = {(row["$$partition"], row["$$offset"]): row for row in stream.table().scan().to_arrow().to_pylist()}
    assert len(rows) == 12
    for message in stream.messages():
        row = rows[message.partition, message.offset]
        assert row["$$topic"] == stream.name
        assert row["$$headers"] == [{"key": key, "value": value} for key, value in message.headers]
        assert row["$$timestamp"].timestamp() * 1000 == pytest.approx(message.timestamp_ms, abs=0.01)
        assert row["$$timestamp-type"] == "CreateTime"
        assert (row["$$raw-key"], row["$$raw-value"]) == (message.key, message.value)
        assert row["$$schema-id"] == schema_id


def test_replay_upsert_with_confluent_names_keeps_rows(resources):
    from lakehouse.pipeline.replay import replay

    stream = Stream(resources, settings={"mode": "upsert", "metadata": {"naming": "confluent"}})
    for numbers in (range(30), range(30, 50)):
        stream.produce_trades(numbers)
        stream.ingest()
    replay(stream.namespace, stream.topic, stream.systems, "earliest")

    rows = stream.table().scan().to_arrow().to_pylist()
    last = {row["userid"]: row for row in stream.expected_rows()}
    assert {row["userid"]: row["$$offset"] for row in rows} == {u: row["kafka_offset"] for u, row in last.items()}
    assert len(rows) == len(last)


def test_ingest_changed_layout_is_applied_to_table(resources):
    layout = {"partition_by": ["day(kafka_timestamp)", "bucket(4, userid)"], "sort_by": ["symbol", "price desc"]}
    stream = Stream(resources, settings=layout)
    stream.produce_trades(range(100))
    stream.ingest()
    table = stream.table()
    assert [(f.name, str(f.transform)) for f in table.spec().fields] == [
        ("kafka_timestamp_day", "day"),
        ("userid_bucket_4", "bucket[4]"),
    ]
    assert [(f.source_id, f.direction.value) for f in table.sort_order().fields] == [
        (table.schema().find_field("symbol").field_id, "asc"),
        (table.schema().find_field("price").field_id, "desc"),
    ]
    assert len({task.file.partition for task in table.scan().plan_files()}) > 1

    stream.topic = stream.topic.model_copy(update={"partition_by": ("symbol", "bucket(8, userid)"), "sort_by": ()})
    stream.produce_trades(range(100, 150))
    stream.ingest()

    table = stream.table()
    assert [f.name for f in table.spec().fields if str(f.transform) != "void"] == ["symbol", "userid_bucket_8"]
    assert stream.rows() == stream.expected_rows()


def test_ingest_partition_by_unknown_column_is_refused(resources):
    stream = Stream(resources, settings={"partition_by": ["day(traded)"]})
    stream.produce_trades(range(3))

    with pytest.raises(SchemaError, match="no column 'traded'.*one of the columns side"):
        stream.ingest()
    assert stream.table() is None
