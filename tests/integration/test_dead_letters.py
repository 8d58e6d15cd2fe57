"""Dead letters: undecodable records keep their bytes, and ingestion continues with the others."""

from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition

from lakehouse.core.errors import UnclearState
from lakehouse.pipeline.dead_letters.letters import may_hold
from lakehouse.pipeline.redrive import Redriven, redrive
from tests.support.compaction import compact, set_compaction
from tests.support.topics import CHEAP, TRADES, Stream, admin, framed, trade, with_checks


def as_letters(messages):
    """Return messages as rows of the dead-letter table."""
    return [
        {
            "kafka_partition": m.partition,
            "kafka_offset": m.offset,
            "kafka_timestamp": m.timestamp_ms,
            "key": m.key,
            "value": m.value,
            "headers": [{"key": key, "value": value} for key, value in m.headers],
        }
        for m in sorted(messages, key=lambda m: (m.partition, m.offset))
    ]


def records_in(letters):
    """Return the records that dead letters contain."""
    fields = ("kafka_partition", "kafka_offset", "kafka_timestamp", "key", "value", "headers")
    return [{field: letter[field] for field in fields} for letter in letters]


def bad(schema_id, good):
    """Return values that are not trades, by the reason for which each is a dead letter."""
    return {
        "not_framed": [b"hello", b"", b"\x00", b"\x00\x00\x00", b"\x01" + good[1:]],
        "undecodable": [good[:9], good[:5] + b"\xff" * 12],
        "unknown_schema": [b"\x00" + (999_999).to_bytes(4, "big") + good[5:]],
        "null_value": [None],
    }


def test_ingest_bad_record_is_dead_letter_with_all_parts(resources):
    stream = Stream(resources)
    schema_id = stream.schema()
    good = framed(schema_id, TRADES, trade(1))
    broken = bad(schema_id, good)
    values = [value for values in broken.values() for value in values]
    headers = [("h", b"\x01\xff"), ("h", b""), ("n", None)]
    messages = [{"key": b"\x00k", "value": value, "headers": headers} for value in values]
    stream.produce([message for bad_one in messages for message in (bad_one, {"key": b"ok", "value": good})])

    [published] = stream.ingest()

    assert published.counts.dead_letters == len(values)
    assert published.counts.rows == len(values) == len(stream.rows())
    letters = stream.dead_letters()
    assert records_in(letters) == as_letters([m for m in stream.messages() if m.value != good])
    by_reason = {reason: [x["value"] for x in letters if x["error_reason"] == reason] for reason in broken}
    assert {reason: sorted(v or b"" for v in actual) for reason, actual in by_reason.items()} == {
        reason: sorted(v or b"" for v in expected) for reason, expected in broken.items()
    }
    assert {letter["topic"] for letter in letters} == {stream.name}
    assert all(letter["error_message"] for letter in letters)


def test_upsert_record_without_usable_key_is_dead_letter(resources):
    stream = Stream(resources, settings={"mode": "upsert"})
    schema_id = stream.schema()
    stream.produce(
        [
            {"key": b"User_1", "value": framed(schema_id, TRADES, trade(0, userid="User_1"))},
            {"key": b"\xff\xfe", "value": None},
            {"key": None, "value": None},
        ]
    )

    [published] = stream.ingest()

    assert published.counts.dead_letters == 2
    assert [row["userid"] for row in stream.rows()] == ["User_1"]
    assert {(x["error_reason"], x["key"]) for x in stream.dead_letters()} == {
        ("bad_key", b"\xff\xfe"),
        ("bad_key", None),
    }


def test_ingest_into_new_table_restores_dead_letters(resources):
    stream = Stream(resources, partitions=1, settings={"errors": "skip"})
    stream.produce_trades(range(40, 60))
    stream.produce([{"value": b"bad 1"}])
    as_declared = stream.topic
    stream.topic = with_checks(as_declared, CHEAP)
    stream.ingest()
    quarantined = [letter["kafka_offset"] for letter in stream.dead_letters()]
    stream.topic = as_declared
    recovered = redrive(stream.namespace, stream.topic, stream.systems).recovered
    assert recovered == len(quarantined) > 0
    resources.catalog.iceberg().drop_table((stream.namespace, stream.topic.table))

    stream.topic = with_checks(as_declared, CHEAP).model_copy(update={"errors": "log"})
    stream.ingest()

    letters = stream.dead_letters()
    assert [letter["kafka_offset"] for letter in letters] == [*quarantined, 20]
    assert {letter["redriven_timestamp"] for letter in letters} == {None}
    assert len(stream.rows()) == 20 - recovered


def test_redrive_compacted_record_remains_a_dead_letter(resources):
    """The newest record of the key does not decode, so the compacted one has no row that replaced its own."""
    stream = Stream(resources, partitions=1, settings={"mode": "upsert"})
    set_compaction(stream)
    schema_id, unchecked = stream.schema(), stream.topic
    stream.topic = with_checks(unchecked, CHEAP)
    trades = [trade(n, userid=user, price=900) for n, user in enumerate(("User_1", "User_2"))]
    stream.produce([{"key": t["userid"].encode(), "value": framed(schema_id, TRADES, t)} for t in trades])
    stream.produce([{"key": b"User_1", "value": b"bad"}])
    stream.ingest()
    compact(stream, lambda: 0 not in [message.offset for message in stream.messages()], user="User_3")
    stream.topic = unchecked

    result = redrive(stream.namespace, stream.topic, stream.systems)

    assert result == Redriven(attempted=3, recovered=1, gone=1, first_gone=((0, 0),))
    waiting = [letter["kafka_offset"] for letter in stream.dead_letters() if letter["redriven_timestamp"] is None]
    assert sorted(waiting) == [0, 2]
    assert [row["kafka_offset"] for row in stream.rows()] == [1]


def test_redrive_of_deleted_records_recovers_the_others(resources):
    """A row or record of the key that is later than the deleted one proves that it was replaced."""
    stream = Stream(resources, partitions=1, settings={"mode": "upsert"})
    schema_id, unchecked = stream.schema(), stream.topic
    stream.topic = with_checks(unchecked, CHEAP)
    cheap, dear = {"price": 900}, {"price": 10}
    users = [("deleted", cheap), ("has_row", cheap), ("has_row", dear), ("has_record", cheap), ("has_record", cheap)]
    trades = [trade(n, userid=user, **price) for n, (user, price) in enumerate(users)]
    stream.produce([{"key": t["userid"].encode(), "value": framed(schema_id, TRADES, t)} for t in trades])
    stream.ingest()
    assert [row["kafka_offset"] for row in stream.rows()] == [2]
    for deleted in admin().delete_records([TopicPartition(stream.name, 0, 4)]).values():
        deleted.result()
    stream.topic = unchecked

    result = redrive(stream.namespace, stream.topic, stream.systems)

    assert result == Redriven(attempted=4, recovered=3, gone=1, first_gone=((0, 0),))
    assert "partition 0 offset 0" in result.describe()
    waiting = [letter["kafka_offset"] for letter in stream.dead_letters() if letter["redriven_timestamp"] is None]
    assert waiting == [0]
    assert sorted(row["kafka_offset"] for row in stream.rows()) == [2, 4]


def test_ingest_random_check_stops_batch(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(3))
    stream.ingest()
    by_chance = {"chance": {"type": "expression", "sql": "rand() < 0.5", "severity": "quarantine"}}
    stream.topic = with_checks(stream.topic, by_chance)
    stream.produce_trades(range(3, 103))

    with pytest.raises(UnclearState, match="The batch was not published"):
        stream.ingest()

    assert (len(stream.rows()), stream.dead_letters()) == (3, [])


def test_ingest_retry_in_smaller_batches_adds_letters_once(resources, tmp_path):
    stream = Stream(resources, partitions=1)
    stream.schema()
    stream.produce([{"value": b"bad %d" % n} for n in range(10)])
    stream.die("after dead letters", tmp_path)
    stream.topic = stream.topic.model_copy(update={"max_records_per_batch": 4})

    batches = [published.batch for published in stream.ingest()]

    assert [batch.offsets for batch in batches] == [4, 4, 2]
    assert [letter["kafka_offset"] for letter in stream.dead_letters()] == list(range(10))
    # The table is not even read for a batch after all dead letters.
    behind = replace(batches[-1], start={0: 10}, end={0: 20})
    table = stream.table(f"{stream.topic.table}__dead_letters")
    assert [may_hold(resources.catalog, table, batch) for batch in (batches[0], behind)] == [True, False]


def test_redrive_of_key_that_the_table_has_adds_no_row(resources):
    large = {"large": {"type": "expression", "sql": "price >= 10", "severity": "quarantine"}}
    stream = Stream(resources, partitions=1, settings={"mode": "dedup", "key": "userid", "checks": large})
    schema_id = stream.schema()
    trades = [trade(0, userid="anna", price=10), trade(1, userid="anna", price=1), trade(2, userid="berta", price=1)]
    stream.produce([{"value": framed(schema_id, TRADES, record)} for record in trades])
    stream.ingest()

    stream.topic = with_checks(stream.topic, {})
    redriven = redrive(stream.namespace, stream.topic, stream.systems)

    assert redriven == Redriven(2, 2, deduplicated=1)
    assert redriven.describe() == "2 dead letters decoded again: 1 new row, and 1 record with a key that the table has"
    assert [(row["userid"], row["price"]) for row in stream.rows()] == [("anna", 10), ("berta", 1)]
