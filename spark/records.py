"""A range of a Kafka topic as a DataFrame."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.core.batch import Batch, Positions
from spark.conditions import some

READ = {
    # What an aborted or open transaction wrote is not part of the log.
    "kafka.isolation.level": "read_committed",
    # The source asks the broker for both ends of the log after every poll: make polls large.
    "kafka.max.poll.records": "20000",
    # After a poll the consumer already fetches what follows, at the end of the log for half a second by default, and
    # those questions wait behind it.
    "kafka.fetch.max.wait.ms": "1",
    # Else each consumer asks the broker which of its metrics to send there (KIP-714).
    "kafka.enable.metrics.push": "false",
    "failOnDataLoss": "true",
}
"""Spark, Structured Streaming + Kafka Integration Guide; Kafka consumer configuration."""

RECORDS_A_TASK = 50_000
"""Fewer are not worth a task: one of a few hundred records works as long to begin and to end as on a hundred thousand,
and each leaves a file."""

PARTITIONS_A_TASK = 100
"""A task holds a consumer for each of its partitions until it ends: about 0.7 MB."""


_KEY = secrets.token_bytes(16)


def read_range(spark: SparkSession, kafka: Mapping[str, str], batch: Batch, *, headers: bool = False) -> DataFrame:
    """The records of a batch: key, value, topic, partition, offset, timestamp (and headers).

    Spark reads each partition in a task of its own; those of a small batch are read one after another in fewer.

    Parameters: `kafka` holds connection options (`kafka.bootstrap.servers` …).
    """
    reader = spark.read.format("kafka").options(**kafka, **READ)
    reader = reader.option("kafka.group.id", _group(spark, kafka, batch.topic_id))
    bounds = {"startingOffsets": batch.start, "endingOffsets": batch.end}
    for option, offsets in bounds.items():
        reader = reader.option(option, json.dumps({batch.topic: {str(p): o for p, o in offsets.items()}}))
    # The partitions of the batch, and not those that the topic has by now.
    reader = reader.option("assign", json.dumps({batch.topic: sorted(batch.end)}))
    records = reader.option("includeHeaders", str(headers).lower()).load()
    tasks = max(math.ceil(batch.offsets / RECORDS_A_TASK), math.ceil(len(batch.end) / PARTITIONS_A_TASK))
    return records.coalesce(tasks) if 0 < tasks < len(batch.end) else records


def is_readable(records: DataFrame) -> bool:
    """Return whether Spark's Kafka source can read records; it cannot where it has no value for a timestamp.

    Raises:
        PySparkException: They cannot be read for another reason.
    """
    from pyspark.errors import PySparkException

    try:
        records.agg(F.max("timestamp")).collect()
    except PySparkException as error:
        if "ArithmeticException" in str(error):
            return False
        raise
    return True


def _group(spark: SparkSession, kafka: Mapping[str, str], topic_id: str) -> str:
    """The name by which Spark's executors keep consumers for the next batch, and records that those fetched ahead.

    Another topic of the same name and other credentials have others; and so has another session, which whoever tries
    again after a failure opens: a consumer that fetched broken bytes goes on to have them.
    """
    # The key keeps whoever reads the name in a log from guessing passwords by it.
    session_id = spark.session_id  # type: ignore[attr-defined]  # of Spark Connect
    known = json.dumps([session_id, dict(kafka)], sort_keys=True).encode()
    return f"lakehouse-{topic_id}-{hashlib.blake2b(known, key=_KEY, digest_size=8).hexdigest()}"


def is_new(since: Positions) -> Column:
    """Whether a row is at or past `since`, the first new offset by partition; other partitions are new entirely."""
    partition, offset = F.col("kafka_partition"), F.col("kafka_offset")
    known = [(partition == p) & (offset < o) for p, o in since.items()]
    return ~some([F.lit(False), *known])
