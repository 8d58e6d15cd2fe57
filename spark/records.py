"""Read a range of a Kafka topic as a DataFrame."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Callable, Mapping
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from lakehouse.core.offsets.batch import Batch, Positions
from spark.decoding.conditions import some

READ = {
    # Records of aborted or open transactions are not ingested.
    "kafka.isolation.level": "read_committed",
    # The source requests both ends of the log after every poll, so polls are large.
    "kafka.max.poll.records": "20000",
    # After a poll the consumer prefetches, at the end of the log for half a second by default, and those requests wait
    # behind the prefetch.
    "kafka.fetch.max.wait.ms": "1",
    # Otherwise each consumer requests a metrics subscription from the broker (KIP-714).
    "kafka.enable.metrics.push": "false",
    "failOnDataLoss": "true",
}
"""Consumer options (Spark, Structured Streaming + Kafka Integration Guide; Kafka consumer configuration)."""

RECORDS_A_TASK = 50_000
"""Minimum number of records per task.

Starting and ending a task takes as long as reading 100,000 records, and each task writes a file.
"""

MAX_RECORDS_A_TASK = 1_000_000
"""Maximum number of records per task, unless the topic has partitions for as many tasks: one of few partitions should
use all cores."""

PARTITIONS_A_TASK = 100
"""Maximum number of partitions per task, which keeps a consumer of about 0.7 MB for each until it ends."""


SPILLED_A_TASK = 10_000
"""Maximum number of records per task that the compiled decoder did not make rows."""

_KEY = secrets.token_bytes(16)


def read_range(spark: SparkSession, kafka: Mapping[str, str], batch: Batch, *, headers: bool = False) -> DataFrame:
    """Return the records of a batch: key, value, topic, partition, offset, timestamp (and headers).

    Spark reads each partition in a separate task; those of a small batch are read sequentially in fewer tasks, those of
    a large one are divided. If Spark knows that there is one task, which it does not know of a source, it groups by key
    without a shuffle.

    Args:
        spark: The Spark session.
        kafka: The connection options (`kafka.bootstrap.servers` …).
        batch: The offsets.
        headers: Whether to read message headers.
    """
    reader = spark.read.format("kafka").options(**kafka, **READ)
    reader = reader.option("kafka.group.id", _group(spark, kafka, batch.topic_id))
    bounds = {"startingOffsets": batch.start, "endingOffsets": batch.end}
    for option, offsets in bounds.items():
        reader = reader.option(option, json.dumps({batch.topic: {str(p): o for p, o in offsets.items()}}))
    # Assign the partitions of the batch, because the topic may have more by now.
    reader = reader.option("assign", json.dumps({batch.topic: sorted(batch.end)}))
    reader = reader.option("minPartitions", max(1, math.ceil(batch.offsets / MAX_RECORDS_A_TASK)))
    records = reader.option("includeHeaders", str(headers).lower()).load()
    tasks = max(math.ceil(batch.offsets / RECORDS_A_TASK), math.ceil(len(batch.end) / PARTITIONS_A_TASK))
    return records.coalesce(tasks) if 0 < tasks <= len(batch.end) else records


def spilled(spark: SparkSession, records: pa.Table) -> DataFrame:
    """Return records that the compiled decoder did not make rows, in the columns of Spark's Kafka source.

    They are distributed among tasks. Otherwise Spark would decode them in its planner, slowly, and by other code than
    the records of a topic (org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation).
    """
    # Without records, Spark would not take the columns from the table.
    frame = spark.createDataFrame(records, from_arrow_schema(records.schema))
    return frame.repartition(max(1, math.ceil(records.num_rows / SPILLED_A_TASK)))


_VIEWS: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()
"""The temporary views with records that are kept, by session."""


def kept(spark: SparkSession, name: str, read: Callable[[], DataFrame]) -> DataFrame:
    """Return records that Spark keeps in memory, or on disk if they do not fit, from their first use until `release`.

    Spark finds kept records by the plan of their view, because each other read of the log has a plan of its own. If it
    loses some, it reads them from the log again.

    Args:
        spark: The session.
        name: The name of their view.
        read: Returns the records, before their first use.
    """
    views = _VIEWS.setdefault(spark, set())
    if name not in views:
        read().createTempView(name)
        spark.catalog.cacheTable(name)
        views.add(name)
    return spark.table(name)


def release(spark: SparkSession, name: str) -> None:
    """Drop the view of records that are kept, if they were used, and with it their memory and disk space."""
    views = _VIEWS.get(spark, set())
    if name in views:
        spark.catalog.dropTempView(name)
        views.remove(name)


def is_readable(records: DataFrame) -> bool:
    """Return whether Spark's Kafka source can read the records; it fails on timestamps that it cannot represent.

    Raises:
        PySparkException: They cannot be read for another reason.
    """
    try:
        records.agg(F.max("timestamp")).collect()
    except PySparkException as error:
        if "ArithmeticException" in str(error):
            return False
        raise
    return True


def _group(spark: SparkSession, kafka: Mapping[str, str], topic_id: str) -> str:
    """Return the consumer group id, by which Spark's executors reuse consumers and prefetched records between batches.

    It depends on the topic id, the credentials and the session: a consumer that fetched corrupt bytes keeps them, so
    the session that is opened after a failure must not reuse it.
    """
    # The keyed hash prevents guessing passwords from the group id in a log.
    session_id = spark.session_id  # type: ignore[attr-defined]  # of Spark Connect
    identity = json.dumps([session_id, dict(kafka)], sort_keys=True).encode()
    return f"lakehouse-{topic_id}-{hashlib.blake2b(identity, key=_KEY, digest_size=8).hexdigest()}"


def is_new(since: Positions) -> Column:
    """Return whether a row's offset is at or after `since`, by partition; partitions not in `since` are new
    entirely."""
    partition, offset = F.col("kafka_partition"), F.col("kafka_offset")
    known = [(partition == p) & (offset < o) for p, o in since.items()]
    return ~some([F.lit(False), *known])
