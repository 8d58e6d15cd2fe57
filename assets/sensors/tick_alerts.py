"""A sensor that sends an alert when a sensor or a schedule starts to fail and when it recovers."""

import json

import dagster as dg

from assets.sensors.alerts import INTERVAL_SECONDS, OFF, Sending
from assets.sensors.ticks import watched
from resources.webhook import Webhook

NAME = "alert_failed_ticks"


@dg.sensor(
    name=NAME,
    description="Sends a message when a sensor or a schedule starts to fail and when it recovers.",
    minimum_interval_seconds=INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def alert_failed_ticks(context: dg.SensorEvaluationContext, alerts: Webhook) -> dg.SensorResult:
    """Send one message when a sensor or a schedule starts to fail and one when it recovers.

    The cursor lists the reported failures. This sensor ignores itself: it fails when it cannot send messages, which the
    heartbeat (assets/sensors/heartbeat.py) reveals.

    Raises:
        Unreachable: The tick's first message was not delivered; the cursor stays.
    """
    if not alerts.url:
        return dg.SensorResult(skip_reason=OFF, cursor="[]")
    reported, sending = json.loads(context.cursor or "[]"), Sending(context, alerts)
    active = {f"{one.kind} {one.name}": one for one in watched(context) if one.name != NAME}
    # Sensors and schedules that are switched off or deleted are forgotten.
    failing = [title for title in reported if title in active]
    for title, one in active.items():
        if bool(one.failure) == (title in failing):
            continue
        headline = f"{one.kind} fails: {one.name}" if one.failure else f"{one.kind} recovered: {one.name}"
        if not sending.try_send(headline, [one.failure] if one.failure else [], one.path):
            break
        failing = [*failing, title] if one.failure else [other for other in failing if other != title]
        if sending.is_late:
            break
    message = f"Messages sent: {sending.sent}" if sending.sent else "No sensor or schedule changed"
    return dg.SensorResult(skip_reason=message, cursor=json.dumps(failing))
