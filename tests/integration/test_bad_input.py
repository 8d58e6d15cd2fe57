"""Incompatible schemas, records that fail Spark tasks or cannot be read, and topics of dead letters."""

import os
import random
from contextlib import contextmanager
from dataclasses import replace

import dagster as dg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from confluent_kafka.schema_registry import Schema
from pyspark.sql import functions as F

from assets.topics.iceberg_asset import table_asset
from lakehouse.config.loader import load
from lakehouse.core.errors import BadRecords, IncompatibleSchema, LakehouseError, TransientError, UnclearState
from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.dead_letters.dead_letter_topic import publish_dead_letters, try_publish_dead_letters
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.redrive import Redriven, redrive
from lakehouse.pipeline.replay import replay
from resources.build import build_resources
from spark.decoding.decoded import PREFIX, record
from tests.support.protobuf_messages import message_class
from tests.support.topics import (
    CHEAP,
    TRADES,
    Stream,
    admin,
    consume,
    delete_bookmark,
    framed,
    register,
    registry,
    trade,
    with_checks,
    with_types,
)
from tools.repository import PROJECT

NANOSECONDS = 1_790_000_000_000_000_000
"""A timestamp in nanoseconds, which Kafka takes for milliseconds."""


def incompatible(stream):
    """Return a version of the schema in which `quantity` is a string, and allow its registration."""
    registry().set_compatibility(subject_name=f"{stream.name}-value", level="NONE")
    return with_types(TRADES, quantity="string")


def test_ingest_incompatible_schema_stops_then_continues_in_new_table(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    stream.ingest()
    before = stream.rows(), stream.table().schema()
    schema = incompatible(stream)
    schema_id = stream.schema(schema)
    stream.produce([{"value": framed(schema_id, schema, trade(n, quantity=f"n{n}"))} for n in range(10, 15)])

    with pytest.raises(IncompatibleSchema, match="quantity"):
        stream.ingest()
    assert (stream.rows(), stream.table().schema()) == before

    stream.topic = stream.topic.model_copy(update={"on_incompatible": "new_table"})
    [published] = stream.ingest()
    stream.produce([{"value": framed(schema_id, schema, trade(15, quantity="n15"))}])
    stream.ingest()

    assert published.counts.rows == 5
    assert [row["kafka_offset"] for row in stream.rows()] == list(range(10))
    successor = stream.table(f"{stream.topic.table}__v2").scan().to_arrow().sort_by("kafka_offset")
    assert successor["kafka_offset"].to_pylist() == list(range(10, 16))
    assert successor["quantity"].to_pylist() == [f"n{n}" for n in range(10, 16)]
    assert stream.ingest() == []

    with pytest.raises(LakehouseError, match=r"partition 0 begins at offset 10.*Nothing was changed"):
        replay(stream.namespace, stream.topic, stream.systems, "0:9")
    assert replay(stream.namespace, stream.topic, stream.systems, "earliest").counts.rows == 6
    replayed = stream.table(f"{stream.topic.table}__v2").scan().to_arrow().sort_by("kafka_offset")
    assert replayed["kafka_offset"].to_pylist() == list(range(10, 16))


@contextmanager
def fragile_decoder(stream):
    """Let the Spark task fail at records that contain "kill", as a defect in a decoder would."""

    def decide(operation, records, decoding, *, refused=None, **settings):
        decided = operation(records, decoding, refused=refused, **settings)
        if refused:
            return decided
        killed = F.raise_error(F.lit("killed")).cast("string")
        reason = F.when(F.contains(record("value"), F.lit(b"kill")), killed).otherwise(record("reason"))
        return replace(decided, alone=decided.alone.withColumn(PREFIX + "reason", reason))

    stream.interceptors["decide"] = decide
    yield
    del stream.interceptors["decide"]


def poisonous(schema_id, number):
    return framed(schema_id, TRADES, trade(number, userid="kill"))


def test_ingest_records_that_fail_tasks_are_dead_letters(resources):
    """One record has a schema of its subject, the other one a schema of another subject."""
    stream = Stream(resources, partitions=2)
    elsewhere = register(f"elsewhere-{stream.name}", TRADES.replace('"fields"', '"doc": "elsewhere", "fields"', 1))
    ids = [stream.schema()] * 3 + [elsewhere] * 3
    values = [framed(schema_id, TRADES, trade(n)) for n, schema_id in enumerate(ids)]
    poison = [2, 3]
    for n in poison:
        values[n] = poisonous(ids[n], n)
    stream.produce([{"value": value, "partition": n % 2} for n, value in enumerate(values)])
    with fragile_decoder(stream):
        stream.ingest()

    letters = stream.dead_letters()
    assert len(stream.rows()) == 6 - len(poison)
    assert {letter["error_reason"] for letter in letters} == {"poison"}
    assert sorted(letter["value"] for letter in letters) == sorted(values[n] for n in poison)
    offsets = {(row["kafka_partition"], row["kafka_offset"]) for row in (*stream.rows(), *letters)}
    assert offsets == {(n % 2, n // 2) for n in range(6)}


def test_ingest_with_broken_decoder_blames_no_record(resources, monkeypatch):
    stream = Stream(resources, partitions=1, settings={"key": [], "value_format": "protobuf"})
    schema_text = 'syntax = "proto3"; message Seat { int64 number = 1; }'
    schema_id = registry().register_schema(f"{stream.name}-value", Schema(schema_text, "PROTOBUF"))
    frame = b"\x00" + schema_id.to_bytes(4, "big") + b"\x00"
    stream.produce([{"value": frame + message_class(schema_text, "Seat")(number=7).SerializeToString()}])

    arrow_udf = F.arrow_udf

    def broken(ids, bodies):
        raise ModuleNotFoundError("No module named 'ptars'")

    with monkeypatch.context() as patch, pytest.raises(TransientError, match="no record is to blame"):
        patch.setattr(F, "arrow_udf", lambda _, row_type: arrow_udf(broken, row_type))
        stream.ingest()

    assert stream.rows() == stream.dead_letters() == []
    assert [published.counts.rows for published in stream.ingest()] == [1]


def test_ingest_with_broken_explanations_names_the_cause(resources, monkeypatch):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(3))
    stream.produce([{"value": b"not a trade"}])

    arrow_udf = F.arrow_udf

    def broken(reasons, keys, values):
        raise ModuleNotFoundError("No module named 'lakehouse'")

    with monkeypatch.context() as patch, pytest.raises(TransientError, match="No module named 'lakehouse'"):
        patch.setattr(F, "arrow_udf", lambda _, text_type: arrow_udf(broken, text_type))
        stream.ingest()

    assert stream.rows() == stream.dead_letters() == []


@pytest.fixture(scope="module")
def poisoned(resources):
    """A topic of twenty records after their ingestion. One is poisonous, and some are quarantined by a check."""
    stream = Stream(resources, partitions=1, settings={"mode": "upsert", "errors": "skip"})
    schema_id = stream.schema()
    values = [framed(schema_id, TRADES, trade(n)) for n in range(40, 60)]
    values[5] = poisonous(schema_id, 45)
    users = ["kill" if n == 45 else trade(n)["userid"] for n in range(40, 60)]
    stream.produce([{"key": user.encode(), "value": value} for user, value in zip(users, values, strict=True)])
    stream.topic = with_checks(stream.topic, CHEAP)
    with fragile_decoder(stream):
        stream.ingest()
    return stream


def test_replay_with_poisonous_dead_letter_rewrites_the_rows(poisoned):
    before, letters = poisoned.rows(), poisoned.dead_letters()

    with fragile_decoder(poisoned):
        replayed = replay(poisoned.namespace, poisoned.topic, poisoned.systems, "earliest")

    assert replayed.counts.consumed == 19
    assert poisoned.rows() == before
    assert poisoned.dead_letters() == letters


def test_redrive_with_poisonous_dead_letter_recovers_the_others(poisoned):
    stream, quarantined = poisoned, len(poisoned.dead_letters()) - 1
    assert quarantined > 0
    stream.topic = with_checks(stream.topic, {})

    with fragile_decoder(stream):
        assert redrive(stream.namespace, stream.topic, stream.systems) == Redriven(quarantined, quarantined)

    newest = {trade(40 + offset)["userid"]: offset for offset in range(20) if offset != 5}
    assert sorted(row["kafka_offset"] for row in stream.rows()) == sorted(newest.values())
    waiting = [letter for letter in stream.dead_letters() if letter["redriven_timestamp"] is None]
    assert [(letter["kafka_offset"], letter["error_reason"]) for letter in waiting] == [(5, "poison")]


def test_redrive_of_poison_recovers_it_after_the_fix(poisoned):
    """The record is not published as long as its decoding aborts the job, and is a row afterwards."""
    stream = poisoned
    letters, rows = stream.dead_letters(), stream.rows()
    waiting = [letter for letter in letters if letter["redriven_timestamp"] is None]
    assert "poison" in {letter["error_reason"] for letter in waiting}
    stream.topic = with_checks(stream.topic, {})
    with fragile_decoder(stream), pytest.raises(LakehouseError, match=r"was aborted.*without --poison"):
        redrive(stream.namespace, stream.topic, stream.systems, poison=True)
    assert (stream.dead_letters(), stream.rows()) == (letters, rows)

    assert redrive(stream.namespace, stream.topic, stream.systems, poison=True).recovered == len(waiting)

    assert all(letter["redriven_timestamp"] for letter in stream.dead_letters())
    newest = {"kill" if offset == 5 else trade(40 + offset)["userid"]: offset for offset in range(20)}
    assert sorted(row["kafka_offset"] for row in stream.rows()) == sorted(newest.values())
    rows = stream.rows()
    with fragile_decoder(stream), pytest.raises(LakehouseError, match="was aborted.*No row was changed.*--since"):
        replay(stream.namespace, stream.topic, stream.systems, "earliest")
    assert stream.rows() == rows


def test_publish_dead_letters_twice_adds_each_once(resources):
    stream = Stream(resources, partitions=1)
    letters = f"{stream.name}.letters"
    stream.topic = stream.topic.model_copy(update={"dead_letter_topic": letters})
    stream.produce_trades(range(3))
    stream.produce([{"key": b"k", "value": b"bad 1", "headers": [("h", b"\xff"), ("n", None)]}, {"value": b"bad 2"}])
    for mirrored in (2, 0):
        stream.ingest()
        assert publish_dead_letters(stream.namespace, stream.topic, stream.systems) == mirrored
    stream.produce([{"key": None, "value": b"bad 3"}])
    for mirrored in (1, 0):
        stream.ingest()
        assert publish_dead_letters(stream.namespace, stream.topic, stream.systems) == mirrored

    messages = consume(letters, stream.topic.partitions)
    assert sorted((m.key, m.value) for m in messages if m.key) == [(b"k", b"bad 1")]
    assert sorted(m.value for m in messages) == [b"bad 1", b"bad 2", b"bad 3"]
    headers = next(dict(m.headers) for m in messages if m.value == b"bad 1")
    assert (headers["h"], headers["n"]) == (b"\xff", None)
    assert headers["lakehouse.error_reason"] == b"not_framed"
    assert (headers["lakehouse.partition"], headers["lakehouse.offset"]) == (b"0", b"3")


def test_publish_dead_letters_of_entries_that_share_topics(resources):
    stream = Stream(resources, partitions=1)
    letters = f"{stream.name}.letters"
    shared = {"kafka_topic": stream.name, "dead_letter_topic": letters}
    first, second, third = (stream.topic.model_copy(update=shared | {"name": f"{stream.name}-{n}"}) for n in range(3))
    stream.schema()
    stream.produce([{"value": b"bad"}])
    for entry in (first, second, third):
        list(ingest(stream.namespace, entry, stream.systems))

    for entry in (first, second):
        assert publish_dead_letters(stream.namespace, entry, stream.systems) == 1
    messages = consume(letters, stream.topic.partitions)
    assert {dict(m.headers)["lakehouse.entry"].decode() for m in messages} == {first.name, second.name}

    delete_bookmark(f"lakehouse.dead_letters/{stream.name}/{first.name}/{letters}")
    with pytest.raises(UnclearState, match=f"has dead letters of '{first.name}', but no bookmark"):
        publish_dead_letters(stream.namespace, first, stream.systems)
    # Earlier releases named the topic of a record only.
    producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
    producer.produce(letters, value=b"bad", headers=[("lakehouse.topic", stream.name.encode())])
    assert producer.flush(30) == 0
    with pytest.raises(UnclearState, match=f"has dead letters of '{third.name}', but no bookmark"):
        publish_dead_letters(stream.namespace, third, stream.systems)


def test_publish_dead_letters_too_large_omits_value(resources):
    stream = Stream(resources, partitions=1)
    letters = f"{stream.name}.letters"
    stream.topic = stream.topic.model_copy(update={"dead_letter_topic": letters})
    admin().create_topics([NewTopic(letters, 1, config={"max.message.bytes": "5000"})])[letters].result()
    stream.schema()
    stream.produce(
        [{"value": b"bad 1"}, {"key": b"k", "value": b"x" * 6_000}, {"key": b"y" * 6_000, "value": b"bad 3"}]
    )
    stream.ingest()

    assert publish_dead_letters(stream.namespace, stream.topic, stream.systems) == 3

    messages = consume(letters, 1)
    assert [(m.key, m.value) for m in messages] == [(None, b"bad 1"), (b"k", None), (None, None)]
    omitted = [dict(m.headers).get("lakehouse.value_left_out") for m in messages]
    assert omitted == [None, b"6000", b"5"]
    assert [len(letter["value"]) for letter in stream.dead_letters()] == [5, 6_000, 5]


def test_publish_dead_letters_large_header_does_not_block(resources):
    """Its own name and place do not fit beside a header just under the limit, and one of the project's name is kept by
    no rule."""
    stream = Stream(resources, partitions=1)
    letters = f"{stream.name}.letters"
    stream.topic = stream.topic.model_copy(update={"dead_letter_topic": letters})
    stream.schema()
    note = ("lakehouse.note", random.Random(1).randbytes(1_048_300))
    stream.produce(
        [{"key": b"k", "value": b"bad 1", "headers": [note]}, {"value": b"bad 2"}], **{"message.max.bytes": 2_000_000}
    )
    stream.ingest()

    assert publish_dead_letters(stream.namespace, stream.topic, stream.systems) == 2

    # Messages without keys are in any partition.
    [first, second] = sorted(consume(letters, stream.topic.partitions), key=lambda message: message.value is not None)
    assert (first.key, first.value, second.value) == (None, None, b"bad 2")
    headers = dict(first.headers)
    assert "lakehouse.note" not in headers and headers["lakehouse.headers_left_out"] == b"true"
    assert (headers["lakehouse.partition"], headers["lakehouse.offset"]) == (b"0", b"0")
    [letter, _] = stream.dead_letters()
    assert (letter["key"], letter["value"], letter["headers"]) == (
        b"k",
        b"bad 1",
        [{"key": "lakehouse.note", "value": note[1]}],
    )


def test_publish_dead_letters_lowered_limit_bounds_batches(resources):
    """Brokers compare a batch of several messages with max.message.bytes, after its compression."""
    stream = Stream(resources, partitions=1)
    letters = f"{stream.name}.letters"
    stream.topic = stream.topic.model_copy(update={"dead_letter_topic": letters})
    admin().create_topics([NewTopic(letters, 1, config={"max.message.bytes": "2000"})])[letters].result()
    stream.schema()
    bodies = [random.Random(n).randbytes(600) for n in range(20)]
    stream.produce([{"value": body} for body in bodies])
    stream.ingest()

    assert publish_dead_letters(stream.namespace, stream.topic, stream.systems) == 20

    assert [message.value for message in consume(letters, 1)] == bodies


def test_publish_dead_letters_too_long_without_body_are_named(resources):
    stream = Stream(resources, partitions=1)
    letters = f"{stream.name}.letters"
    stream.topic = stream.topic.model_copy(update={"dead_letter_topic": letters})
    admin().create_topics([NewTopic(letters, 1, config={"max.message.bytes": "600"})])[letters].result()
    stream.schema()
    stream.produce([{"value": b"bad 1"}, {"value": b"bad 2"}])
    stream.ingest()

    [result] = try_publish_dead_letters(stream.namespace, stream.topic, stream.systems)

    assert not result.passed and "2 dead letters" in result.message and "partition 0 offset 1" in result.message
    raised = ConfigEntry("max.message.bytes", "5000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("TOPIC", letters, incremental_configs=[raised])
    [altered] = admin().incremental_alter_configs([resource]).values()
    altered.result(20)
    stream.produce([{"value": b"bad 3"}])
    stream.ingest()
    assert publish_dead_letters(stream.namespace, stream.topic, stream.systems) == 1
    assert [message.value for message in consume(letters, 1)] == [b"bad 3"]


def test_dead_letter_topic_invalid_fails_check_not_run(resources):
    stream = Stream(resources, partitions=1)
    stream.topic = stream.topic.model_copy(update={"dead_letter_topic": "no name of a topic"})
    stream.schema()
    stream.produce([{"value": b"bad 1"}])
    asset = table_asset(stream.config, stream.topic)

    result = dg.materialize([asset], resources=build_resources(load(PROJECT / "lakehouse.yaml"), "local"))

    assert result.success
    checks = {check.check_name: check.passed for check in result.get_asset_check_evaluations()}
    assert checks == {"record_count": True, "key_not_null": True, "dead_letter_topic": False}
    assert len(stream.dead_letters()) == 1


def accept_any_timestamp(stream):
    entry = ConfigEntry("message.timestamp.after.max.ms", str(2**63 - 1), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("TOPIC", stream.name, incremental_configs=[entry])
    [altered] = admin().incremental_alter_configs([resource]).values()
    altered.result(20)


def test_ingest_unreadable_record_stops_and_resume_continues(resources):
    stream = Stream(resources, partitions=2)
    accept_any_timestamp(stream)
    value = framed(stream.schema(), TRADES, trade(1))
    nanoseconds = {"timestamp": NANOSECONDS}
    stream.produce(
        [{"value": value, "partition": p} | more for p, more in ((0, {}), (1, {}), (1, nanoseconds), (1, {}))]
    )

    with pytest.raises(UnclearState, match=f"partition 1 at offset 1.*resume {stream.name} --at 0:1,1:2 "):
        stream.ingest()
    assert len(stream.rows()) == 2
    resume(stream.systems, stream.namespace, stream.topic, "0:1,1:2", "nanoseconds")
    stream.ingest()

    assert [(row["kafka_partition"], row["kafka_offset"]) for row in stream.rows()] == [(0, 0), (1, 0), (1, 2)]


def test_redrive_leaves_dead_letters_before_unreadable_record(resources):
    """The unreadable record may have the key of any one before it."""
    stream = Stream(resources, partitions=1, settings={"mode": "upsert"})
    accept_any_timestamp(stream)
    schema_id, unchecked = stream.schema(), stream.topic
    stream.topic = with_checks(unchecked, CHEAP)
    users = [("before", 900), ("has_row", 900), ("has_row", 10), ("unreadable", 10), ("after", 900)]
    trades = [trade(n, userid=user, price=price) for n, (user, price) in enumerate(users)]
    messages = [{"key": t["userid"].encode(), "value": framed(schema_id, TRADES, t)} for t in trades]
    messages[3]["timestamp"] = NANOSECONDS
    stream.produce(messages)
    with pytest.raises(UnclearState, match="partition 0 at offset 3"):
        stream.ingest()
    resume(stream.systems, stream.namespace, stream.topic, "0:4", "nanoseconds")
    stream.ingest()
    assert [row["kafka_offset"] for row in stream.rows()] == [2]
    stream.topic = unchecked

    result = redrive(stream.namespace, stream.topic, stream.systems)

    assert result == Redriven(3, 2, gone=1, first_gone=((0, 0),), aborting=((0, 3),))
    waiting = [letter["kafka_offset"] for letter in stream.dead_letters() if letter["redriven_timestamp"] is None]
    assert (waiting, sorted(row["kafka_offset"] for row in stream.rows())) == ([0], [2, 4])


@pytest.mark.parametrize("sensitive", [[], ["userid"]])
def test_ingest_undecodable_record_names_field_and_byte(resources, sensitive):
    stream = Stream(resources, partitions=1, settings={"errors": "suspend", "sensitive": sensitive})
    value = framed(stream.schema(), TRADES, trade(1))
    cut = value[: value.index(b"User_")]
    stream.produce([{"key": b"User_7", "value": cut}])

    with pytest.raises(BadRecords) as raised:
        stream.ingest()
    stream.topic = stream.topic.model_copy(update={"errors": "log"})
    stream.ingest()

    [letter] = stream.dead_letters()
    for text in (str(raised.value), letter["error_message"]):
        assert "userid" in text and f"byte {len(cut)}" in text
    assert ("(key 'User_7')" in str(raised.value)) is not bool(sensitive)
