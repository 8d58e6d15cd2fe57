"""Dagster attributes of an entry of lakehouse.yaml: a topic, or a route, whose assets have one partition per topic."""

import importlib.util
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

import dagster as dg

from lakehouse.config.model import Config, Route, Topic
from lakehouse.config.sources import Derived
from lakehouse.core.errors import ConfigError
from lakehouse.core.tables import naming


def partitions(entry: Topic) -> dg.DynamicPartitionsDefinition | None:
    """Return the partitions of a route's assets, which the sensor `topic_offsets` adds; None for a topic."""
    return dg.DynamicPartitionsDefinition(name=f"topics_{entry.name}") if isinstance(entry, Route) else None


def group(entry: Topic) -> str:
    """Return the group name of an entry's assets, which also names its pools: the table or the route."""
    return naming.table_name(entry.name) if isinstance(entry, Route) else entry.table


def code_links(config: Config, entry: Topic) -> dict[str, dg.CodeReferencesMetadataValue]:
    """Return links to the declaration of an entry and, for a derived topic, to the source of its transform."""
    file = entry.file or config.file
    places = [(file, entry.line or 1, file.name)]
    if isinstance(entry.source, Derived):
        module, _, function = entry.source.transform.partition(":")
        spec = importlib.util.find_spec(module)
        if spec and spec.origin:
            text = Path(spec.origin).read_text().partition(f"def {function}(")[0]
            places.append((Path(spec.origin), text.count("\n") + 1, entry.source.transform))
    with warnings.catch_warnings():
        # Code references are beta in Dagster 1.13.
        warnings.simplefilter("ignore", dg.BetaWarning)
        links = [dg.LocalFileCodeReference(file_path=str(f), line_number=line, label=name) for f, line, name in places]
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=links)}


def topics_of(entry: Topic, instance: dg.DagsterInstance) -> list[Topic]:
    """Return the topics of an entry: the topic itself, or the topics that the route has so far."""
    if not isinstance(entry, Route):
        return [entry]
    topics: list[Topic | None] = []
    for name in instance.get_dynamic_partitions(f"topics_{entry.name}"):
        # After a change of the route's template, one invalid table name must not hide the other topics.
        with suppress(ConfigError):
            topics.append(entry.topic_named(name))
    return [topic for topic in topics if topic]


def topic_of(entry: Topic, context: dg.AssetExecutionContext) -> Topic:
    """Return the topic of a run."""
    if not isinstance(entry, Route):
        return entry
    topic = entry.topic_named(context.partition_key)
    if topic is None:
        raise ConfigError(
            f"The pattern of route '{entry.name}' no longer matches topic '{context.partition_key}'. Nothing was "
            f"changed. Delete the partition"
        )
    return topic


AC = dg.AutomationCondition


@cache
def on_upstream_change() -> dg.AutomationCondition:
    """Return the condition that requests a run after every upstream change, and one more run after a failure.

    It includes changes that arrive during a run. `AutomationCondition.eager()` does not fit: it never requests an asset
    whose upstream had data when it was first deployed, and it loses a change that arrives between a request and the
    next tick, because the request resets the pending change (`since`). Here a tick that sees a change resets nothing.
    `newly_true()` limits a permanent failure to one more run; a bare `execution_failed()` would request a run at every
    tick.
    """
    changed = AC.any_deps_updated()
    waiting = (AC.newly_missing() | changed).since(AC.newly_requested() & ~changed)
    return (
        AC.in_latest_time_window()
        & (waiting | AC.execution_failed().newly_true())
        & AC.all_deps_blocking_checks_passed()
        & ~AC.any_deps_missing()
        & ~AC.any_deps_in_progress()
        & ~AC.in_progress()
    ).with_label("on_upstream_change")


def unless_continuous(entry: Topic) -> dg.AutomationCondition | None:
    """Return `on_upstream_change`, or None for a continuous entry.

    Runs of a continuous entry would race the stream, and one of two writers loses its commit.
    """
    return None if entry.continuous else on_upstream_change()


@cache
def when_missing() -> dg.AutomationCondition:
    """Return the condition that requests the first run of a nightly asset together with the first run of its table.

    Without it, the page of the asset would be empty until the night. `AutomationCondition.on_missing()` does not fit:
    it never requests an asset that exists when it is first evaluated. With `newly_true()`, a failure does not request a
    run at every tick: the nightly schedule repeats it.
    """
    missing = AC.missing() & ~AC.any_deps_missing()
    return (
        missing.newly_true().since(AC.newly_requested())
        & missing  # a tick during the run sees the table without the asset, too
        & ~AC.any_deps_in_progress()
        & ~AC.in_progress()
    ).with_label("when_missing")


@cache
def with_the_asset() -> dg.AutomationCondition:
    """Return the condition that runs a check in the same run as its asset.

    `on_upstream_change` does not fit: it waits for dependencies in progress, which keeps a check out of its asset's
    run. A blocking check without a condition would never run, and would block all assets downstream.
    """
    return AC.any_deps_updated().with_label("with_the_asset")


@cache
def hourly() -> dg.AutomationCondition:
    """Return the condition for checks of streamed tables: one check per commit would cost more than the commit."""
    return AC.cron_tick_passed("17 * * * *").with_label("hourly")


@cache
def hourly_until_passed() -> dg.AutomationCondition:
    """Return the condition for hourly checks that have passed for good once they pass for the newest materialization.

    Otherwise a table without new records would resume a warehouse every hour.
    """
    return (hourly() & ~AC.check_passed()).with_label("hourly_until_passed")
