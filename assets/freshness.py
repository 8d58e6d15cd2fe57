"""Freshness in Dagster: a check on the asset of each stage, a sensor that evaluates it without a run, and a policy."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import dagster as dg
from dagster import AssetCheckEvaluation

from assets.entry import partitions, topics_of
from assets.factories import CheckDefinition
from lakehouse.config.checks import FRESH
from lakehouse.config.model import Config, Route, Topic
from lakehouse.core.errors import ConfigError, LakehouseError
from lakehouse.core.text import escaped
from lakehouse.pipeline.table_location import source_resources, table_resources
from lakehouse.readers import configured
from lakehouse.readers.freshness import NAMES, StageLag, first_stale_stage, summary
from lakehouse.readers.reader_lag import measure_lag, required_resources, stages_of
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
            asset_key=[entry.name, stage],
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


TICK_SECONDS = 60
BUDGET_SECONDS = 35
"""Time after which a tick measures no further topic: Dagster's timeout is 60 s. The next tick starts with the rest."""
REPEAT_SECONDS = 600
"""Interval at which an unchanged verdict is reported again. A report per tick would fill the history of the check."""

IN_PROGRESS = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


@dataclass
class _Cursor:
    """State between ticks."""

    after: str = ""
    """The last topic that was measured, as `entry/topic`."""
    asked: dict[str, float] = field(default_factory=dict)
    """Time of the last requested run, in seconds since the epoch, by topic."""


def freshness_sensor(config: Config) -> dg.SensorDefinition:
    """Return the sensor that reports the check `fresh` of every stage and requests runs for stale stages."""
    entries = {name: entry for name, entry in (config.topics | config.routes).items() if stages_of(config, entry)}
    needs = (table_resources(config, entry) | source_resources(config, entry) for entry in entries.values())
    # The last lags by topic. One tick may measure only some topics of a route, whose check covers all of them.
    known: dict[str, list[StageLag]] = {}

    @dg.sensor(
        name="freshness",
        # Requested runs may select any assets.
        asset_selection=dg.AssetSelection.all(),
        description="Reports the check 'fresh' of every stage. A tick that stored events shows as skipped.",
        minimum_interval_seconds=TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={"kafka", "catalog"}.union((reader.resource for reader in configured(config)), *needs),
    )
    def freshness(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        resources = context.resources
        cursor, began = _Cursor(**json.loads(context.cursor or "{}")), time.monotonic()
        events: list[AssetCheckEvaluation] = []
        requests: list[dg.RunRequest] = []
        rejected = rejected_topics(config, resources.kafka)
        topics = {name: topics_of(entry, context.instance) for name, entry in entries.items()}
        places = {f"{name}/{topic.name}": (name, topic) for name in entries for topic in topics[name]}
        for gone in known.keys() - places:
            del known[gone]
        measured = [name for name in entries if not topics[name]]
        for place in sorted(places, key=lambda place: (place <= cursor.after, place)):
            name, topic = places[place]
            stages = stages_of(config, entries[name])
            known[place] = [measure_lag(stage, config, topic, resources) for stage in stages]
            requests += _run_requests(cursor, entries[name], stages, known[place], context.instance)
            cursor.after = place
            measured.append(name)
            if time.monotonic() - began > BUDGET_SECONDS:
                break
        for name in dict.fromkeys(measured):
            if missing := {f"{name}/{topic.name}" for topic in topics[name]} - known.keys():
                context.log.info(
                    f"{name}: {len(missing):,} of {len(topics[name]):,} topics are measured by later ticks"
                )
                continue
            lags = [lag for topic in topics[name] for lag in known[f"{name}/{topic.name}"]]
            stages = stages_of(config, entries[name])
            events += _evaluations(entries[name], stages, [*lags, *rejected.get(name, ())], context.instance)
        return dg.SensorResult(asset_events=events, run_requests=requests, cursor=json.dumps(asdict(cursor)))

    return freshness


def _evaluations(
    entry: Topic, stages: list[str], lags: list[StageLag], instance: dg.DagsterInstance
) -> Iterator[AssetCheckEvaluation]:
    """Yield the verdicts that differ from those in Dagster, and those that were last reported REPEAT_SECONDS ago."""
    for stage in stages:
        of_stage = [lag for lag in lags if lag.stage == stage]
        key, passed = dg.AssetCheckKey(dg.AssetKey([entry.name, stage]), FRESH), all(lag.is_fresh for lag in of_stage)
        if of_stage and not _is_reported(instance, key, passed, [lag.topic for lag in of_stage if lag.paused]):
            yield AssetCheckEvaluation(
                asset_key=key.asset_key,
                check_name=FRESH,
                passed=passed,
                severity=dg.AssetCheckSeverity.ERROR,
                description=escaped(summary(of_stage)),
                metadata=numbers(entry, of_stage),
            )


def _is_reported(instance: dg.DagsterInstance, key: dg.AssetCheckKey, passed: bool, paused: list[str]) -> bool:
    """Return whether this verdict with these paused topics was reported recently, or a run is about to report one.

    A run that ends before it evaluates a planned check leaves the check failed without a reason. Only a run in progress
    counts.
    """
    record = instance.get_latest_asset_check_evaluation_record(key)
    if record is None:
        return False
    if record.status.value == "PLANNED":
        run = instance.get_run_by_id(record.run_id)
        return run is not None and not run.is_finished
    event = record.event.get_dagster_event() if record.event else None
    reported = event.asset_check_evaluation_data.metadata.get("paused") if event else None
    is_same = (record.status.value == "SUCCEEDED") is passed and (reported.value if reported else []) == paused
    return is_same and time.time() - record.create_timestamp < REPEAT_SECONDS


def _run_requests(
    cursor: _Cursor, entry: Topic, stages: list[str], lags: list[StageLag], instance: dg.DagsterInstance
) -> Iterator[dg.RunRequest]:
    """Yield one run for each stale topic of an entry with `on_stale: run`: its first stale stage and all later ones.

    A topic gets at most one run per `max_lag_seconds`, and none while another run of it is in progress.
    """
    if entry.on_stale != "run":
        return
    now = time.time()
    for topic in dict.fromkeys(lag.topic for lag in lags):
        of_topic = [lag for lag in lags if lag.topic == topic]
        stale = first_stale_stage(of_topic)
        is_paused = any(lag.paused for lag in of_topic)
        if stale is None or is_paused or now - cursor.asked.get(topic, 0) < entry.max_lag_seconds:
            continue
        keys = [dg.AssetKey([entry.name, stage]) for stage in stages[stages.index(stale.stage) :]]
        if _is_in_progress(instance, keys, topic if partitions(entry) else None):
            continue
        cursor.asked[topic] = now
        yield dg.RunRequest(
            asset_selection=keys,
            partition_key=topic if partitions(entry) else None,
            tags={"lakehouse/reason": f"stale: {NAMES[stale.stage]}"},
        )


def _is_in_progress(instance: dg.DagsterInstance, keys: list[dg.AssetKey], partition: str | None) -> bool:
    unfinished = dg.RunsFilter(statuses=list(IN_PROGRESS))
    return any(
        set(keys) & set(run.asset_selection or ()) and partition in (None, run.tags.get("dagster/partition"))
        for run in instance.get_runs(filters=unfinished)
    )
