"""Faults of the broker, and topics with gaps, transactions and huge messages (F26-F50)."""

import os
import threading
import time
import uuid
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from lakehouse.core.errors import UnclearState
from lakehouse.local import stack as local_stack
from lakehouse.local.processes import process
from lakehouse.readers.reader_lag import measure_lag
from lakehouse.streaming.stream import Stream as RunningStream
from lakehouse.streaming.stream_events import Commit, TopicBackedOff
from resources.kafka.transactions import wait_until_visible
from tests.support.faults import oracle
from tests.support.faults.moments import attempt
from tests.support.topics import TRADES, Stream, admin, framed, recreate, trade


def configure(kind, name, **settings):
    """Change settings of a topic or of the broker at run time."""
    entries = [
        ConfigEntry(key.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    [change] = admin().incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)]).values()
    change.result(20)


def transaction(stream, numbers, commit, ago_ms=0):
    """Produce a transaction to partition 0, left open if `commit` is None, and return its producer."""
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


def wait_for_markers(stream):
    """Wait for the transaction markers, which the broker writes after its response to the producer."""
    wait_until_visible(stream.resources.kafka, stream.name)


def test_ensure_topic_waits_until_broker_lists_it(resources, monkeypatch):
    describe, unaware = AdminClient.describe_topics, iter(range(3))

    def describe_late(client, topics, **options):
        if next(unaware, None) is None:
            return describe(client, topics, **options)
        unknown = Future()
        unknown.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return {topic: unknown}

    monkeypatch.setattr(AdminClient, "describe_topics", describe_late)
    topic = f"late-{uuid.uuid4().hex[:8]}"

    resources.kafka.ensure_topic(topic, 3)

    assert sorted(resources.kafka.offsets([topic])[topic]) == [0, 1, 2]


def test_broker_restart_during_read_loses_nothing(stack, resources):
    stream = Stream(resources, partitions=2)
    stream.produce_trades(range(2_000))

    def restart_later():
        for running in process.running(stack)["kafka"].processes:
            running.kill()
            running.wait(10)
        restart = threading.Timer(2, local_stack.up, [stack, ["kafka"]])
        restart.start()
        return restart

    def elections():
        return [offsets.epoch for _, offsets in sorted(resources.kafka.offsets([stream.name])[stream.name].items())]

    before = elections()
    restarts = stream.before_first("row_files", restart_later)
    attempt(stream)
    restarts[0].join()
    stream.ingest()

    oracle.judge(stream)
    assert all(after > earlier for earlier, after in zip(before, elections(), strict=True))


def test_records_deleted_during_batch_stop_it(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(20))
    stream.ingest()
    before = stream.rows()
    stream.produce_trades(range(20, 60))

    def delete_records():
        [deletion] = admin().delete_records([TopicPartition(stream.name, 0, 45)]).values()
        deletion.result()

    stream.before_first("row_files", delete_records)

    assert attempt(stream) is not None
    assert stream.rows() == before
    with pytest.raises(UnclearState, match="lost offsets 20 to 44"):
        stream.ingest()


def test_topic_recreated_during_batch_is_detected(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(20))
    stream.ingest()
    before = stream.rows()
    stream.produce_trades(range(20, 40))

    def recreate_and_produce():
        recreate(stream)
        stream.produce_trades(range(100, 200))

    stream.before_first("row_files", recreate_and_produce)

    assert attempt(stream) is not None
    assert stream.rows() == before


def test_partitions_added_during_batch_are_in_next_run(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(20))

    def add_partitions():
        [addition] = admin().create_partitions([NewPartitions(stream.name, 3)]).values()
        addition.result()
        stream.produce_trades(range(20, 60))

    stream.before_first("row_files", add_partitions)
    attempt(stream)
    stream.ingest()

    assert len(oracle.read_log(stream.name).end) == 3
    oracle.judge(stream)


def test_transaction_markers_advance_offsets_without_rows(resources):
    stream = Stream(resources, partitions=1, settings={"max_records_per_batch": 8})
    stream.produce_trades(range(3))
    transaction(stream, range(3, 6), commit=True)
    wait_for_markers(stream)
    stream.ingest()
    oracle.judge(stream)

    transaction(stream, range(10, 11), commit=False)
    transaction(stream, range(11, 14), commit=False)
    transaction(stream, range(14, 15), commit=True)
    transaction(stream, range(15, 30), commit=False)
    wait_for_markers(stream)
    published = stream.ingest()

    assert 0 in [batch.counts.consumed for batch in published]
    assert sum(batch.counts.consumed for batch in published) == 1
    assert stream.ingest() == []
    oracle.judge(stream)


def test_hanging_transaction_delays_and_is_reported(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(5))
    open_producer = transaction(stream, range(5, 8), commit=None, ago_ms=3_600_000)
    stream.produce_trades(range(8, 20))
    try:
        stream.ingest()
        assert len(stream.rows()) == 5
        behind = measure_lag("iceberg", stream.config, stream.topic, resources).behind
    finally:
        open_producer.abort_transaction(20)
        wait_for_markers(stream)
    stream.ingest()
    oracle.judge(stream)
    assert behind.missing > 0 and behind.seconds >= 3_600


@contextmanager
def corrupted(stack, stream):
    """Change a byte of the log's last batch on disk while the body of the statement runs."""
    segment = stack.path / f"kafka/data/{stream.name}-0/00000000000000000000.log"
    position = segment.stat().st_size - 20
    with segment.open("r+b", buffering=0) as file:
        file.seek(position)
        original = file.read(1)
        os.pwrite(file.fileno(), bytes([original[0] ^ 0xFF]), position)
        try:
            yield
        finally:
            os.pwrite(file.fileno(), original, position)


def test_corrupt_record_batch_stops_run(stack, resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(20))
    stream.ingest()
    before = stream.rows()
    stream.produce_trades(range(20, 40))

    with corrupted(stack, stream):
        assert attempt(stream) is not None
        assert stream.rows() == before
        lag = measure_lag("iceberg", stream.config, stream.topic, resources)
        assert not lag.is_fresh and "partition 0 offset 20" in lag.failure, lag

    # A new session stands for another process or the next turn of a stream: both open their own.
    resources.spark.close()
    stream.ingest()
    oracle.judge(stream)


def test_stream_resumes_after_corrupt_batch_is_repaired(stack, resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(20))
    stream.ingest()
    stream.produce_trades(range(20, 40))
    stream_run, failures = RunningStream(stream.config, [stream.topic], stream.systems, workers=1), 0

    with ExitStack() as corruption:
        corruption.enter_context(corrupted(stack, stream))
        for event in stream_run.run():
            corruption.close()
            failures += isinstance(event, TopicBackedOff)
            if isinstance(event, Commit) or failures == 10:
                stream_run.stop()

    assert 0 < failures < 10
    oracle.judge(stream)


def test_messages_of_one_and_eight_megabytes_become_rows(resources):
    stream = Stream(resources, partitions=2)
    configure(ConfigResource.Type.TOPIC, stream.name, max_message_bytes=20_000_000)
    schema_id = stream.schema()
    for megabytes in (0, 1, 8):
        value = framed(schema_id, TRADES, trade(1, account="x" * (megabytes << 20)))
        stream.produce([{"value": value}] * 3, **{"message.max.bytes": 20_000_000})

    stream.ingest()

    oracle.judge(stream)


@pytest.mark.long
def test_small_batch_of_huge_records_is_ingested(resources):
    stream = Stream(resources, partitions=1)
    configure(ConfigResource.Type.TOPIC, stream.name, max_message_bytes=20_000_000)
    value = framed(stream.schema(), TRADES, trade(1, account="\0" * (8 << 20)))
    settings = {"message.max.bytes": 20_000_000, "compression.type": "zstd"}
    for _ in range(4):
        stream.produce([{"value": value}] * 10, **settings)

    stream.ingest()

    assert stream.table().current_snapshot().summary.additional_properties["added-records"] == "40"


def test_key_in_two_partitions_is_always_the_same_row(resources):
    stream = Stream(resources, partitions=2, settings={"mode": "upsert"})
    schema_id = stream.schema()

    def produce(partition, quantity):
        for user in ("u", "v"):
            value = framed(schema_id, TRADES, trade(0, userid=user, quantity=quantity))
            stream.produce([{"key": user, "value": value, "partition": partition, "timestamp": 1_000 + quantity}])

    for partition, quantity in [(0, 1), (1, 2), (0, 3), (1, 4), (0, 5)]:
        produce(partition, quantity)
    stream.ingest()
    assert {row["userid"]: row["quantity"] for row in stream.rows()} == {"u": 5, "v": 5}
    produce(1, 6)
    stream.ingest()

    assert [(row["userid"], row["quantity"]) for row in stream.rows()] == [("u", 6), ("v", 6)]
