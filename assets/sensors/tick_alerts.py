"""Alerts: a message for each sensor and each schedule that begins to fail, and one when it works again."""

import json

import dagster as dg

from assets.sensors.alerts import INTERVAL_SECONDS, OFF, Sending
from assets.sensors.ticks import watched
from resources.webhook import Webhook

NAME = "alert_failed_ticks"


@dg.sensor(
    name=NAME,
    description="Sends a message when a sensor or a schedule begins to fail, and when it works again.",
    minimum_interval_seconds=INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def alert_failed_ticks(context: dg.SensorEvaluationContext, alerts: Webhook) -> dg.SensorResult:
    """One message when a sensor or a schedule begins to fail, one when it works again, none while it stays as it is.

    The cursor is what failed and was told. It does not look at itself: what it fails for is that it cannot send, and
    the heartbeat (assets/sensors/heartbeat.py) is what tells of that.

    Raises: Unreachable when the webhook does not take the tick's first message; the cursor stays.
    """
    if not alerts.url:
        return dg.SensorResult(skip_reason=OFF, cursor="[]")
    before, sending = json.loads(context.cursor or "[]"), Sending(context, alerts)
    looked_at = {f"{one.kind} {one.name}": one for one in watched(context) if one.name != NAME}
    # What is switched off or gone neither fails nor works: it is forgotten.
    failing = [title for title in before if title in looked_at]
    for title, one in looked_at.items():
        if bool(one.failure) == (title in failing):
            continue
        headline = f"{one.kind} fails: {one.name}" if one.failure else f"{one.kind} works again: {one.name}"
        if not sending.took(headline, [one.failure] if one.failure else [], one.path):
            break
        failing = [*failing, title] if one.failure else [other for other in failing if other != title]
        if sending.is_late:
            break
    said = f"Messages sent: {sending.sent}" if sending.sent else "No sensor or schedule changed"
    return dg.SensorResult(skip_reason=said, cursor=json.dumps(failing))
