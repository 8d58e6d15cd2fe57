"""Nightly schedules: one job for all topics, and one per route, whose topics are partitions."""

import dagster as dg

from assets.entry import partitions
from lakehouse.config.loader import Config
from lakehouse.config.topic import Route
from lakehouse.core.tables import naming

RUNNING = dg.DefaultScheduleStatus.RUNNING


def nightly(config: Config, prefix: str, cron: str, description: str) -> dg.Definitions:
    """Return jobs and schedules that materialize all assets under a key prefix, at the times of a cron expression."""
    topics = dg.AssetSelection.assets(*([prefix, topic] for topic in config.spark_topics))
    job = dg.define_asset_job(prefix, topics, description=description)
    schedules = [dg.ScheduleDefinition(job=job, cron_schedule=cron, description=description, default_status=RUNNING)]
    schedules += [_of_route(route, prefix, cron, description) for route in config.routes.values()]
    return dg.Definitions(jobs=[schedule.job for schedule in schedules], schedules=schedules)


def _of_route(route: Route, prefix: str, cron: str, description: str) -> dg.ScheduleDefinition:
    topics = partitions(route)
    assert topics is not None
    job = dg.define_asset_job(
        f"{prefix}_{naming.node_name(route.name)}",
        dg.AssetSelection.assets([prefix, route.name]),
        description=description,
    )

    @dg.schedule(
        name=f"{job.name}_schedule", job=job, cron_schedule=cron, description=description, default_status=RUNNING
    )
    def each_topic(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest]:
        keys = topics.get_partition_keys(dynamic_partitions_store=context.instance)
        at = context.scheduled_execution_time.isoformat()
        return [dg.RunRequest(run_key=f"{topic} {at}", partition_key=topic) for topic in keys]

    return each_topic
