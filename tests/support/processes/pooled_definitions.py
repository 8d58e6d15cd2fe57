"""A code location for test_production_instance.py: a job whose step has a pool, as those of a table have."""

import time

import dagster as dg

POOL = "iceberg_orders"
SECONDS = 3


@dg.op(pool=POOL)
def ingest(context: dg.OpExecutionContext) -> None:
    context.log.info("ingesting")
    time.sleep(SECONDS)


@dg.job(executor_def=dg.in_process_executor)
def orders() -> None:
    ingest()


@dg.sensor(job=orders, default_status=dg.DefaultSensorStatus.RUNNING, minimum_interval_seconds=1)
def new_records() -> list[dg.RunRequest]:
    """Request two runs at the same time, once."""
    return [dg.RunRequest(run_key="first"), dg.RunRequest(run_key="second")]


defs = dg.Definitions(jobs=[orders], sensors=[new_records])
