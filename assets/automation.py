"""When an asset runs without anybody asking."""

from __future__ import annotations

from functools import cache

import dagster as dg

from lakehouse.config.topic import Topic

AC = dg.AutomationCondition


@cache
def on_upstream_change() -> dg.AutomationCondition:
    """Request a run for every upstream change, including one that lands during a run, and once more after a failure.

    Unlike `AutomationCondition.eager()`, which never requests an asset whose upstream had data when it was first
    deployed, and forgets a change that arrives between a request and the next tick: by then the request resets what
    waits (`since`), the change included. Here a tick that sees a change resets nothing. `newly_true()` bounds the price
    of a permanent failure to one more run; a bare `execution_failed()` would ask at every tick, for ever.
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
    """As `on_upstream_change`; of an entry that a stream takes on and on, nothing: its runs would race the stream, and
    of two writers one does its work for nothing."""
    return None if entry.continuous else on_upstream_change()


@cache
def with_the_asset() -> dg.AutomationCondition:
    """For a check: whenever its asset runs, and in the same run.

    Not `on_upstream_change`, whose wait for what is in progress keeps a check out of its asset's run; and a blocking
    check without a condition would never run, so that nothing after it would either.
    """
    return AC.any_deps_updated().with_label("with_the_asset")


@cache
def hourly() -> dg.AutomationCondition:
    """For a check of a table that a stream commits to every few seconds: each would cost more than the commit."""
    return AC.cron_tick_passed("17 * * * *").with_label("hourly")
