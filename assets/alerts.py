"""Alerts for each check that starts to fail or recovers.

Runs and checks have separate alerts, because a failed check that does not block leaves its run successful, and a sensor
may report a check without a run. Alerts contain names, counts and this project's messages, but never the message of
another error, which may quote rows.
"""

import json
import time
from collections.abc import Sequence
from urllib.parse import quote, urlencode

import dagster as dg

from assets.alert_causes import SYSTEM, Causes, cause_of
from lakehouse.config.checks import STREAMING
from lakehouse.core.errors import Unreachable
from lakehouse.core.text import plain
from resources.webhook import Webhook

OFF = "No webhook is configured (`alerts` in lakehouse.yaml): no alerts are sent"
STARTS = "Starts at the end of the event log"
INTERVAL_SECONDS = 30

MAX_EVENTS = 500
"""Maximum number of check evaluations per tick. The next tick processes the rest."""
MAX_SEND_SECONDS = 15
"""Time after which a tick sends no further message: Dagster's timeout is 60 s, and the last send may take 45 s."""
MAX_LISTED = 10
"""Maximum number of steps, assets or numbers in one message."""


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


@dg.sensor(
    name="alert_failed_checks",
    description="Sends a message when a check starts to fail and when it recovers.",
    minimum_interval_seconds=INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def alert_failed_checks(context: dg.SensorEvaluationContext, alerts: Webhook) -> dg.SensorResult:
    """Send one message when a check starts to fail because of a new cause, and one when it recovers.

    The cursor contains the last processed evaluation of the event log and the checks whose last evaluation failed, with
    their causes. The first tick starts at the end of the log.

    Raises:
        Unreachable: The tick's first message was not delivered; the cursor stays. If a later message is not delivered,
            the cursor moves past the delivered ones, so that none is sent twice, and the next tick fails.
    """
    log = context.instance.event_log_storage
    after, causes = progress(context)
    if after is None or not alerts.url:
        return result(Causes({}), log.get_maximum_record_id() or 0, STARTS if alerts.url else OFF)
    # instance.get_event_records is deprecated, and cannot read checks of all runs by id from SQLite.
    events = log.get_logs_for_all_runs_by_log_id(after, dg.DagsterEventType.ASSET_CHECK_EVALUATION, MAX_EVENTS)
    sending = TickMessages(context, alerts)
    for storage_id, entry in events.items():
        evaluation = entry.get_dagster_event().asset_check_evaluation_data
        name = _name(evaluation)
        # A new check counts as passed before.
        is_relevant = not evaluation.passed or name in causes.failing
        if is_relevant and _is_of_location(context, evaluation) and not _alert(evaluation, name, causes, sending):
            break
        after = storage_id
        if sending.is_late:
            break
    return result(causes, after, f"Messages sent: {sending.sent}" if sending.sent else "No check changed")


def result(causes: Causes, after: int, message: str) -> dg.SensorResult:
    """Return the result of a tick that processed the events up to one of the event log."""
    return dg.SensorResult(skip_reason=message, cursor=json.dumps({"after": after, "failing": causes.failing}))


def progress(context: dg.SensorEvaluationContext) -> tuple[int | None, Causes]:
    """Return the last processed event and the causes of a sensor's cursor; None and no causes before its first tick.

    Up to version 0.1.0, the cursors had the failing checks without causes, and the sensor of runs had one of Dagster's.
    """
    cursor = json.loads(context.cursor or "{}")
    failing = cursor.get("failing", {})
    causes = failing if isinstance(failing, dict) else {name: name for name in failing}
    return cursor.get("after"), Causes(causes)


def _alert(evaluation: dg.AssetCheckEvaluation, name: str, causes: Causes, sending: TickMessages) -> bool:
    """Send the message about a check, if a cause begins or ends, and note it. Return False if it was not delivered."""
    is_stream = evaluation.check_name == STREAMING
    system = evaluation.metadata.get(SYSTEM)
    reason = plain(evaluation.description or "") if is_stream else ""
    cause = cause_of(name, reason, str(system.value) if isinstance(system, dg.TextMetadataValue) else "")
    after = Causes(causes.failing)
    begins = not evaluation.passed and causes.begins(name, cause)
    ended = after.end(name) if evaluation.passed else after.fail(name, cause)
    if begins or ended:
        headline, lines, path = _message(evaluation)
        if is_stream and ended:
            lines.append(f"Resolved: {ended}")
        if not sending.try_send(headline, lines, path):
            return False
    causes.failing = after.failing
    return True


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
    lines = [line for line in (plain(evaluation.description or ""), _numbers(evaluation), _command(evaluation)) if line]
    page = urlencode({"view": "checks", "checkDetail": evaluation.check_name})
    path = "/".join(quote(part, safe="") for part in evaluation.asset_key.path)
    return f"{change}: {_name(evaluation)}", lines, f"/assets/{path}?{page}"


def _command(evaluation: dg.AssetCheckEvaluation) -> str:
    """Return the commands that show the cause of a failed check of a topic; empty if its description names one."""
    match evaluation.asset_key.path:
        case [topic, _] if not evaluation.passed and evaluation.check_name != STREAMING:
            return f"See `lakehouse check {evaluation.partition or topic}`, and `lakehouse status` for the cause"
    return ""


def _numbers(evaluation: dg.AssetCheckEvaluation) -> str:
    """Return the numbers of the metadata. Texts and tables are omitted, because they may be samples of rows."""
    kinds = (dg.IntMetadataValue, dg.FloatMetadataValue)
    numbers = {name: value.value for name, value in evaluation.metadata.items() if isinstance(value, kinds)}
    return listed([f"{name} {number:,}" for name, number in numbers.items() if number is not None])


def listed(names: Sequence[str]) -> str:
    """Return at most MAX_LISTED names as text, and the number of the others."""
    more = f" and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more
