"""The project's errors as Dagster failures: one sentence in the UI, and retries only for what can heal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from lakehouse.config.sensitive import unquoted
from lakehouse.config.topic import Topic
from lakehouse.core.errors import LakehouseError, is_transient, translate

RETRY = dg.RetryPolicy(max_retries=3, delay=5, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""For systems that come back. What cannot heal by itself is raised with `allow_retries=False`."""


@contextmanager
def explained(*topics: Topic) -> Iterator[None]:
    """Turn a LakehouseError into a Failure with its message; anything else passes with its traceback.

    Args:
        topics: Those that the work is about. Where one has sensitive columns, no text passes that nobody foresaw.
    """
    with translate({LakehouseError: _failure}), unquoted(*topics):
        yield


def _failure(error: LakehouseError) -> dg.Failure:
    return dg.Failure(str(error), allow_retries=is_transient(error))
