"""The job `stream`, one long run that ingests topics continuously, and the sensor that keeps it running."""

import time
from itertools import takewhile

import dagster as dg

from assets.factories import dagster_failures
from assets.freshness import IN_PROGRESS
from assets.run_alerts import RESTARTED
from assets.run_log import failures_logged, run_log
from assets.streaming.check import kafka_check
from lakehouse.config.model import Config
from lakehouse.pipeline.clients import CLIENTS
from lakehouse.readers import configured

JOB = "stream"

INTERVAL_SECONDS = 30

TAGS = {
    # Run monitoring terminates other runs after two hours.
    "dagster/max_runtime": "0",
    # The sensor restarts a run whose worker died, without a limit.
    "dagster/max_retries": "0",
    RESTARTED: "yes",
}

MAX_FAILURES = 5
"""Number of consecutive failed runs up to which the backoff doubles."""


class StreamConfig(dg.Config):
    """Configuration of a run of the job."""

    topics: list[str] = []
    """Names of topics; by default the `continuous` ones, or all if none is."""


def stream_definitions(config: Config) -> dg.Definitions:
    """Return the job and its sensor. The sensor is on by default if an entry is `continuous`."""
    declared = config
    keys = {*CLIENTS, *(reader.resource for reader in configured(declared))}

    # One pool for the whole job, which would hold the tables' pools until it ends. Runs do not compete for
    # `continuous` tables; for other tables, optimistic concurrency makes one of two writers lose its commit.
    @dg.op(name="stream_topics", pool=JOB, required_resource_keys=keys)
    def stream_topics(context: dg.OpExecutionContext, config: StreamConfig) -> None:
        from assets.streaming.service import StreamService, select_topics

        resources = context.resources
        with failures_logged(context), dagster_failures():
            topics = select_topics(declared, config.topics, resources.kafka.topics() if declared.routes else ())
            StreamService(declared, topics, resources, run_log(context), context.instance).run()

    @dg.job(name=JOB, tags=TAGS, description="Ingests topics continuously until it is terminated.")
    def job() -> None:
        stream_topics()

    continuous = any(entry.continuous for entry in (*config.topics.values(), *config.routes.values()))

    @dg.sensor(
        name="stream_supervisor",
        job=job,
        description="Launches the job 'stream' if no run is in progress. Stop the sensor before you terminate the run.",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING if continuous else dg.DefaultSensorStatus.STOPPED,
    )
    def stream_supervisor(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        running = context.instance.get_runs(dg.RunsFilter(job_name=JOB, statuses=list(IN_PROGRESS)), limit=1)
        if running:
            return dg.SkipReason(f"Run {running[0].run_id} is in progress")
        if (seconds := _backoff_seconds(context.instance)) > 0:
            return dg.SkipReason(f"The last runs failed: the next run starts in {seconds:.0f} s")
        return dg.RunRequest()

    definitions = dg.Definitions(jobs=[job], sensors=[stream_supervisor])
    return dg.Definitions.merge(definitions, kafka_check()) if continuous else definitions


def _backoff_seconds(instance: dg.DagsterInstance) -> float:
    """Return the seconds until the next launch: none after one failed run, then doubled with each further failure."""
    records = instance.get_run_records(dg.RunsFilter(job_name=JOB), limit=MAX_FAILURES)
    failed = list(takewhile(lambda record: record.dagster_run.status == dg.DagsterRunStatus.FAILURE, records))
    if len(failed) < 2 or failed[0].end_time is None:
        return 0.0
    return failed[0].end_time + 2 ** len(failed) * INTERVAL_SECONDS / 2 - time.time()
