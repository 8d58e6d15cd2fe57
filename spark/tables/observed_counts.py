"""Counts that Spark takes of rows while it writes them."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Observation

from lakehouse.core.errors import Unreachable


def observed_counts(observation: Observation) -> Mapping[str, int]:
    """Return the counts of an observation.

    Raises:
        Unreachable: Spark did not send them. A listener of the server gets them after the write, for which the server
            waits 100 ms only (SPARK-54279), and a response may be cut off before them.
    """
    if counts := observation.get:
        return counts
    raise Unreachable("Spark Connect", "its server", "its log and load", "the counts of a write did not arrive")
