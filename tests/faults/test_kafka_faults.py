"""The broker dies, loses records, starts over or lies; topics with holes, transactions and huge messages (F26-F50)."""

import os
import threading
import time
from contextlib import ExitStack, contextmanager

import oracle
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions
from moments import attempt, once_before
from support import TRADES, Stream, admin, consume, framed, recreate, trade

from lakehouse.core.errors import UnclearState
from lakehouse.local import process
from lakehouse.local import stack as local_stack
from lakehouse.readers.hops import measure
from lakehouse.streaming.stream import Stream as Running
from lakehouse.streaming.stream_events import Commit, SetAside
from resources.transactions import settle
from spark import write


def configure(kind, name, **settings):
    """Change settings of a topic or of the broker while it runs."""
    entries = [
        ConfigEntry(key.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    [done] = admin().incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)]).values()
    done.result(20)


def transaction(stream, numbers, commit, ago_ms=0):
    """A transaction on partition 0; it is left open when `commit` is None. Returns its producer."""
    name = f"{stream.name}-{numbers.start}-{commit}"
    producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "transactional.id": name})
    producer.init_transactions(20)
    producer.begin_transaction()
    schema_id, stamp = stream.schema(), int(time.time() * 1000) - ago_ms
    for number in numbers:
        producer.produce(stream.name, framed(schema_id, TRADES, trade(number)), partition=0, timestamp=stamp)
    producer.flush(20)
    if commit is not None:
        (producer.commit_transaction if commit else producer.abort_transaction)(20)
    return producer


def settled(stream):
    """Wait until transaction markers are written: they come after the producer's answer."""
    settle(stream.resources.kafka, stream.name)


def test_a_broker_that_dies_while_it_is_read(stack, resources, monkeypatch):
    stream = Stream(resources, partitions=2)
    stream.produce_trades(range(2_000))

    def die():
        for running in process.running(stack)["kafka"].processes:
            running.kill()
            running.wait(10)
        back = threading.Timer(2, local_stack.up, [stack, ["kafka"]])
        back.start()
        return back

    done = once_before(monkeypatch, write, "append", die)
    attempt(stream)
    done[0].join()
    stream.ingest()

    oracle.judge(stream)


def test_records_that_are_deleted_during_a_batch_stop_it(resources, monkeypatch):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(20))
    stream.ingest()
    before = stream.rows()
    stream.produce_trades(range(20, 60))

    def delete():
        [done] = admin().delete_records([TopicPartition(stream.name, 0, 45)]).values()
        done.result()

    once_before(monkeypatch, write, "append", delete)

    assert attempt(stream) is not None
    assert stream.rows() == before
    with pytest.raises(UnclearState, match="lost offsets 20 to 44"):
        stream.ingest()


def test_a_topic_that_is_made_anew_with_fewer_records_stops_the_run(resources):
    stream = Stream(resources, partitions=3)
    stream.produce_trades(range(40))
    stream.ingest()
    before = stream.rows()
    stream.partitions = 2
    recreate(stream)
    stream.produce_trades(range(10))

    with pytest.raises(UnclearState, match="not the one table"):
        stream.ingest()
    assert stream.rows() == before


def test_a_topic_that_is_made_anew_during_a_batch_is_not_taken_for_the_old_one(resources, monkeypatch):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(20))
    stream.ingest()
    before = stream.rows()
    stream.produce_trades(range(20, 40))

    def make_anew():
        recreate(stream)
        stream.produce_trades(range(100, 200))

    once_before(monkeypatch, write, "append", make_anew)

    assert attempt(stream) is not None
    assert stream.rows() == before


def test_partitions_that_are_added_during_a_batch_come_with_the_next_run(resources, monkeypatch):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(20))

    def add():
        [done] = admin().create_partitions([NewPartitions(stream.name, 3)]).values()
        done.result()
        stream.produce_trades(range(20, 60))

    once_before(monkeypatch, write, "append", add)
    attempt(stream)
    stream.ingest()

    assert len(oracle.read_log(stream.name).end) == 3
    oracle.judge(stream)


def test_a_compacted_topic_has_holes_and_no_loss(resources):
    stream = Stream(resources, partitions=1)
    configure(ConfigResource.Type.BROKER, "1", log_cleaner_backoff_ms=100)
    settings = {"segment_ms": 100, "min_cleanable_dirty_ratio": 0.001, "cleanup_policy": "compact"}
    configure(ConfigResource.Type.TOPIC, stream.name, **settings)
    for part in range(3):
        stream.produce_trades(range(part * 100, part * 100 + 100))
        time.sleep(0.2)
    deadline = time.monotonic() + 60
    while len(consume(stream.name, 1)) >= 200:
        assert time.monotonic() < deadline, "nothing was compacted"
        time.sleep(0.2)
    # What is compacted after it was read is in the table and no longer in the log: the log must stay as it is now.
    configure(ConfigResource.Type.TOPIC, stream.name, cleanup_policy="delete")

    stream.ingest()
    stream.produce_trades(range(300, 310))
    stream.ingest()

    assert oracle.read_log(stream.name).end == {0: 310}
    assert oracle.judge(stream).records < 210


def test_markers_alone_move_the_position_and_make_no_row(resources):
    stream = Stream(resources, partitions=1, settings={"max_records_per_batch": 8})
    stream.produce_trades(range(3))
    transaction(stream, range(3, 6), commit=True)
    settled(stream)
    stream.ingest()
    oracle.judge(stream)

    transaction(stream, range(10, 11), commit=False)
    transaction(stream, range(11, 14), commit=False)
    transaction(stream, range(14, 15), commit=True)
    transaction(stream, range(15, 30), commit=False)
    settled(stream)
    published = stream.ingest()

    assert 0 in [batch.counts.consumed for batch in published]
    assert sum(batch.counts.consumed for batch in published) == 1
    assert stream.ingest() == []
    oracle.judge(stream)


def test_a_hanging_transaction_delays_and_is_seen(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(5))
    hanging = transaction(stream, range(5, 8), commit=None, ago_ms=3_600_000)
    stream.produce_trades(range(8, 20))
    try:
        stream.ingest()
        assert len(stream.rows()) == 5
        seen = measure("iceberg", stream.config, stream.topic, resources).behind
    finally:
        hanging.abort_transaction(20)
        settled(stream)
    stream.ingest()
    oracle.judge(stream)
    assert seen.records > 0 and seen.seconds >= 3_600


@contextmanager
def rotten(stack, stream):
    """While the body runs, a byte of the log's last batch is another on disk."""
    segment = stack.path / f"kafka/data/{stream.name}-0/00000000000000000000.log"
    at = segment.stat().st_size - 20
    with segment.open("r+b", buffering=0) as file:
        file.seek(at)
        whole = file.read(1)
        os.pwrite(file.fileno(), bytes([whole[0] ^ 0xFF]), at)
        try:
            yield
        finally:
            os.pwrite(file.fileno(), whole, at)


def test_a_batch_whose_bytes_rotted_stops_the_run(stack, resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(20))
    stream.ingest()
    before = stream.rows()
    stream.produce_trades(range(20, 40))

    with rotten(stack, stream):
        assert attempt(stream) is not None
        assert stream.rows() == before
        hop = measure("iceberg", stream.config, stream.topic, resources)
        assert not hop.fresh and "partition 0 offset 20" in hop.failure, hop

    # Who runs again, another process or a stream's next turn, has a session of its own.
    resources.spark.close()
    stream.ingest()
    oracle.judge(stream)


def test_a_stream_goes_on_once_rotten_bytes_are_mended(stack, resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(20))
    stream.ingest()
    stream.produce_trades(range(20, 40))
    running, failures = Running(stream.config, [stream.topic], stream.systems, workers=1), 0

    with ExitStack() as mending:
        mending.enter_context(rotten(stack, stream))
        for event in running.run():
            mending.close()
            failures += isinstance(event, SetAside)
            if isinstance(event, Commit) or failures == 10:
                running.stop()

    assert 0 < failures < 10
    oracle.judge(stream)


def test_messages_of_one_and_of_eight_megabytes(resources):
    stream = Stream(resources, partitions=2)
    configure(ConfigResource.Type.TOPIC, stream.name, max_message_bytes=20_000_000)
    schema_id = stream.schema()
    for megabytes in (0, 1, 8):
        value = framed(schema_id, TRADES, trade(1, account="x" * (megabytes << 20)))
        stream.produce([{"value": value}] * 3, **{"message.max.bytes": 20_000_000})

    stream.ingest()

    oracle.judge(stream)


@pytest.mark.long
def test_a_small_batch_of_huge_records_is_survived(resources):
    stream = Stream(resources, partitions=1)
    configure(ConfigResource.Type.TOPIC, stream.name, max_message_bytes=20_000_000)
    value = framed(stream.schema(), TRADES, trade(1, account="\0" * (8 << 20)))
    settings = {"message.max.bytes": 20_000_000, "compression.type": "zstd"}
    for _ in range(4):
        stream.produce([{"value": value}] * 10, **settings)

    stream.ingest()

    assert stream.table().current_snapshot().summary.additional_properties["added-records"] == "40"


def test_a_key_in_two_partitions_is_one_row_and_always_the_same(resources):
    stream = Stream(resources, partitions=2, settings={"mode": "upsert"})
    schema_id = stream.schema()

    def put(partition, quantity):
        for user in ("u", "v"):
            value = framed(schema_id, TRADES, trade(0, userid=user, quantity=quantity))
            stream.produce([{"key": user, "value": value, "partition": partition, "timestamp": 1_000 + quantity}])

    for partition, quantity in [(0, 1), (1, 2), (0, 3), (1, 4), (0, 5)]:
        put(partition, quantity)
    stream.ingest()
    assert {row["userid"]: row["quantity"] for row in stream.rows()} == {"u": 5, "v": 5}
    put(1, 6)
    stream.ingest()

    assert [(row["userid"], row["quantity"]) for row in stream.rows()] == [("u", 6), ("v", 6)]
