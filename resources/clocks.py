"""Clocks of the machines that write to one table: this one's, Spark's, and the one that wrote last."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakehouse.core.errors import ClockSkew

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_SKEW_SECONDS = 30
"""Half of what Java tolerates: another writer may commit between the comparison and this commit."""


def now_ms() -> int:
    """This machine's time, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def text(milliseconds: int) -> str:
    """A time as people read it, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="seconds")


def require_clock_of(spark: SparkSession) -> None:
    """Compare this machine's clock with Spark's, since both commit to the same tables.

    Raises:
        ClockSkew: They differ by more than `MAX_SKEW_SECONDS`, whichever is ahead.
    """
    before = now_ms()
    [(theirs,)] = spark.sql("SELECT unix_millis(current_timestamp())").collect()
    after = now_ms()
    ahead = max(before - theirs, theirs - after) / 1000
    if ahead > MAX_SKEW_SECONDS:
        word = "ahead of" if before > theirs else "behind"
        raise ClockSkew(
            f"{text(after)} UTC, {ahead:.0f} s {word} Spark's ({text(theirs)} UTC)",
            "Iceberg refuses commits to a history whose times go back",
        )
