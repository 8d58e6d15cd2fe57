"""The Dagster code location: lakehouse.yaml in, assets, checks, sensors and the job out."""

from __future__ import annotations

import dagster as dg

from assets.sensors import topic_offsets_sensor
from assets.topic import route_definitions, topic_definitions
from lakehouse import config as configuration
from resources.build import build_resources, environment_name

JOB = "lakehouse"
"""The job that brings every topic all the way."""

CHAIN = dg.AssetSelection.key_prefixes("kafka", "iceberg", "glue", "snowflake")

RUNNING = dg.DefaultScheduleStatus.RUNNING


@dg.definitions
def defs() -> dg.Definitions:
    """Everything declared in lakehouse.yaml, for the environment in LAKEHOUSE_ENV."""
    config = configuration.load()
    automation = dg.AutomationConditionSensorDefinition(
        "automation",
        target=dg.AssetSelection.all(),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=30,
    )
    ledgers = dg.AssetSelection.key_prefixes("ledger")
    proof = dg.define_asset_job("ledger", ledgers, description="Prove that every table holds all of its topic, once.")
    tables = dg.AssetSelection.key_prefixes("maintenance")
    upkeep = dg.define_asset_job("maintenance", tables, description="Compact, expire and clean up every table.")
    common = dg.Definitions(
        jobs=[dg.define_asset_job(JOB, CHAIN, description="Every topic, from Kafka to Snowflake."), proof, upkeep],
        schedules=[
            dg.ScheduleDefinition(job=upkeep, cron_schedule="17 2 * * *", default_status=RUNNING),
            dg.ScheduleDefinition(job=proof, cron_schedule="17 3 * * *", default_status=RUNNING),
        ],
        sensors=[topic_offsets_sensor(config), automation],
        resources=build_resources(config, environment_name()),
        executor=dg.in_process_executor,
    )
    chains = [topic_definitions(config, topic) for topic in config.topics.values()]
    chains += [route_definitions(config, route) for route in config.routes.values()]
    return dg.Definitions.merge(common, *chains)
