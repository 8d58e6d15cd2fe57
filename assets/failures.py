"""Conversion of this project's errors to Dagster failures, with retries for transient errors only."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from lakehouse.config.model import Topic
from lakehouse.config.sensitive import hide_values
from lakehouse.core.errors import LakehouseError, is_transient, translate

RETRY = dg.RetryPolicy(max_retries=3, delay=5, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""When steps of runs are repeated. Permanent errors are raised with `allow_retries=False`."""


@contextmanager
def dagster_failures(*topics: Topic) -> Iterator[None]:
    """Raise a LakehouseError as a Failure with its message, and other errors unchanged.

    Args:
        topics: The topics of the work. If one has sensitive columns, the texts of other errors are withheld.
    """
    with translate({LakehouseError: _failure}), hide_values(*topics):
        yield


@contextmanager
def repeated(policy: dg.RetryPolicy, retries: int) -> Iterator[None]:
    """Let Dagster repeat a step after any error except a Failure that does not allow it.

    The retry policy of an op would also repeat a step whose run is terminated, instead of ending it
    (dagster/_core/execution/plan/utils.py, op_execution_error_boundary).

    Args:
        policy: The number of retries and their delays.
        retries: The number of retries so far.

    Raises:
        RetryRequested: The step failed.
    """
    try:
        yield
    except dg.DagsterError:
        raise
    except Exception as error:
        if isinstance(error, dg.Failure) and not error.allow_retries:
            raise
        raise dg.RetryRequested(policy.max_retries, policy.calculate_delay(retries + 1)) from error


def _failure(error: LakehouseError) -> dg.Failure:
    return dg.Failure(str(error), allow_retries=is_transient(error))
