"""Automation conditions of assets and checks."""

from functools import cache

import dagster as dg

from lakehouse.config.topic import Topic

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
