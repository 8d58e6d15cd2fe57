"""Monitoring of the sensors and schedules themselves, derived from their last ticks: an alert, and a heartbeat.

The alert is sent when a sensor or a schedule starts to fail and when it recovers. The heartbeat is a call of a URL
while monitoring works, so that an external service notices when it stops.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg
from dagster._utils.error import SerializableErrorInfo

from assets.alerts import INTERVAL_SECONDS, OFF, TickMessages, alert_failed_checks
from assets.run_alerts import alert_failed_runs
from lakehouse.core.errors import LakehouseError
from resources.webhook import Webhook

FAILURES = {"SENSOR": 2, "SCHEDULE": 1}
"""Consecutive failed ticks that count as a failure: a sensor retries in a minute, a schedule perhaps in a day."""

LOOK_BACK = 10
"""Number of newest ticks to inspect. An unfinished tick is in progress, or its daemon died."""


@dataclass(frozen=True)
class Instigator:
    """A sensor or a schedule that is switched on."""

    name: str
    kind: str
    """`Sensor` or `Schedule`."""
    location: str
    interval: float
    """Seconds between two ticks of a sensor."""
    succeeded: float | None
    """End of the last tick that did not fail, in seconds since the epoch; None without one in LOOK_BACK."""
    failure: str
    """Reason of the failure, or empty."""

    @property
    def path(self) -> str:
        """Path of its page in Dagster's UI."""
        return f"/locations/{self.location}/{self.kind.lower()}s/{self.name}"


def watched(context: dg.SensorEvaluationContext) -> Iterator[Instigator]:
    """Yield the sensors and schedules of this code location that are switched on and have ticked.

    They include the sensor of automation conditions, whose ticks the asset daemon stores in the same place.
    """
    for state in context.instance.all_instigator_state():
        location = state.origin.repository_origin.code_location_origin.location_name
        if not state.is_running or not _is_of_location(context, location, state.name):
            continue
        newest = context.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=LOOK_BACK)
        finished = [tick for tick in newest if tick.status.value != "STARTED"]
        if not finished:
            continue
        kind = state.instigator_type.value
        limit = FAILURES.get(kind, 2)
        is_failing = len(finished) >= limit and all(tick.is_failure for tick in finished[:limit])
        yield Instigator(
            name=state.name,
            kind=kind.capitalize(),
            location=location,
            interval=getattr(state.instigator_data, "min_interval", None) or 0,
            succeeded=next((tick.end_timestamp or tick.timestamp for tick in finished if not tick.is_failure), None),
            failure=_reason_of(finished[0].error) if is_failing else "",
        )


def _is_of_location(context: dg.SensorEvaluationContext, location: str, name: str) -> bool:
    """Return whether a sensor or schedule is in this code location: other projects may share the instance."""
    origin, repository = context.code_location_origin, context.repository_def
    if origin is not None and origin.location_name != location:
        return False
    return repository is None or repository.has_sensor_def(name) or repository.has_schedule_def(name)


def _reason_of(error: SerializableErrorInfo | None) -> str:
    """Return the message of this project's error among the causes, or else the type of the innermost error.

    Texts of other errors are withheld, because they may quote rows.
    """
    kinds = {f"{kind.__module__}.{kind.__qualname__}: " for kind in _kinds(LakehouseError)}
    name = "an error"
    while error is not None:
        text = error.message.strip()
        for kind in kinds:
            if text.startswith(kind):
                return text.removeprefix(kind)
        name, error = error.cls_name or name, error.cause
    return f"{name}, see its page in Dagster"


def _kinds(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _kinds(subclass)


TICK_ALERTS = "alert_failed_ticks"


@dg.sensor(
    name=TICK_ALERTS,
    description="Sends a message when a sensor or a schedule starts to fail and when it recovers.",
    minimum_interval_seconds=INTERVAL_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def alert_failed_ticks(context: dg.SensorEvaluationContext, alerts: Webhook) -> dg.SensorResult:
    """Send one message when a sensor or a schedule starts to fail and one when it recovers.

    The cursor lists the reported failures. This sensor ignores itself: it fails when it cannot send messages, which the
    heartbeat (assets/monitoring.py) reveals.
    """
    if not alerts.url:
        return dg.SensorResult(skip_reason=OFF, cursor="[]")
    reported, sending = json.loads(context.cursor or "[]"), TickMessages(context, alerts)
    active = {f"{one.kind} {one.name}": one for one in watched(context) if one.name != TICK_ALERTS}
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


HEARTBEAT = "heartbeat"
NO_HEARTBEAT = "No heartbeat URL is configured (`alerts` in lakehouse.yaml)"

SILENT_SECONDS = 300
"""Time without a success after which a daemon or a sensor counts as not working."""
SILENT_TICKS = 5
"""Number of ticks that a sensor with a longer interval may miss."""

NEEDED = ("freshness", alert_failed_runs.name, alert_failed_checks.name, alert_failed_ticks.name)
"""Sensors that monitoring requires: the heartbeat stops if one of them is switched off."""


@dg.sensor(
    name=HEARTBEAT,
    description="Calls the heartbeat URL while all daemons and sensors work. Its ticks show as skipped.",
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def heartbeat(context: dg.SensorEvaluationContext, alerts: Webhook) -> dg.SkipReason:
    """Call the URL if all daemons and sensors work."""
    if not alerts.heartbeat_url:
        return dg.SkipReason(NO_HEARTBEAT)
    if faults := [*_daemons(context.instance), *_sensors(context)]:
        return dg.SkipReason(f"Not called: {'; '.join(faults)}")
    alerts.beat()
    return dg.SkipReason("Called: all daemons and sensors work")


def _daemons(instance: dg.DagsterInstance) -> Iterator[str]:
    """Yield the daemons without a recent heartbeat. Dagster's own limit is half an hour, which is too long."""
    heartbeats = instance.get_daemon_heartbeats()
    for daemon in instance.get_required_daemon_types():
        if daemon not in heartbeats or time.time() - heartbeats[daemon].timestamp > SILENT_SECONDS:
            yield f"daemon {daemon} sent no heartbeat for {SILENT_SECONDS} s"


def _sensors(context: dg.SensorEvaluationContext) -> Iterator[str]:
    # This sensor's own ticks are excluded: one that failed because the URL was unreachable must not prevent a retry.
    active = {one.name: one for one in watched(context) if one.name != HEARTBEAT}
    yield from (f"sensor {name} is switched off or never ticked" for name in NEEDED if name not in active)
    for one in active.values():
        # A failed schedule has its own alert, and does not mean that monitoring has stopped.
        if one.kind != "Sensor":
            continue
        silent = max(SILENT_SECONDS, SILENT_TICKS * one.interval)
        if one.failure:
            yield f"sensor {one.name} fails: {one.failure}"
        elif one.succeeded is None or time.time() - one.succeeded > silent:
            yield f"sensor {one.name} had no successful tick for {silent:,.0f} s"
