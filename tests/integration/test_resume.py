"""Decisions of operators about where a table continues, and configured start positions."""

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.core.offsets.ledger import faults_of
from lakehouse.core.polling import poll
from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.ledger.reconciliation import reconcile
from lakehouse.readers.reader_lag import measure_lag
from tests.support.topics import TRADES, Stream, admin, framed, recreate, trade


def test_resume_after_lost_records_of_new_partition_is_decision(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(20))
    stream.ingest()
    add_partition(stream, lost=5)
    with pytest.raises(UnclearState, match=r"partition 1 lost offsets 0 to 4 .*`lakehouse resume`"):
        stream.ingest()
    lag = measure_lag("iceberg", stream.config, stream.topic, stream.systems)
    assert "partition 1 lost offsets 0 to 4" in lag.failure
    with pytest.raises(LakehouseError, match="Partition 1 of .* has offsets 5 to 9, not 0"):
        resume(stream.systems, stream.namespace, stream.topic, "0:20", "no")

    position = resume(stream.systems, stream.namespace, stream.topic, "1:5", "retention was too short")
    stream.produce([{"value": framed(stream.schema(), TRADES, trade(1)), "partition": 1}])
    stream.ingest()

    assert (position.start, position.end) == ({0: 20, 1: 0}, {0: 20, 1: 5})
    assert [row["kafka_offset"] for row in stream.rows() if row["kafka_partition"]] == [*range(5, 10)]
    assert faults_of(reconcile(stream.namespace, stream.topic, stream.systems).findings) == []


def add_partition(stream, lost):
    """Add a partition with nine records, and delete the first ones of it and all of the others'."""
    for created in admin().create_partitions([NewPartitions(stream.name, 2)]).values():
        created.result()
    assert poll(lambda: len(admin().list_topics(stream.name).topics[stream.name].partitions) == 2, pause=0.1)
    value = framed(stream.schema(), TRADES, trade(1))
    stream.produce([{"value": value, "partition": 1} for _ in range(9)])
    ends = [TopicPartition(stream.name, 0, 20), TopicPartition(stream.name, 1, lost)]
    for deleted in admin().delete_records(ends).values():
        deleted.result()


def test_ingest_prefetched_records_of_old_topic_are_not_read(resources):
    stream = Stream(resources, partitions=1, settings={"max_records_per_batch": 10})
    stream.produce_trades(range(30))
    next(ingest(stream.namespace, stream.topic, stream.systems))
    recreate(stream)
    stream.produce_trades(range(100, 130))
    resume(stream.systems, stream.namespace, stream.topic, "0:10", "recreated on purpose")

    stream.ingest()

    quantities = [row["quantity"] for row in stream.rows()][10:]
    assert quantities == [trade(number)["quantity"] for number in range(110, 130)]


@pytest.mark.parametrize("start, first", [("latest", 10), ("2099-01-01T00:00:00Z", 10)])
def test_first_batch_starts_at_configured_position(resources, start, first):
    stream = Stream(resources, partitions=1, settings={"start": start})
    stream.produce_trades(range(10))
    stream.ingest()
    stream.produce_trades(range(10, 15))
    stream.ingest()

    assert [row["kafka_offset"] for row in stream.rows()] == list(range(first, 15))
