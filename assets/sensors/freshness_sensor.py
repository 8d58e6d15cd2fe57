"""A sensor that measures every hop, without a run: what stopped is seen though nothing runs any more."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import dagster as dg
from dagster import AssetCheckEvaluation

from assets.entry import partitions, topics_of
from assets.freshness import numbers
from lakehouse.config.checks import FRESH
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.errors import ConfigError, LakehouseError
from lakehouse.core.markdown import escaped
from lakehouse.readers import configured
from lakehouse.readers.freshness import NAMES, Hop, first_stale, summary
from lakehouse.readers.hops import hops_of, measure

TICK_SECONDS = 60
BUDGET_SECONDS = 35
"""What a tick may take: Dagster gives up after 60 s. Topics that are left out come first in the next one."""
REPEAT_SECONDS = 600
"""A verdict that stays the same is reported so often: a check's history shows changes, not ticks."""


IN_PROGRESS = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


@dataclass
class _Cursor:
    """What a tick leaves to the next: the last entry it measured; by topic, when a run was asked for, in seconds since
    the epoch."""

    after: str = ""
    asked: dict[str, float] = field(default_factory=dict)


def freshness_sensor(config: Config) -> dg.SensorDefinition:
    """Reports the check `fresh` of every hop of every topic, and asks for the runs that mend what is stale."""
    entries = {**config.by_spark, **config.routes}

    @dg.sensor(
        name="freshness",
        # Runs that the sensor requests may be of any assets.
        asset_selection=dg.AssetSelection.all(),
        description="Reports the check 'fresh' of every hop. A tick that stored events shows as skipped.",
        minimum_interval_seconds=TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={"kafka", "catalog", *(reader.resource for reader in configured(config))},
    )
    def freshness(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        systems = context.resources
        cursor, began = _Cursor(**json.loads(context.cursor or "{}")), time.monotonic()
        events: list[AssetCheckEvaluation] = []
        requests: list[dg.RunRequest] = []
        unnamed = _unnamed(config, systems)
        order = sorted(entries, key=lambda name: (name <= cursor.after, name))
        for name in order:
            entry = entries[name]
            hops = hops_of(config, entry)
            found = [
                measure(hop, config, topic, systems) for topic in topics_of(entry, context.instance) for hop in hops
            ]
            events += _news(entry, hops, [*found, *unnamed.get(name, ())], context.instance)
            requests += _mending(cursor, entry, hops, found, context.instance)
            cursor.after = name
            if time.monotonic() - began > BUDGET_SECONDS:
                break
        return dg.SensorResult(asset_events=events, run_requests=requests, cursor=json.dumps(asdict(cursor)))

    return freshness


def _unnamed(config: Config, systems: Any) -> dict[str, list[Hop]]:
    """Return, by route, the topics that match it and cannot become a table, so that nothing ingests them."""
    found: dict[str, list[Hop]] = {}
    with suppress(LakehouseError):  # which every hop says, too
        for route, name, fault in config.matched(systems.kafka.topics() if config.routes else ()):
            if isinstance(fault, ConfigError):
                hop = Hop(name, "iceberg", route.max_lag_seconds, failure=str(fault))
                found.setdefault(route.name, []).append(hop)
    return found


def _news(
    entry: Topic, hops: list[str], found: list[Hop], instance: dg.DagsterInstance
) -> Iterator[AssetCheckEvaluation]:
    """Verdicts that Dagster does not show, and those that were not told for a while."""
    for hop in hops:
        here = [one for one in found if one.asset == hop]
        key, passed = dg.AssetCheckKey(dg.AssetKey([hop, entry.name]), FRESH), all(one.fresh for one in here)
        if here and not _is_shown(instance, key, passed, [one.topic for one in here if one.paused]):
            yield AssetCheckEvaluation(
                asset_key=key.asset_key,
                check_name=FRESH,
                passed=passed,
                severity=dg.AssetCheckSeverity.ERROR,
                description=escaped(summary(here)),
                metadata=numbers(entry, here),
            )


def _is_shown(instance: dg.DagsterInstance, key: dg.AssetCheckKey, passed: bool, paused: list[str]) -> bool:
    """Whether Dagster shows this verdict of late, with the topics that are paused, or a run is about to tell one.

    A run that ends before it comes to a check that it planned leaves it as failed, with no word about why.
    """
    record = instance.get_latest_asset_check_evaluation_record(key)
    if record is None:
        return False
    if record.status.value == "PLANNED":
        run = instance.get_run_by_id(record.run_id)
        return run is not None and not run.is_finished
    event = record.event.get_dagster_event() if record.event else None
    shown = event.asset_check_evaluation_data.metadata.get("paused") if event else None
    is_same = (record.status.value == "SUCCEEDED") is passed and (shown.value if shown else []) == paused
    return is_same and time.time() - record.create_timestamp < REPEAT_SECONDS


def _mending(
    cursor: _Cursor, entry: Topic, hops: list[str], found: list[Hop], instance: dg.DagsterInstance
) -> Iterator[dg.RunRequest]:
    """A run from the first stale hop on, for each stale topic of an entry that asks for it; not beside another run of
    it, and not more often than the topic may lag."""
    if entry.when_stale != "run":
        return
    now = time.time()
    for topic in dict.fromkeys(hop.topic for hop in found):
        stale = first_stale([hop for hop in found if hop.topic == topic])
        is_paused = any(hop.paused for hop in found if hop.topic == topic)
        if stale is None or is_paused or now - cursor.asked.get(topic, 0) < entry.max_lag_seconds:
            continue
        keys = [dg.AssetKey([hop, entry.name]) for hop in hops[hops.index(stale.asset) :]]
        if _in_flight(instance, keys, topic if partitions(entry) else None):
            continue
        cursor.asked[topic] = now
        yield dg.RunRequest(
            asset_selection=keys,
            partition_key=topic if partitions(entry) else None,
            tags={"lakehouse/reason": f"stale: {NAMES[stale.asset]}"},
        )


def _in_flight(instance: dg.DagsterInstance, keys: list[dg.AssetKey], partition: str | None) -> bool:
    unfinished = dg.RunsFilter(statuses=list(IN_PROGRESS))
    return any(
        set(keys) & set(run.asset_selection or ()) and partition in (None, run.tags.get("dagster/partition"))
        for run in instance.get_runs(filters=unfinished)
    )
