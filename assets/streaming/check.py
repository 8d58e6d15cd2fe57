"""The check `streaming`: a stream can serve a table; where it cannot, the check has the reason."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import dagster as dg
from dagster import AssetCheckEvaluation

from assets.automation import hourly
from assets.standing import Standing
from assets.streaming.results import CHECK, KAFKA, failure
from lakehouse.config.topic import Topic
from lakehouse.core.errors import is_transient, reason
from lakehouse.core.markdown import escaped

PATIENCE_SECONDS = 60.0
"""How long a failure that may heal by itself is not reported."""

REPEAT_SECONDS = 600.0
"""A failure that lasts is reported again after so long: somebody may have run the check meanwhile."""

MOST_NAMED = 5
"""Failures that one verdict names."""

HOLDS = "No stream reports a failure"


@dataclass
class _Fault:
    since: float
    reason: str = ""
    is_reported: bool = False


@dataclass
class _Asset:
    """What is known of one asset: `faults` by topic of a route, and those `reported` last (None before any report)."""

    faults: dict[str, _Fault] = field(default_factory=dict)
    reported: set[str] | None = None
    at: float = 0.0


class Verdicts:
    """The check `streaming` of the assets that a stream serves, reported when its verdict changes.

    What needs a person is reported at once; what may heal by itself, when it has failed for a minute. The first success
    of each asset is reported, too: an earlier stream may have left the check as failed.

    Args:
        report: Takes each verdict.
        clock: The time now, in seconds.
    """

    def __init__(self, report: Callable[[AssetCheckEvaluation], None], clock: Callable[[], float] = time.monotonic):
        self._report, self._clock = report, clock
        self._assets: dict[tuple[str, ...], _Asset] = {}

    def failed(self, asset: Sequence[str], part: str, error: Exception) -> None:
        """Note that a part of an asset's work failed: a topic of a route, or the whole where `part` is empty."""
        known, now = self._known(asset), self._clock()
        fault = known.faults.setdefault(part, _Fault(now))
        fault.reason = reason(error)
        fault.is_reported = fault.is_reported or not is_transient(error) or now - fault.since >= PATIENCE_SECONDS
        failing = {part for part, fault in known.faults.items() if fault.is_reported}
        if failing and (failing != known.reported or now - known.at >= REPEAT_SECONDS):
            self._publish(asset, known, failing)

    def passed(self, asset: Sequence[str], part: str) -> None:
        """Note that this part of an asset's work was done."""
        known = self._known(asset)
        known.faults.pop(part, None)
        failing = {part for part, fault in known.faults.items() if fault.is_reported}
        if failing != known.reported and (failing or not known.faults):
            self._publish(asset, known, failing)

    def _known(self, asset: Sequence[str]) -> _Asset:
        return self._assets.setdefault(tuple(asset), _Asset())

    def _publish(self, asset: Sequence[str], known: _Asset, failing: set[str]) -> None:
        known.reported, known.at = failing, self._clock()
        named = {part: known.faults[part].reason for part in sorted(failing)[:MOST_NAMED]}
        text = "; ".join(f"{part}: {why}" if part else why for part, why in named.items())
        more = f"; and {len(failing) - MOST_NAMED:,} more" if len(failing) > MOST_NAMED else ""
        self._report(
            AssetCheckEvaluation(
                asset_key=dg.AssetKey(list(asset)),
                check_name=CHECK,
                passed=not failing,
                severity=dg.AssetCheckSeverity.ERROR,
                description=escaped(f"{text}{more}") if failing else HOLDS,
            )
        )


def streaming_check(entry: Topic, hop: str) -> Standing:
    """`streaming` on the asset of a hop, for entries that are continuous. The stream reports it; run without one, it
    repeats what was reported, and holds when a run has materialized the asset since."""

    def streaming(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        failing = failure(context.instance, (hop, entry.name))
        return dg.AssetCheckResult(
            check_name=CHECK, asset_key=[hop, entry.name], passed=not failing, description=escaped(failing) or HOLDS
        )

    return Standing(CHECK, "The stream can serve it. Where it cannot, this says why.", frozenset(), streaming)


def kafka_check() -> dg.Definitions:
    """What all topics of a stream need, as an asset of its own: Kafka fails once, and not once a topic."""
    spec = dg.AssetSpec(KAFKA, description="Kafka, as streams reach it.", group_name=KAFKA[0], kinds={"kafka"})

    @dg.asset_check(asset=spec.key, name=CHECK, automation_condition=hourly(), description="Streams can reach Kafka.")
    def kafka_is_reached(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        failing = failure(context.instance, KAFKA)
        return dg.AssetCheckResult(passed=not failing, description=escaped(failing) or HOLDS)

    return dg.Definitions(assets=[spec], asset_checks=[kafka_is_reached])
