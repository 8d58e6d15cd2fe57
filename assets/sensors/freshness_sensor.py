"""A sensor that measures the lag of every stage. It needs no run, so it also detects that runs have stopped."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import dagster as dg
from dagster import AssetCheckEvaluation

from assets.entry import partitions, topics_of
from assets.freshness_checks import numbers, rejected_topics
from lakehouse.config.checks import FRESH
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.text.markdown import escaped
from lakehouse.pipeline.table_location import source_resources, table_resources
from lakehouse.readers import configured
from lakehouse.readers.freshness import NAMES, StageLag, first_stale_stage, summary
from lakehouse.readers.reader_lag import measure_lag, stages_of

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
    """State between ticks.

    Attributes:
        after: The last topic that was measured, as `entry/topic`.
        asked: Time of the last requested run, in seconds since the epoch, by topic.
    """

    after: str = ""
    asked: dict[str, float] = field(default_factory=dict)


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
        key, passed = dg.AssetCheckKey(dg.AssetKey([stage, entry.name]), FRESH), all(lag.is_fresh for lag in of_stage)
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
        keys = [dg.AssetKey([stage, entry.name]) for stage in stages[stages.index(stale.stage) :]]
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
