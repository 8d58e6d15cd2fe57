"""Ingestion as a part of the rate at which Spark only reads the same topic: what machines differ in falls out."""

import time
from functools import partial
from itertools import cycle, islice

from support import TRADES, Stream, framed, trade

from lakehouse.core.batch import next_batch
from lakehouse.pipeline.ingestion import ingest, read_log
from spark.records import read_range

RECORDS = 200_000
LEAST = 0.1
"""Of the rate of reading. A quiet machine of two cores shows 0.26 (docs/performance.md)."""


def filled(resources, records):
    stream = Stream(resources, partitions=6)
    schema_id = stream.schema()
    values = [framed(schema_id, TRADES, trade(number)) for number in range(2_000)]
    stream.produce([{"value": value} for value in islice(cycle(values), records)], **{"linger.ms": 50})
    return stream


def seconds(work):
    began = time.monotonic()
    work()
    return time.monotonic() - began


def read(stream, systems):
    session = systems.spark.session(systems.catalog.spark_settings())
    everything = next_batch(None, read_log(systems.kafka, stream.name), stream.topic.table)
    records = read_range(session, systems.kafka.spark_options(), everything)
    records.write.format("noop").mode("overwrite").save()


def ingest_into(stream, topic):
    for _ in ingest(stream.namespace, topic, stream.systems):
        pass


def test_an_append_of_avro_keeps_up_with_reading(resources):
    stream = filled(resources, RECORDS)
    systems = stream.systems
    filled(resources, 20_000).ingest()
    read(stream, systems)

    reading = min(seconds(lambda: read(stream, systems)) for _ in range(2))
    tables = [stream.topic.model_copy(update={"table_name": f"t{number}"}) for number in range(2)]
    ingesting = min(seconds(partial(ingest_into, stream, table)) for table in tables)

    assert stream.table("t1").scan().to_arrow().num_rows == RECORDS
    assert reading / ingesting >= LEAST, f"{RECORDS:,} records: read in {reading:.2f} s, ingested in {ingesting:.2f} s"
