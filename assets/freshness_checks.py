"""Freshness in Dagster: a check on the asset of each stage, and Dagster's own freshness policy on topics."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import dagster as dg

from assets.check_definition import CheckDefinition
from assets.entry import topics_of
from lakehouse.config.checks import FRESH
from lakehouse.config.loader import Config
from lakehouse.config.topic import Route, Topic
from lakehouse.core.errors import ConfigError, LakehouseError
from lakehouse.core.text.markdown import escaped
from lakehouse.pipeline.table_location import source_resources, table_resources
from lakehouse.readers.freshness import NAMES, StageLag, summary
from lakehouse.readers.reader_lag import measure_lag, required_resources
from resources.kafka.kafka import Kafka

ONLY = "lakehouse/only"
"""Tag of a run whose checks concern only these entries and topics of routes, separated by commas."""


def freshness_check(config: Config, entry: Topic, stage: str) -> CheckDefinition:
    """Return the check `fresh` for the asset of a stage. For a route it covers all of its topics."""

    def fresh(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        topics = topics_of(entry, context.instance)
        lags = [measure_lag(stage, config, topic, context.resources) for topic in topics]
        names = context.run.tags.get(ONLY, entry.name).split(",")
        if stage == "iceberg" and isinstance(entry, Route) and entry.name in names:
            lags += rejected_topics(config, context.resources.kafka).get(entry.name, [])
        return dg.AssetCheckResult(
            check_name=FRESH,
            asset_key=[stage, entry.name],
            passed=all(lag.is_fresh for lag in lags),
            description=escaped(summary(lags)),
            metadata=numbers(entry, lags),
        )

    description = f"{NAMES[stage]}: the lag is at most {entry.max_lag_seconds:,} s."
    needs = required_resources(stage) | table_resources(config, entry) | source_resources(config, entry)
    return CheckDefinition(FRESH, description, needs, fresh)


def rejected_topics(config: Config, kafka: Kafka) -> dict[str, list[StageLag]]:
    """Return the topics that match a route but cannot become a table and are therefore not ingested, by route."""
    rejected: dict[str, list[StageLag]] = {}
    with suppress(LakehouseError):  # each stage reports the error too
        for route, name, fault in config.match_routes(kafka.topics() if config.routes else ()):
            if isinstance(fault, ConfigError):
                lag = StageLag(name, "iceberg", route.max_lag_seconds, failure=str(fault))
                rejected.setdefault(route.name, []).append(lag)
    return rejected


def numbers(entry: Topic, lags: list[StageLag]) -> dict[str, Any]:
    """Return the metadata of a verdict: the topics behind and, if known, the maximum lag, which Dagster plots."""
    seconds = [lag.behind.seconds for lag in lags if lag.behind]
    return {
        **({"lag_seconds": round(max(seconds), 1)} if seconds else {}),
        "max_lag_seconds": entry.max_lag_seconds,
        "stale": [lag.topic for lag in lags if not lag.is_fresh],
        "unknown": [lag.topic for lag in lags if lag.failure],
        "paused": [lag.topic for lag in lags if lag.paused],
    }


def idle_policy(entry: Topic) -> dg.FreshnessPolicy | None:
    """Return Dagster's freshness policy, which fails once the producer has written nothing for `max_idle_seconds`.

    It fits topics only: it measures the time since the last change, which is no lag for tables and readers.
    """
    if entry.max_idle_seconds is None:
        return None
    return dg.FreshnessPolicy.time_window(fail_window=timedelta(seconds=entry.max_idle_seconds))
