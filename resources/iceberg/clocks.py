"""Comparison of the clocks of the machines that write to one table."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakehouse.core.errors import ClockSkew

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_SKEW_SECONDS = 30
"""Half of Iceberg's tolerance: another writer may commit between the comparison and this commit."""


def now_ms() -> int:
    """Return this machine's time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def format_utc(milliseconds: int) -> str:
    """Return a time in milliseconds since the epoch as text, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="seconds")


def require_spark_clock(spark: SparkSession) -> None:
    """Require that this machine's clock and Spark's agree, since both commit to the same tables.

    Raises:
        ClockSkew: They differ by more than `MAX_SKEW_SECONDS`, in either direction.
    """
    before = now_ms()
    [(spark_time,)] = spark.sql("SELECT unix_millis(current_timestamp())").collect()
    after = now_ms()
    skew = max(before - spark_time, spark_time - after) / 1000
    if skew > MAX_SKEW_SECONDS:
        direction = "ahead of" if before > spark_time else "behind"
        raise ClockSkew(
            f"{format_utc(after)} UTC, {skew:.0f} s {direction} Spark's ({format_utc(spark_time)} UTC)",
            "Iceberg refuses commits to a history whose times go back",
        )
