"""Replays of ranges and redrives of dead letters: afterwards, the table has each record of the topic once."""

from dataclasses import replace
from functools import partial

import pytest
from pyspark.sql.connect.client import SparkConnectClient
from pyspark.sql.connect.readwriter import DataFrameWriterV2

from lakehouse.cli.schema_plan import plan_registered
from lakehouse.config.settings import Metadata
from lakehouse.core.errors import BadRecords, LakehouseError, SchemaError, Stalled, TransientError
from lakehouse.core.table_protocol import OFFSETS_TAG, REPLAY_TAG, STAGING_PREFIX, TOKEN
from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.commits.audit import AuditFailed
from lakehouse.pipeline.redrive import redrive
from lakehouse.pipeline.replay import replay
from tests.support.compaction import compact, set_compaction
from tests.support.faults.moments import once_before
from tests.support.topics import TRADES, Stream, framed, register, trade


@pytest.fixture(scope="module")
def replayed(resources):
    """Return a table of three partitions with the tag `release`, whose rows the tests keep."""
    stream = Stream(resources)
    stream.produce_trades(range(30))
    stream.ingest()
    table = stream.table()
    table.manage_snapshots().create_tag(table.metadata.current_snapshot_id, "release").commit()
    return stream


def sql(resources, statement):
    spark = resources.spark.session(resources.catalog.spark_settings())
    return spark.sql(statement).collect()


def replay_since(stream, since, branch=None):
    return replay(stream.namespace, stream.topic, stream.systems, since, branch)


def redrive_letters(stream):
    return redrive(stream.namespace, stream.topic, stream.systems)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_replay_restores_deleted_rows_without_duplicates(resources, mode):
    stream = Stream(resources, settings={"mode": mode})
    stream.produce_trades(range(60))
    stream.ingest()
    before = stream.rows()
    sql(resources, f"DELETE FROM lake.{stream.namespace}.`{stream.topic.table}` WHERE userid < 'User_5'")
    assert len(stream.rows()) < len(before)

    for _ in range(2):
        replay_since(stream, "earliest")
        assert stream.rows() == before

    stream.produce_trades(range(60, 70))
    [published] = stream.ingest()
    assert published.counts.consumed == 10


def test_rows_under_names_of_another_naming_are_refused(resources):
    stream = Stream(resources)
    stream.produce_trades(range(10))
    stream.produce([{"value": b"bad"}])
    stream.ingest()
    before = stream.rows()
    stream.produce_trades(range(10, 20))
    stream.topic = stream.topic.model_copy(update={"metadata": Metadata(naming="confluent_portable")})

    message = "with `naming: portable`, but .* `naming: confluent_portable`.*Nothing was changed"
    for read in (stream.ingest, partial(replay_since, stream, "earliest"), partial(redrive_letters, stream)):
        with pytest.raises(SchemaError, match=message):
            read()

    assert plan_registered(stream.config, stream.topic, stream.systems).invalid
    assert stream.rows() == before


def test_replay_keeps_newest_record_with_foreign_schema(resources):
    stream = Stream(resources, partitions=1, settings={"mode": "upsert"})
    own_id, other = stream.schema(), TRADES.replace('"fields"', '"doc": "elsewhere", "fields"', 1)
    foreign_id = register(f"elsewhere-{stream.name}", other)
    assert own_id != foreign_id
    for schema_id, schema, quantity in ((own_id, TRADES, 1), (foreign_id, other, 2)):
        value = framed(schema_id, schema, trade(0, userid="a", quantity=quantity))
        stream.produce([{"key": b"a", "value": value}])
    stream.ingest()

    replay_since(stream, "earliest")

    assert [(row["userid"], row["quantity"]) for row in stream.rows()] == [("a", 2)]


def test_replay_of_topic_compacted_meanwhile_keeps_rows(resources, monkeypatch):
    """The newest record of the key does not decode, and the one before it is deleted after an older one was read."""
    stream = Stream(resources, partitions=1, settings={"mode": "upsert"})
    # Spark's consumer fetches a megabyte or two after the record that it reads.
    long = [trade(n, userid=f"Long_{n}", account="x" * 900_000) for n in range(6)]
    for of_user in (trade(0, userid="User_1"), *long, trade(1, userid="User_1")):
        value = framed(stream.schema(), TRADES, of_user)
        stream.produce([{"key": of_user["userid"].encode(), "value": value}])
    stream.produce([{"key": b"User_1", "value": b"bad"}])
    stream.ingest()
    before = stream.rows()
    assert [row["kafka_offset"] for row in before] == [1, 2, 3, 4, 5, 6, 7]
    stream.topic = stream.topic.model_copy(update={"max_records_per_batch": 1})
    offsets = lambda: [message.offset for message in stream.messages()]  # noqa: E731

    def write_and_compact(write, *args, **keywords):
        written = write(*args, **keywords)
        if 7 in offsets():
            set_compaction(stream)
            compact(stream, lambda: 7 not in offsets(), user="User_3")
        return written

    stream.interceptors["write"] = write_and_compact
    with pytest.raises(TransientError, match=r"compacted .* \(partition 0 offset 7\)\. Nothing was published"):
        replay_since(stream, "earliest")
    assert stream.rows() == before

    replay_since(stream, "earliest")
    assert stream.rows() == before


@pytest.mark.parametrize("branch", ["main", OFFSETS_TAG, REPLAY_TAG, f"{STAGING_PREFIX}1", "release"])
def test_replay_into_reserved_branch_is_refused(replayed, branch):
    before = replayed.table().metadata

    with pytest.raises(LakehouseError, match="cannot be the branch of a replay"):
        replay_since(replayed, "earliest", branch)

    assert replayed.table().metadata == before


@pytest.mark.parametrize(
    ("since", "message"),
    [
        ("0:5,7:0", "has nothing of partition 7"),
        ("0:500", "has partition 0 up to offset"),
        ("0:1,0:2", "names a partition twice"),
        ("yesterday", "is not a valid position"),
    ],
)
def test_replay_from_unknown_offsets_is_refused(replayed, since, message):
    before = replayed.table().metadata

    with pytest.raises(LakehouseError, match=message):
        replay_since(replayed, since)

    assert replayed.table().metadata == before


def test_replay_reads_only_named_partitions(replayed):
    [last] = [row["kafka_offset"] for row in replayed.rows() if row["kafka_partition"] == 1][-1:]

    result = replay_since(replayed, "1:0")

    assert result.counts.consumed == last + 1
    assert result.batch.start == {**result.batch.end, 1: 0}


def test_resume_keeps_position_of_other_partitions(replayed):
    before = replayed.rows()
    end = max(row["kafka_offset"] for row in before if row["kafka_partition"] == 1) + 1
    for where, message in (("9:1", "names partitions 9, which topic"), ("1:0", "would duplicate rows")):
        with pytest.raises(LakehouseError, match=message):
            resume(replayed.systems, replayed.namespace, replayed.topic, where, "refused")

    position = resume(replayed.systems, replayed.namespace, replayed.topic, f"1:{end}", "as it is")

    assert position.start == position.end
    assert "as it is" in replayed.table().current_snapshot().summary.additional_properties["lakehouse.decision"]
    assert replayed.ingest() == [] and replayed.rows() == before


def test_replay_without_position_fails_audit(replayed):
    before = replayed.rows()
    replayed.interceptors["write"] = lambda write, decided, target, *rest, **settings: write(
        decided, replace(target, properties={}), *rest, **settings
    )

    with pytest.raises(AuditFailed, match="no snapshot has exactly the properties of this batch"):
        replay_since(replayed, "earliest")
    replayed.interceptors.clear()
    assert replayed.rows() == before


def test_replay_after_interrupted_batch_has_none_of_its_offsets(resources, monkeypatch):
    stream = Stream(resources, settings={"mode": "upsert"})
    stream.produce_trades(range(10))
    stream.ingest()
    stream.produce_trades(range(10, 20))

    def fail(*_):
        raise Stalled("Spark Connect", "its address", "closed the connection")

    def lose_connection():
        monkeypatch.setattr(SparkConnectClient, "config", fail)
        fail()

    once_before(monkeypatch, DataFrameWriterV2, "append", lose_connection)
    with pytest.raises(Stalled):
        stream.ingest()
    monkeypatch.undo()

    replay_since(stream, "earliest")

    assert TOKEN not in stream.table().current_snapshot().summary.additional_properties
    [published] = stream.ingest()
    assert published.counts.consumed == 10


def test_redrive_repaired_letter_becomes_row_once(resources):
    stream = Stream(resources, partitions=1)
    schema_id = stream.schema()
    stream.produce([{"value": framed(schema_id, TRADES, trade(n))} for n in range(5)])
    stream.produce([{"value": b"never"}, {"key": b"k", "value": framed(schema_id, TRADES, trade(9))[:-1]}])
    stream.ingest()
    assert len(stream.dead_letters()) == 2

    # The repair restores the missing byte of the value in the dead letter.
    whole = framed(schema_id, TRADES, trade(9)).hex()
    letters = f"lake.{stream.namespace}.`{stream.topic.table}__dead_letters`"
    sql(
        resources,
        f"UPDATE {letters} SET source_record = named_struct('topic', source_record.topic, 'partition', "
        f"source_record.partition, 'offset', source_record.offset, 'timestamp', source_record.timestamp, "
        f"'timestamp_type', source_record.timestamp_type, 'headers', source_record.headers, 'key', source_record.key, "
        f"'value', X'{whole}') WHERE source_record.offset = 6",
    )
    first = redrive(stream.namespace, stream.topic, stream.systems)
    second = redrive(stream.namespace, stream.topic, stream.systems)

    assert (first.attempted, first.recovered) == (2, 1)
    assert (second.attempted, second.recovered) == (1, 0)
    assert [row["kafka_offset"] for row in stream.rows()] == [0, 1, 2, 3, 4, 6]
    assert stream.rows()[-1]["quantity"] == trade(9)["quantity"]
    attempts = {x["kafka_offset"]: (x["attempts"], x["redriven_timestamp"] is None) for x in stream.dead_letters()}
    assert attempts == {5: (3, True), 6: (2, False)}


def test_ingest_suspend_stops_at_bad_record_and_skip_continues(resources):
    stream = Stream(resources, partitions=1, settings={"errors": "suspend"})
    stream.produce_trades(range(5))
    stream.ingest()
    stream.produce([{"value": b"bad"}])
    stream.produce_trades(range(5, 8))

    with pytest.raises(BadRecords, match="1 record .*partition 0 offset 5: The value is not in"):
        stream.ingest()
    assert len(stream.rows()) == 5 and stream.dead_letters() == []

    stream.topic = stream.topic.model_copy(update={"errors": "skip"})
    [published] = stream.ingest()
    assert (published.counts.skipped, published.counts.dead_letters, published.counts.rows) == (1, 0, 3)
    assert len(stream.rows()) == 8 and stream.dead_letters() == []
