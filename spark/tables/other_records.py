"""The records of a batch that become no rows, beside its rows in one table, and their collection."""

from __future__ import annotations

import time
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.pipeline.spilled_records import SPILLED_BYTES
from spark.decoding.decoded import PREFIX
from spark.native.job import RETRY_SECONDS
from spark.native.task import SPILLED
from spark.tables import dead_letters

RECORD = PREFIX + "record"
"""The column with the record, as dead letters have it; null beside a row."""

_TOO_LARGE: WeakKeyDictionary[SparkSession, dict[str, float]] = WeakKeyDictionary()
"""When a range of a topic had too many bytes of such records, by session and topic."""


def may_be_kept(spark: SparkSession, topic: str) -> bool:
    """Return false for RETRY_SECONDS after a range of a topic had too many bytes of such records."""
    return time.monotonic() - _TOO_LARGE.get(spark, {}).get(topic, -RETRY_SECONDS) >= RETRY_SECONDS


def collected(others: DataFrame, topic: str) -> pa.Table | None:
    """Return the records in RECORD, which are of a topic; None if they have more than SPILLED_BYTES bytes."""
    records = dead_letters.source_records(others, RECORD)
    of_headers = F.aggregate("headers", F.lit(0), lambda total, header: total + _bytes(header["key"], header["value"]))
    [(total,)] = records.agg(F.sum(_bytes(F.col("key"), F.col("value")) + F.coalesce(of_headers, F.lit(0)))).collect()
    if (total or 0) > SPILLED_BYTES:
        _TOO_LARGE.setdefault(others.sparkSession, {})[topic] = time.monotonic()
        return None
    return records.select(*SPILLED.names).toArrow().cast(SPILLED)


def _bytes(first: Column, second: Column) -> Column:
    return F.coalesce(F.octet_length(first), F.lit(0)) + F.coalesce(F.octet_length(second), F.lit(0))
