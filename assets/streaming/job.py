"""The job `stream`: one long run that takes topics on and on, and the sensor that keeps it running."""

import time
from itertools import takewhile

import dagster as dg

from assets.failures import explained
from assets.sensors.alerts import RESTARTED
from assets.sensors.freshness_sensor import IN_PROGRESS
from assets.streaming.check import kafka_check
from assets.streaming.service import Streaming, chosen
from lakehouse.config.loader import Config
from lakehouse.pipeline.clients import CLIENTS
from lakehouse.readers import configured

JOB = "stream"

INTERVAL_SECONDS = 30

TAGS = {
    # Other runs are ended after two hours.
    "dagster/max_runtime": "0",
    # A worker that died is started again by the sensor, however often that happens.
    "dagster/max_retries": "0",
    RESTARTED: "yes",
}

MOST_FAILURES = 5
"""Failed runs in a row that make the next one wait longer."""


class Streamed(dg.Config):
    """Which topics a run takes."""

    topics: list[str] = []
    """Names of topics; by default, the `continuous` ones, or all where there are none."""


def stream_definitions(config: Config) -> dg.Definitions:
    """The job and its sensor. The sensor runs from the start where an entry is `continuous`."""
    declared = config

    # One slot for all: what the tables' own pools would hold for ever is kept apart by `continuous`, and where that is
    # not set, by the publication itself, which one of two writers loses.
    needed = {*CLIENTS, *(reader.resource for reader in configured(declared))}

    @dg.op(name="take_topics", pool=JOB, required_resource_keys=needed)
    def take_topics(context: dg.OpExecutionContext, config: Streamed) -> None:
        systems = context.resources
        with explained():
            topics = chosen(declared, config.topics, systems.kafka.topics() if declared.routes else ())
            Streaming(declared, topics, systems, context.log.info, context.instance).run()

    @dg.job(name=JOB, tags=TAGS, description="Takes topics on and on, until it is ended.")
    def job() -> None:
        take_topics()

    continuous = any(entry.continuous for entry in (*config.topics.values(), *config.routes.values()))

    @dg.sensor(
        name="keep_streaming",
        job=job,
        description="Starts the job 'stream' when no run of it is in progress. Stop the sensor before you end the run.",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING if continuous else dg.DefaultSensorStatus.STOPPED,
    )
    def keep_streaming(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        running = context.instance.get_runs(dg.RunsFilter(job_name=JOB, statuses=list(IN_PROGRESS)), limit=1)
        if running:
            return dg.SkipReason(f"Run {running[0].run_id} takes the topics")
        if (seconds := _pause(context.instance)) > 0:
            return dg.SkipReason(f"The last runs failed: the next one is started in {seconds:.0f} s")
        return dg.RunRequest()

    made = dg.Definitions(jobs=[job], sensors=[keep_streaming])
    return dg.Definitions.merge(made, kafka_check()) if continuous else made


def _pause(instance: dg.DagsterInstance) -> float:
    """Seconds until the job may be started again: at once after one failed run, and later with each more in a row."""
    records = instance.get_run_records(dg.RunsFilter(job_name=JOB), limit=MOST_FAILURES)
    failed = list(takewhile(lambda record: record.dagster_run.status == dg.DagsterRunStatus.FAILURE, records))
    if len(failed) < 2 or failed[0].end_time is None:
        return 0.0
    return failed[0].end_time + 2 ** len(failed) * INTERVAL_SECONDS / 2 - time.time()
