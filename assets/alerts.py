"""Sensors that send an alert for each failed run, and for each check that starts to fail or recovers.

Runs and checks have separate alerts, because a failed check that does not block leaves its run successful, and a sensor
may report a check without a run. Alerts contain names, counts and this project's messages, but never the message of
another error, which may quote rows.
"""

import json
import time
from collections.abc import Iterator, Sequence
from urllib.parse import quote, urlencode

import dagster as dg

from lakehouse.core.errors import Unreachable
from lakehouse.core.text import plain
from resources.webhook import Webhook

OFF = "No webhook is configured (`alerts` in lakehouse.yaml): no alerts are sent"
INTERVAL_SECONDS = 30

MAX_EVENTS = 500
"""Maximum number of check evaluations per tick. The next tick processes the rest."""
MAX_SEND_SECONDS = 15
"""Time after which a tick sends no further message: Dagster's timeout is 60 s, and the last send may take 45 s."""
MAX_FAILING = 1000
"""Maximum number of checks remembered as failing. Beyond it, the oldest are forgotten and alert again."""
MAX_LISTED = 10
"""Maximum number of steps, assets or numbers in one message."""

RESTARTED = "lakehouse/restarted"
"""Tag of runs that a sensor restarts whenever one ends."""
LASTING_SECONDS = 600
"""Duration after which a run with the tag RESTARTED counts as having worked."""


class TickMessages:
    """The messages of one tick. A delivered message is never sent again."""

    def __init__(self, context: dg.SensorEvaluationContext, alerts: Webhook) -> None:
        self.sent = 0
        self._context, self._alerts = context, alerts
        self._until = time.monotonic() + MAX_SEND_SECONDS

    def try_send(self, headline: str, lines: Sequence[str], path: str) -> bool:
        """Send a message, and return whether it was delivered. If not, the next tick sends the rest.

        Raises:
            Unreachable: The first message was not delivered, so that the tick fails and its cursor stays.
        """
        try:
            self._alerts.send(headline, lines, path)
        except Unreachable as error:
            if not self.sent:
                raise
            self._context.log.error(f"{error}. {self.sent} messages were sent; the next tick sends the rest")
            return False
        self.sent += 1
        return True

    @property
    def is_late(self) -> bool:
        """True once the time of the tick is used up."""
        return time.monotonic() > self._until


@dg.run_failure_sensor(
    name="alert_failed_runs",
    description="Sends a message for each run that fails.",
    monitor_all_code_locations=False,
    minimum_interval_seconds=INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def alert_failed_runs(context: dg.RunFailureSensorContext, alerts: Webhook) -> dg.SkipReason | None:
    """Send one message per failed run, with its assets, its failed steps and their reasons.

    Raises:
        DagsterError: The message was not delivered. Dagster moves the cursor of a run status sensor past a run whose
            alert raised another error (dagster/_daemon/sensor.py, _handle_run_reactions), which would lose the alert.
            A DagsterError fails the whole tick, and the next tick starts with the same run.
    """
    if not alerts.url:
        return dg.SkipReason(OFF)
    run = context.dagster_run
    if _fails_again(context.instance, run):
        return dg.SkipReason(f"Run {run.run_id} failed like the previous run, for which an alert was sent")
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
    description="Sends a message when a check starts to fail and when it recovers.",
    minimum_interval_seconds=INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def alert_failed_checks(context: dg.SensorEvaluationContext, alerts: Webhook) -> dg.SensorResult:
    """Send one message when a check starts to fail and one when it recovers.

    The cursor contains the last processed evaluation of the event log and the checks whose last evaluation failed. The
    first tick starts at the end of the log.

    Raises:
        Unreachable: The tick's first message was not delivered; the cursor stays. If a later message is not delivered,
            the cursor moves past the delivered ones, so that none is sent twice, and the next tick fails.
    """
    log = context.instance.event_log_storage
    if not (context.cursor and alerts.url):
        return _result(
            log.get_maximum_record_id() or 0, [], "Starts at the end of the event log" if alerts.url else OFF
        )
    cursor = json.loads(context.cursor)
    after, failing = cursor["after"], cursor["failing"]
    # instance.get_event_records is deprecated, and cannot read checks of all runs by id from SQLite.
    events = log.get_logs_for_all_runs_by_log_id(after, dg.DagsterEventType.ASSET_CHECK_EVALUATION, MAX_EVENTS)
    sending = TickMessages(context, alerts)
    for storage_id, entry in events.items():
        evaluation = entry.get_dagster_event().asset_check_evaluation_data
        name = _name(evaluation)
        # A new check counts as passed before.
        if _is_of_location(context, evaluation) and evaluation.passed == (name in failing):
            if not sending.try_send(*_message(evaluation)):
                break
            failing = [other for other in failing if other != name] if evaluation.passed else [*failing, name]
        after = storage_id
        if sending.is_late:
            break
    return _result(after, failing, f"Messages sent: {sending.sent}" if sending.sent else "No check changed")


def _result(after: int, failing: list[str], message: str) -> dg.SensorResult:
    cursor = {"after": after, "failing": failing[-MAX_FAILING:]}
    return dg.SensorResult(skip_reason=message, cursor=json.dumps(cursor))


def _is_of_location(context: dg.SensorEvaluationContext, evaluation: dg.AssetCheckEvaluation) -> bool:
    """Return whether the asset is in this code location: other projects may share the instance and its event log.

    The check itself may be undeclared, because a stream also reports checks of topics that are not `continuous`.
    """
    repository = context.repository_def
    return repository is None or repository.asset_graph.has(evaluation.asset_key)


def _name(evaluation: dg.AssetCheckEvaluation) -> str:
    """Return the name of a check in messages. The topics of a route are partitions, each with its own verdict."""
    partition = f" [{evaluation.partition}]" if evaluation.partition else ""
    return f"{evaluation.check_name} of {evaluation.asset_key.to_user_string()}{partition}"


def _message(evaluation: dg.AssetCheckEvaluation) -> tuple[str, list[str], str]:
    """Return headline, lines and link of the message for a check whose verdict changed."""
    change = "Check recovered" if evaluation.passed else f"Check failed ({evaluation.severity.value})"
    lines = [line for line in (plain(evaluation.description or ""), _numbers(evaluation)) if line]
    page = urlencode({"view": "checks", "checkDetail": evaluation.check_name})
    path = "/".join(quote(part, safe="") for part in evaluation.asset_key.path)
    return f"{change}: {_name(evaluation)}", lines, f"/assets/{path}?{page}"


def _numbers(evaluation: dg.AssetCheckEvaluation) -> str:
    """Return the numbers of the metadata. Texts and tables are omitted, because they may be samples of rows."""
    kinds = (dg.IntMetadataValue, dg.FloatMetadataValue)
    numbers = {name: value.value for name, value in evaluation.metadata.items() if isinstance(value, kinds)}
    return _listed([f"{name} {number:,}" for name, number in numbers.items() if number is not None])


def _fails_again(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Return whether a restarted run failed within LASTING_SECONDS after the previous run failed too."""
    if RESTARTED not in run.tags:
        return False
    [record] = instance.get_run_records(dg.RunsFilter(run_ids=[run.run_id]))
    lasted = (record.end_time or time.time()) - record.start_time if record.start_time else 0.0
    previous = instance.get_runs(dg.RunsFilter(job_name=run.job_name), cursor=run.run_id, limit=1)
    return lasted < LASTING_SECONDS and bool(previous) and previous[0].status == dg.DagsterRunStatus.FAILURE


def _failures(context: dg.RunFailureSensorContext) -> Iterator[str]:
    """Yield each failed step with its reason, or Dagster's message for the run if no step failed."""
    events = context.get_step_failure_events()
    for event in events[:MAX_LISTED]:
        yield f"{event.step_key}: {_reason(event)}"
    if len(events) > MAX_LISTED:
        yield f"and {len(events) - MAX_LISTED:,} more steps"
    if not events:
        yield (context.failure_event.message or "No reason is known").partition("\n")[0]


def _reason(event: dg.DagsterEvent) -> str:
    """Return the description of a `dg.Failure`, which assets/factories.py raises, or the type of any other error."""
    failure = event.step_failure_data
    if failure.user_failure_data and failure.user_failure_data.description:
        return failure.user_failure_data.description
    error = failure.error
    while error and error.cause:
        error = error.cause
    return f"{error.cls_name if error else 'an error'}, see the run's log"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more
