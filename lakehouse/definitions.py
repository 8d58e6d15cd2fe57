"""The Dagster code location: the assets, checks, sensors and jobs that follow from lakehouse.yaml."""

import gc
import os
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import dagster as dg
from dagster_shared.libraries import DagsterLibraryRegistry

from assets import published_tables
from assets.alerts import alert_failed_checks
from assets.embedded_stack import disk_space, old_runs_definitions
from assets.freshness import freshness_sensor
from assets.lineage import lineage_sensor
from assets.monitoring import alert_failed_ticks, heartbeat
from assets.run_alerts import alert_failed_runs
from assets.streaming.check import KAFKA
from assets.streaming.job import stream_definitions
from assets.topics.confluent_state import CLUSTER, cluster_definitions
from assets.topics.kafka_asset import topic_offsets_sensor
from assets.topics.topic_chain import entry_definitions
from assets.topics.upkeep_assets import nightly
from lakehouse import DISTRIBUTION
from lakehouse.config import snapshots
from lakehouse.config.discovery import FILE, LOCAL, config_path, environment_name
from lakehouse.config.model import Config
from lakehouse.readers import configured
from resources.build import build_resources
from resources.fixed_settings import with_fixed_settings

_WORKING_DIRECTORY = Path(sys.path[0])
"""The working directory of the code location, which is first while Dagster imports this module, and only then."""

# Dagster's page Deployment lists it beside those of Dagster's own packages.
DagsterLibraryRegistry.register(DISTRIBUTION, version(DISTRIBUTION), is_dagster_package=False)

JOB = "all_topics"
"""The job that materializes the assets of every topic, from Kafka to the readers."""


@dg.definitions
def defs() -> dg.Definitions:
    """Return all definitions for the environment in LAKEHOUSE_ENV.

    The project is in the working directory of the code location, which differs from the current folder in a workspace
    of several projects.
    """
    if Path.cwd() != _WORKING_DIRECTORY and (_WORKING_DIRECTORY / FILE).is_file():
        os.environ.setdefault("LAKEHOUSE_CONFIG", str(config_path(_WORKING_DIRECTORY)))
    # A thousand topics are millions of objects, none of which is garbage yet, so collecting would only cost time.
    gc.disable()
    try:
        return definitions_of(snapshots.load())
    finally:
        gc.freeze()
        gc.enable()


def definitions_of(config: Config) -> dg.Definitions:
    """Return all definitions of a configuration."""
    entries = (*config.topics.values(), *config.routes.values())
    process = dg.Definitions(executor=dg.in_process_executor)
    # Other instances of Dagster have their own cleanup and monitoring.
    local = [old_runs_definitions(), dg.Definitions(sensors=[disk_space])] if environment_name() == LOCAL else []
    return dg.Definitions.merge(
        shared_definitions(config), process, *local, *(entry_definitions(config, entry) for entry in entries)
    )


def shared_definitions(config: Config) -> dg.Definitions:
    """Return the definitions that entries share: resources, sensors, jobs and schedules, and the Kafka cluster."""
    groups = (*config.topics, *config.routes, CLUSTER.path[0], KAFKA[0])
    with warnings.catch_warnings():
        # External assets, such as the Kafka cluster, have checks; to select them is beta in Dagster 1.13.
        warnings.simplefilter("ignore", dg.BetaWarning)
        assets = dg.AssetSelection.key_prefixes(*([name] for name in groups), include_sources=True)
    automation = dg.AutomationConditionSensorDefinition(
        "automation",
        target=assets,
        description="Requests runs of assets and checks according to their automation conditions.",
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=30,
    )
    stages = ["kafka", "iceberg", *(reader.name for reader in configured(config))]
    chain = dg.AssetSelection.assets(*([topic, stage] for topic in config.topics for stage in stages))
    common = dg.Definitions(
        jobs=[dg.define_asset_job(JOB, chain.materializable(), description="All topics, from Kafka to the readers.")],
        sensors=[
            topic_offsets_sensor(config),
            freshness_sensor(config),
            lineage_sensor(config),
            automation,
            alert_failed_runs,
            alert_failed_checks,
            alert_failed_ticks,
            heartbeat,
        ],
        resources={
            **with_fixed_settings(build_resources(config, environment_name())),
            published_tables.KEY: published_tables.published_tables(config),
        },
    )
    schedules = (
        nightly(config, "maintenance", "17 2 * * *", "Compact, expire and clean up every table."),
        nightly(config, "ledger", "17 3 * * *", "Verify that every table contains its whole topic, once."),
    )
    clusters = (stream_definitions(config), cluster_definitions(config))
    return dg.Definitions.merge(common, *schedules, *clusters)
