"""Steps of runs are repeated after errors that may pass, but neither after permanent ones nor after a termination."""

import signal

import dagster as dg
import pytest

from assets.factories import RETRY, dagster_failures, table_op
from lakehouse.core.errors import LakehouseError, Unreachable

EVERY = [*range(RETRY.max_retries + 1)]


def fail(error):
    with dagster_failures():
        raise error


@pytest.mark.parametrize(
    ("end", "expected", "status"),
    [
        (lambda: fail(Unreachable("Glue", "here", "that it is up", "no answer")), EVERY, "FAILURE"),
        (lambda: fail(OSError("unknown")), EVERY, "FAILURE"),
        (lambda: fail(LakehouseError("wrong settings")), [0], "FAILURE"),
        (lambda: signal.raise_signal(signal.SIGINT), [0], "CANCELED"),
        (lambda: signal.raise_signal(signal.SIGTERM), [0], "CANCELED"),
    ],
    ids=["transient", "unknown", "permanent", "SIGINT", "SIGTERM"],
)
def test_step_is_repeated_only_after_errors_that_may_pass(end, expected, status):
    attempts = []

    @table_op(dg.AssetSpec(["orders", "iceberg"]), pool="iceberg_orders", resources=())
    def iceberg_table(context, resources):
        attempts.append(context.retry_number)
        if status == "CANCELED":
            context.instance.report_run_canceling(context.run)
        end()

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([iceberg_table], instance=instance, raise_on_error=False)
        run = instance.get_run_by_id(result.run_id)

    assert attempts == expected
    assert run.status.value == status
