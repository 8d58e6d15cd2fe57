"""Decode messages that no producer sent, to distinguish a bad record from a decoder that does not work."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from lakehouse.pipeline.engine_values import Decoding
from spark.decoding import explain
from spark.decoding.decode import Codec, decode

RECORDS = 1_000
"""Number of control records, so that each core of a cluster has some."""


def decode_controls(spark: SparkSession, decoding: Decoding[Codec], *, explained: bool) -> None:
    """Decode control messages as the records of a topic are decoded.

    Args:
        spark: The Spark session.
        decoding: The instructions.
        explained: Whether to run what explains dead letters, too.

    Raises:
        PySparkException: Spark cannot do it.
    """

    def message(codec: Codec | None) -> Column:
        # Spark would decode a constant without its executors.
        return F.when(F.col("id") >= 0, F.lit(codec.control if codec else None)).cast("binary")

    records = spark.range(RECORDS).select(
        message(decoding.key).alias("key"),
        message(decoding.value).alias("value"),
        F.lit(0).alias("partition"),
        F.col("id").alias("offset"),
        F.current_timestamp().alias("timestamp"),
        F.lit(0).alias("timestampType"),
    )
    decoded = decode(records, replace(decoding, metadata={}, needs_headers=False, reads_header_ids=False))
    if explained:
        decoded = decoded.select(explain.message(decoding))
    decoded.write.format("noop").mode("overwrite").save()
