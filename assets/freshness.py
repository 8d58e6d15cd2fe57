"""Freshness in Dagster: a check on the asset of each hop, and Dagster's own policy on topics."""

from datetime import timedelta
from typing import Any

import dagster as dg

from assets.entry import topics_of
from assets.standing import Standing
from lakehouse.config.checks import FRESH
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.markdown import escaped
from lakehouse.readers.freshness import NAMES, Hop, summary
from lakehouse.readers.hops import measure, needs


def freshness_check(config: Config, entry: Topic, hop: str) -> Standing:
    """`fresh` on the asset of a hop; of a route, it is about all of its topics."""

    def fresh(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        topics = topics_of(entry, context.instance)
        found = [measure(hop, config, topic, context.resources) for topic in topics]
        return dg.AssetCheckResult(
            check_name=FRESH,
            asset_key=[hop, entry.name],
            passed=all(one.fresh for one in found),
            description=escaped(summary(found)),
            metadata=numbers(entry, found),
        )

    description = f"{NAMES[hop]}: nothing has waited longer than {entry.max_lag_seconds:,} s."
    return Standing(FRESH, description, needs(hop), fresh)


def numbers(entry: Topic, found: list[Hop]) -> dict[str, Any]:
    """What Dagster shows and plots of a verdict: the lag of the topic that is furthest behind, where any is known."""
    seconds = [hop.behind.seconds for hop in found if hop.behind]
    return {
        **({"lag_seconds": round(max(seconds), 1)} if seconds else {}),
        "max_lag_seconds": entry.max_lag_seconds,
        "stale": [hop.topic for hop in found if not hop.fresh],
        "unknown": [hop.topic for hop in found if hop.failure],
        "paused": [hop.topic for hop in found if hop.paused],
    }


def idle_policy(entry: Topic) -> dg.FreshnessPolicy | None:
    """Whether the producer has stopped: Dagster's own policy, which tells the truth of a topic and of nothing else."""
    if entry.max_idle_seconds is None:
        return None
    return dg.FreshnessPolicy.time_window(fail_window=timedelta(seconds=entry.max_idle_seconds))
