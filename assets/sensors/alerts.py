"""Alerts: a message for each run that fails, and for each check that begins to fail or holds again.

Runs and checks apart, because a failed check that does not block leaves its run green, and a sensor may report a check
without a run. Messages hold names, sentences and counts, never the message of an unforeseen error: it may quote rows.
"""

import json
import time
from collections.abc import Iterator, Sequence
from urllib.parse import quote, urlencode

import dagster as dg

from lakehouse.core.errors import Unreachable
from lakehouse.core.markdown import plain
from resources.webhook import Webhook

OFF = "No webhook is configured (`alerts` in lakehouse.yaml): no alerts are sent"
INTERVAL_SECONDS = 30

MOST_EVENTS = 500
"""Check evaluations that a tick looks at. The rest waits for the next one, as it does after `MOST_SECONDS`."""
MOST_SECONDS = 15
"""After so long a tick sends no more: Dagster ends it after 60 s, and the last send may take 45."""
MOST_FAILING = 1000
"""Checks remembered as failing. Of more, the oldest are forgotten, and told of again when they fail again."""
MOST_LISTED = 10
"""Steps, assets or numbers in one message."""

RESTARTED = "lakehouse/restarted"
"""The tag of runs that a sensor starts again whenever one ends."""
LASTING_SECONDS = 600
"""Such a run that lasted so long worked."""


class Sending:
    """The messages of one tick, of which those that were taken are never sent again.

    Attributes: `sent` counts them.
    """

    def __init__(self, context: dg.SensorEvaluationContext, alerts: Webhook) -> None:
        self.sent = 0
        self._context, self._alerts = context, alerts
        self._until = time.monotonic() + MOST_SECONDS

    def took(self, headline: str, lines: Sequence[str], path: str) -> bool:
        """Send a message; whether it was taken. Where not, the rest waits for the next tick.

        Raises: Unreachable when it is the first, so that the tick fails and its cursor stays.
        """
        try:
            self._alerts.send(headline, lines, path)
        except Unreachable as error:
            if not self.sent:
                raise
            self._context.log.error(f"{self.sent} messages were sent, the rest waits for the next tick. {error}")
            return False
        self.sent += 1
        return True

    @property
    def is_late(self) -> bool:
        """Whether the rest has to wait for the next tick."""
        return time.monotonic() > self._until


@dg.run_failure_sensor(
    name="alert_failed_runs",
    description="Sends a message for each run that fails.",
    monitor_all_code_locations=False,
    minimum_interval_seconds=INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def alert_failed_runs(context: dg.RunFailureSensorContext, alerts: Webhook) -> dg.SkipReason | None:
    """One message a failed run: what ran, which steps failed and why.

    Raises: DagsterError when the webhook does not take it. Dagster moves the cursor of a run status sensor past a run
    whose alert failed (dagster/_daemon/sensor.py, _handle_run_reactions), which would lose it; only its own errors fail
    the whole tick, and the next one begins with the same run.
    """
    if not alerts.url:
        return dg.SkipReason(OFF)
    run = context.dagster_run
    if _fails_again(context.instance, run):
        return dg.SkipReason(f"Run {run.run_id} failed as the one before it did, of which a message was sent")
    assets = _listed(sorted(key.to_user_string() for key in run.asset_selection or ()))
    hidden = run.job_name.startswith("__")  # Dagster's own name for a selection of assets
    lines = [*_failures(context), *([f"Assets: {assets}"] if assets and not hidden else []), f"Run {run.run_id}"]
    try:
        alerts.send(f"Run failed: {assets if assets and hidden else run.job_name}", lines, f"/runs/{run.run_id}")
    except Unreachable as error:
        raise dg.DagsterError(str(error)) from error
    return None


@dg.sensor(
    name="alert_failed_checks",
    description="Sends a message when a check begins to fail, and when it holds again.",
    minimum_interval_seconds=INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def alert_failed_checks(context: dg.SensorEvaluationContext, alerts: Webhook) -> dg.SensorResult:
    """One message when a check begins to fail, one when it holds again, none while it stays as it is.

    The cursor is the last evaluation seen in the event log, and the checks that failed when they were last evaluated.
    The first tick begins at the end of the log.

    Raises: Unreachable when the webhook does not take the tick's first message; the cursor stays. When it fails later,
    the cursor stands behind what was delivered, so that nothing is sent twice, and the next tick is the one to fail.
    """
    log = context.instance.event_log_storage
    if not (context.cursor and alerts.url):
        said = "Begins at the end of the event log" if alerts.url else OFF
        return _result(log.get_maximum_record_id() or 0, {}, said)
    seen = json.loads(context.cursor)
    after, failing = seen["after"], dict.fromkeys(seen["failing"])
    # Not instance.get_event_records: over SQLite it cannot read checks of all runs by id, and it is deprecated.
    events = log.get_logs_for_all_runs_by_log_id(after, dg.DagsterEventType.ASSET_CHECK_EVALUATION, MOST_EVENTS)
    sending = Sending(context, alerts)
    for storage_id, entry in events.items():
        evaluation = entry.get_dagster_event().asset_check_evaluation_data
        if _is_ours(context, evaluation) and _turned(evaluation, failing):
            if not sending.took(*_verdict(evaluation)):
                break
            _remember(evaluation, failing)
        after = storage_id
        if sending.is_late:
            break
    return _result(after, failing, f"Messages sent: {sending.sent}" if sending.sent else "No check changed")


def _result(after: int, failing: dict[str, None], said: str) -> dg.SensorResult:
    """The tick's outcome, with the cursor that the next one goes on from."""
    cursor = {"after": after, "failing": list(failing)[-MOST_FAILING:]}
    return dg.SensorResult(skip_reason=said, cursor=json.dumps(cursor))


def _is_ours(context: dg.SensorEvaluationContext, evaluation: dg.AssetCheckEvaluation) -> bool:
    """Whether the asset is of this code location: other projects may share the instance, and so the log.

    Not whether the check is: a stream also reports of topics that are not declared as `continuous`.
    """
    repository = context.repository_def
    return repository is None or repository.asset_graph.has(evaluation.asset_key)


def _turned(evaluation: dg.AssetCheckEvaluation, failing: dict[str, None]) -> bool:
    """Whether this evaluation differs from the check's last one; a check never seen is taken to have passed."""
    return evaluation.passed == (_name(evaluation) in failing)


def _remember(evaluation: dg.AssetCheckEvaluation, failing: dict[str, None]) -> None:
    if evaluation.passed:
        del failing[_name(evaluation)]
    else:
        failing[_name(evaluation)] = None


def _name(evaluation: dg.AssetCheckEvaluation) -> str:
    """A check as people name it; the topics of a route are partitions of one asset, each with its own verdict."""
    partition = f" [{evaluation.partition}]" if evaluation.partition else ""
    return f"{evaluation.check_name} of {evaluation.asset_key.to_user_string()}{partition}"


def _verdict(evaluation: dg.AssetCheckEvaluation) -> tuple[str, list[str], str]:
    """Headline, lines and link of a check that turned."""
    turned = "Check holds again" if evaluation.passed else f"Check failed ({evaluation.severity.value})"
    lines = [line for line in (plain(evaluation.description or ""), _numbers(evaluation)) if line]
    page = urlencode({"view": "checks", "checkDetail": evaluation.check_name})
    path = "/".join(quote(part, safe="") for part in evaluation.asset_key.path)
    return f"{turned}: {_name(evaluation)}", lines, f"/assets/{path}?{page}"


def _numbers(evaluation: dg.AssetCheckEvaluation) -> str:
    """The numbers among the metadata. Texts and tables stay behind: they may be samples of rows."""
    kinds = (dg.IntMetadataValue, dg.FloatMetadataValue)
    numbers = {name: value.value for name, value in evaluation.metadata.items() if isinstance(value, kinds)}
    return _listed([f"{name} {number:,}" for name, number in numbers.items() if number is not None])


def _fails_again(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether a run that is started again for ever failed soon, after one that failed: nothing worked in between."""
    if RESTARTED not in run.tags:
        return False
    [record] = instance.get_run_records(dg.RunsFilter(run_ids=[run.run_id]))
    lasted = (record.end_time or time.time()) - record.start_time if record.start_time else 0.0
    before = instance.get_runs(dg.RunsFilter(job_name=run.job_name), cursor=run.run_id, limit=1)
    return lasted < LASTING_SECONDS and bool(before) and before[0].status == dg.DagsterRunStatus.FAILURE


def _failures(context: dg.RunFailureSensorContext) -> Iterator[str]:
    """Each failed step with its reason; where no step failed, what Dagster says about the run."""
    events = context.get_step_failure_events()
    for event in events[:MOST_LISTED]:
        yield f"{event.step_key}: {_reason(event)}"
    if len(events) > MOST_LISTED:
        yield f"and {len(events) - MOST_LISTED:,} steps more"
    if not events:
        yield (context.failure_event.message or "No reason is known").partition("\n")[0]


def _reason(event: dg.DagsterEvent) -> str:
    """The sentence of a `dg.Failure` (assets/failures.py makes them of this project's errors); of others the type."""
    failure = event.step_failure_data
    if failure.user_failure_data and failure.user_failure_data.description:
        return failure.user_failure_data.description
    error = failure.error
    while error and error.cause:
        error = error.cause
    return f"{error.cls_name if error else 'an error'}, see the run's log"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more
