"""Conversion of this project's errors to Dagster failures, with retries for transient errors only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from lakehouse.config.sensitive import hide_values
from lakehouse.config.topic import Topic
from lakehouse.core.errors import LakehouseError, is_transient, translate

RETRY = dg.RetryPolicy(max_retries=3, delay=5, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""The retry policy for transient errors. Permanent errors are raised with `allow_retries=False`."""


@contextmanager
def dagster_failures(*topics: Topic) -> Iterator[None]:
    """Raise a LakehouseError as a Failure with its message, and other errors unchanged.

    Args:
        topics: The topics of the work. If one has sensitive columns, the texts of other errors are withheld.
    """
    with translate({LakehouseError: _failure}), hide_values(*topics):
        yield


def _failure(error: LakehouseError) -> dg.Failure:
    return dg.Failure(str(error), allow_retries=is_transient(error))
