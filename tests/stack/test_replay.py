"""Read again: a range of the log, or dead letters after the mend; once or twice, the table is the log."""

import pytest
from confluent_kafka import TopicPartition
from support import TRADES, Stream, admin, framed, recreate, register, trade

from assets.ingestion import ingest
from assets.position import resume
from assets.replay import redrive, replay
from lakehouse import naming
from lakehouse.errors import BadRecords, LakehouseError, UnclearState


def sql(resources, statement):
    spark = resources.spark.session(resources.catalog.spark_settings())
    return spark.sql(statement).collect()


def again(stream, since, branch=None):
    return replay(stream.namespace, stream.topic, stream.systems, since, branch)


@pytest.mark.parametrize("mode", ["append", "dedup", "upsert"])
def test_a_replay_restores_rows_that_somebody_deleted_and_doubles_none(resources, mode):
    stream = Stream(resources, settings={"mode": mode})
    stream.produce_trades(range(60))
    stream.ingest()
    before = stream.rows()
    sql(resources, f"DELETE FROM lake.{stream.namespace}.`{stream.topic.table}` WHERE userid < 'User_5'")
    assert len(stream.rows()) < len(before)

    for _ in range(2):
        again(stream, "earliest")
        assert stream.rows() == before

    stream.produce_trades(range(60, 70))
    [published] = stream.ingest()
    assert published.counts.consumed == 10


def test_a_replay_knows_the_newest_record_though_its_schema_is_of_another_subject(resources):
    stream = Stream(resources, partitions=1, settings={"mode": "upsert"})
    own, other = stream.schema(), TRADES.replace('"fields"', '"doc": "elsewhere", "fields"', 1)
    elsewhere = register(f"elsewhere-{stream.name}", other)
    assert own != elsewhere
    for schema_id, schema, quantity in ((own, TRADES, 1), (elsewhere, other, 2)):
        value = framed(schema_id, schema, trade(0, userid="a", quantity=quantity))
        stream.produce([{"key": b"a", "value": value}])
    stream.ingest()

    again(stream, "earliest")

    assert [(row["userid"], row["quantity"]) for row in stream.rows()] == [("a", 2)]


def test_a_replay_into_a_branch_leaves_main_as_it_is(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(40))
    stream.ingest()
    sql(resources, f"DELETE FROM lake.{stream.namespace}.`{stream.topic.table}` WHERE kafka_offset >= 10")

    done = again(stream, "0:20", "look")

    assert done.counts.consumed == 20
    assert [row["kafka_offset"] for row in stream.rows()] == list(range(10))
    table = stream.table()
    on_branch = table.scan(snapshot_id=table.metadata.refs["look"].snapshot_id).to_arrow()["kafka_offset"].to_pylist()
    assert sorted(on_branch) == [*range(10), *range(20, 40)]


@pytest.mark.parametrize("branch", ["main", naming.OFFSETS_TAG, f"{naming.STAGING_PREFIX}1", "release"])
def test_replay_into_a_reserved_branch_is_refused(resources, branch):
    stream = Stream(resources)
    stream.produce_trades(range(20))
    stream.ingest()
    before = stream.table()
    before.manage_snapshots().create_tag(before.metadata.current_snapshot_id, "release").commit()
    before = stream.table()

    with pytest.raises(LakehouseError, match="cannot be the branch of a replay"):
        again(stream, "earliest", branch)

    assert stream.table().metadata == before.metadata


def test_a_replay_of_what_the_log_no_longer_has_stops(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(40))
    stream.ingest()
    for deleted in admin().delete_records([TopicPartition(stream.name, 0, 15)]).values():
        deleted.result()

    with pytest.raises(UnclearState, match="no longer has offsets 5 to 14"):
        again(stream, "0:5")
    with pytest.raises(LakehouseError, match="is no position"):
        again(stream, "yesterday")
    assert len(stream.rows()) == 40


def test_dead_letters_become_rows_once_with_their_own_offsets(resources):
    stream = Stream(resources, partitions=1)
    schema_id = stream.schema()
    stream.produce([{"value": framed(schema_id, TRADES, trade(n))} for n in range(5)])
    stream.produce([{"value": b"never"}, {"key": b"k", "value": framed(schema_id, TRADES, trade(9))[:-1]}])
    stream.ingest()
    assert len(stream.dead_letters()) == 2

    # The mend: what was cut is whole again where the bytes are kept.
    whole = framed(schema_id, TRADES, trade(9)).hex()
    letters = f"lake.{stream.namespace}.`{stream.topic.table}__dead_letters`"
    sql(
        resources,
        f"UPDATE {letters} SET source_record = named_struct('topic', source_record.topic, 'partition', "
        f"source_record.partition, 'offset', source_record.offset, 'timestamp', source_record.timestamp, "
        f"'timestamp_type', source_record.timestamp_type, 'headers', source_record.headers, 'key', source_record.key, "
        f"'value', X'{whole}') WHERE source_record.offset = 6",
    )
    done = redrive(stream.namespace, stream.topic, stream.systems)
    twice = redrive(stream.namespace, stream.topic, stream.systems)

    assert (done.tried, done.landed) == (2, 1)
    assert (twice.tried, twice.landed) == (1, 0)
    assert [row["kafka_offset"] for row in stream.rows()] == [0, 1, 2, 3, 4, 6]
    assert stream.rows()[-1]["quantity"] == trade(9)["quantity"]
    attempts = {x["kafka_offset"]: (x["attempts"], x["redriven_timestamp"] is None) for x in stream.dead_letters()}
    assert attempts == {5: (3, True), 6: (2, False)}


def test_the_default_policy_stops_before_a_bad_record_and_says_which(resources):
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


def test_a_decision_goes_on_after_a_lost_range_and_stands_in_the_table(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(20))
    stream.ingest()
    stream.produce_trades(range(20, 60))
    for deleted in admin().delete_records([TopicPartition(stream.name, 0, 45)]).values():
        deleted.result()
    with pytest.raises(UnclearState, match="lakehouse resume"):
        stream.ingest()

    with pytest.raises(LakehouseError, match="would duplicate rows|has offsets"):
        resume(stream.systems, stream.namespace, stream.topic, "0:10", "no")
    resume(stream.systems, stream.namespace, stream.topic, "earliest", "retention was too short")
    said = stream.table().current_snapshot().summary.additional_properties["lakehouse.decision"]
    stream.ingest()

    assert "retention was too short" in said
    assert [row["kafka_offset"] for row in stream.rows()] == [*range(20), *range(45, 60)]


def test_a_decision_goes_on_with_a_recreated_topic(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(20))
    stream.ingest()
    recreate(stream)
    stream.produce_trades(range(100, 130))
    with pytest.raises(UnclearState, match="not the one table"):
        stream.ingest()

    resume(stream.systems, stream.namespace, stream.topic, "earliest", "recreated on purpose")
    [published] = stream.ingest()

    assert published.counts.rows == 30 and len(stream.rows()) == 50
    with pytest.raises(UnclearState, match="recreated since"):
        again(stream, "earliest")


def test_what_was_fetched_ahead_from_a_topic_that_was_recreated_is_not_read(resources):
    stream = Stream(resources, partitions=1, settings={"max_records_per_batch": 10})
    stream.produce_trades(range(30))
    next(ingest(stream.namespace, stream.topic, stream.systems))
    recreate(stream)
    stream.produce_trades(range(100, 130))
    resume(stream.systems, stream.namespace, stream.topic, "0:10", "recreated on purpose")

    stream.ingest()

    since = [row["quantity"] for row in stream.rows()][10:]
    assert since == [trade(number)["quantity"] for number in range(110, 130)]


@pytest.mark.parametrize("start, first", [("latest", 10), ("earliest", 0), ("2099-01-01T00:00:00Z", 10)])
def test_the_first_batch_begins_where_the_configuration_says(resources, start, first):
    stream = Stream(resources, partitions=1, settings={"start": start})
    stream.produce_trades(range(10))
    stream.ingest()
    stream.produce_trades(range(10, 15))
    stream.ingest()

    assert [row["kafka_offset"] for row in stream.rows()] == list(range(first, 15))
