"""The tasks that read a topic, and the throughput of ingestion relative to reading, whatever the machine."""

import time
from functools import partial
from itertools import cycle, islice

from pyspark.sql.functions import spark_partition_id

from lakehouse.core.offsets.batch import next_batch
from lakehouse.pipeline.batches.positions import read_log
from lakehouse.pipeline.ingestion import ingest
from spark.records import read_range
from tests.support.topics import TRADES, Stream, framed, trade

RECORDS = 200_000
MINIMUM = 0.1
"""The minimum share of the rate of reading. A quiet machine with two cores reaches 0.26 (docs/performance.md)."""


def create_stream(resources, records):
    stream = Stream(resources, partitions=6)
    schema_id = stream.schema()
    values = [framed(schema_id, TRADES, trade(number)) for number in range(2_000)]
    stream.produce([{"value": value} for value in islice(cycle(values), records)], **{"linger.ms": 50})
    return stream


def seconds(work):
    start = time.monotonic()
    work()
    return time.monotonic() - start


def read(stream, systems):
    session = stream.resources.spark.session(systems.catalog.spark_settings())
    everything = next_batch(None, read_log(systems.kafka, stream.name), stream.topic.table)
    records = read_range(session, systems.kafka.spark_options(), everything)
    records.write.format("noop").mode("overwrite").save()


def test_large_batch_of_one_partition_is_read_by_several_tasks(resources, monkeypatch):
    monkeypatch.setattr("spark.records.RECORDS_A_TASK", 20)
    monkeypatch.setattr("spark.records.MAX_RECORDS_A_TASK", 40)
    stream = Stream(resources, partitions=1)
    stream.produce([{"value": str(number).encode()} for number in range(100)])
    session = resources.spark.session(stream.systems.catalog.spark_settings())
    everything = next_batch(None, read_log(stream.systems.kafka, stream.name), stream.topic.table)

    records = read_range(session, stream.systems.kafka.spark_options(), everything)

    rows = records.select("value", spark_partition_id().alias("task")).toArrow().to_pylist()
    assert sorted(int(row["value"]) for row in rows) == [*range(100)]
    assert len({row["task"] for row in rows}) == 3


def ingest_into(stream, topic):
    for _ in ingest(stream.namespace, topic, stream.systems):
        pass


def test_append_avro_reaches_minimum_share_of_reading(resources):
    stream = create_stream(resources, RECORDS)
    systems = stream.systems
    create_stream(resources, 20_000).ingest()
    read(stream, systems)

    reading = min(seconds(lambda: read(stream, systems)) for _ in range(2))
    tables = [stream.topic.model_copy(update={"table_name": f"t{number}"}) for number in range(2)]
    ingesting = min(seconds(partial(ingest_into, stream, table)) for table in tables)

    assert stream.table("t1").scan().to_arrow().num_rows == RECORDS
    assert reading / ingesting >= MINIMUM, (
        f"{RECORDS:,} records: read in {reading:.2f} s, ingested in {ingesting:.2f} s"
    )
