"""The check `streaming` of each table: it fails with a reason while a stream cannot ingest or publish the table."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import dagster as dg
from dagster import AssetCheckEvaluation
from dagster._core.storage.asset_check_execution_record import COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES

from assets.alert_causes import SYSTEM
from assets.entry import hourly
from assets.factories import CheckDefinition
from lakehouse.config.checks import STREAMING as CHECK
from lakehouse.config.model import Topic
from lakehouse.core.errors import failing_system, is_transient, reason
from lakehouse.core.text import escaped, plain

KAFKA = ("stream", "kafka_clients")
"""The asset that represents Kafka, which all topics of a stream need."""

PATIENCE_SECONDS = 60.0
"""Time for which a transient failure is not reported."""

REPEAT_SECONDS = 600.0
"""Interval at which a lasting failure is reported again, because a manual run of the check may have replaced it."""

MAX_NAMED = 5
"""Maximum number of failures that one verdict names."""

PASSED = "No stream reports a failure"
"""Description of the check when it passes."""


@dataclass
class _Failure:
    since: float
    reason: str = ""
    system: str = ""
    is_reported: bool = False


@dataclass
class _Asset:
    """State of one asset: its faults by part, and the parts last reported as failing (None before any report)."""

    faults: dict[str, _Failure] = field(default_factory=dict)
    reported: set[str] | None = None
    at: float = 0.0


class Verdicts:
    """Tracks the failures of the assets that a stream serves and reports the check `streaming` when a verdict changes.

    Permanent failures are reported at once, transient ones after PATIENCE_SECONDS. The first success of each asset is
    reported too, because an earlier stream may have left the check failed.

    Args:
        report: Called with each verdict.
        clock: Returns the current time in seconds.
    """

    def __init__(self, report: Callable[[AssetCheckEvaluation], None], clock: Callable[[], float] = time.monotonic):
        self._report, self._clock = report, clock
        self._assets: dict[tuple[str, ...], _Asset] = {}

    def failed(self, asset: Sequence[str], part: str, error: Exception) -> None:
        """Note that a part of an asset failed: a topic of a route, or the whole asset if `part` is empty."""
        known, now = self._known(asset), self._clock()
        fault = known.faults.setdefault(part, _Failure(now))
        fault.reason, fault.system = reason(error), failing_system(error)
        fault.is_reported = fault.is_reported or not is_transient(error) or now - fault.since >= PATIENCE_SECONDS
        failing = {part for part, fault in known.faults.items() if fault.is_reported}
        if failing and (failing != known.reported or now - known.at >= REPEAT_SECONDS):
            self._publish(asset, known, failing)

    def passed(self, asset: Sequence[str], part: str) -> None:
        """Note that a part of an asset succeeded."""
        known = self._known(asset)
        known.faults.pop(part, None)
        failing = {part for part, fault in known.faults.items() if fault.is_reported}
        if failing != known.reported and (failing or not known.faults):
            self._publish(asset, known, failing)

    def _known(self, asset: Sequence[str]) -> _Asset:
        return self._assets.setdefault(tuple(asset), _Asset())

    def _publish(self, asset: Sequence[str], known: _Asset, failing: set[str]) -> None:
        known.reported, known.at = failing, self._clock()
        named = {part: known.faults[part].reason for part in sorted(failing)[:MAX_NAMED]}
        text = "; ".join(f"{part}: {why}" if part else why for part, why in named.items())
        systems = {known.faults[part].system for part in failing}
        system = systems.pop() if len(systems) == 1 else ""
        more = f"; and {len(failing) - MAX_NAMED:,} more" if len(failing) > MAX_NAMED else ""
        self._report(
            AssetCheckEvaluation(
                asset_key=dg.AssetKey(list(asset)),
                check_name=CHECK,
                passed=not failing,
                severity=dg.AssetCheckSeverity.ERROR,
                description=escaped(f"{text}{more}") if failing else PASSED,
                metadata={SYSTEM: system} if system else {},
            )
        )


def streaming_check(entry: Topic, stage: str) -> CheckDefinition:
    """Return the check `streaming` for a stage of a continuous entry.

    Streams report it. A manual run of the check repeats the last report, and passes if a run has materialized the asset
    since.
    """

    def streaming(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        failing = failure(context.instance, (entry.name, stage))
        return dg.AssetCheckResult(
            check_name=CHECK, asset_key=[entry.name, stage], passed=not failing, description=escaped(failing) or PASSED
        )

    return CheckDefinition(CHECK, "Streams can ingest and publish the table.", frozenset(), streaming)


def kafka_check() -> dg.Definitions:
    """Return an asset for Kafka with its check: an outage is reported once, not once per topic."""
    spec = dg.AssetSpec(KAFKA, description="Kafka, as seen by streams.", group_name=KAFKA[0], kinds={"kafka"})

    @dg.asset_check(asset=spec.key, name=CHECK, automation_condition=hourly(), description="Streams can reach Kafka.")
    def kafka_is_reached(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        failing = failure(context.instance, KAFKA)
        return dg.AssetCheckResult(passed=not failing, description=escaped(failing) or PASSED)

    return dg.Definitions(assets=[spec], asset_checks=[kafka_is_reached])


def failure(instance: dg.DagsterInstance, asset: Collection[str], check: str = CHECK) -> str:
    """Return the reason for which a check reported by a stream fails; empty if it passed or was never reported.

    A later materialization by a run clears the failure, because the stream that reported it may have ended.
    """
    key = dg.AssetKey(list(asset))
    # Planned evaluations are ignored: the run has not evaluated the check yet, or died before.
    records = instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(key, check), limit=1, status={*COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES}
    )
    if not records or records[0].status.value == "SUCCEEDED" or records[0].event is None:
        return ""
    if records[0].run_id and check != CHECK:
        # A failure that a run reported is the run's failure, not a stream's.
        return ""
    materialization = instance.get_latest_materialization_event(key)
    if materialization and materialization.run_id and materialization.timestamp > records[0].event.timestamp:
        return ""
    evaluation = records[0].event.get_dagster_event().asset_check_evaluation_data
    return plain(evaluation.description or "it failed")
