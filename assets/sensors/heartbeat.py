"""A sensor that calls a heartbeat URL while monitoring works, so that an external service notices when it stops."""

import time
from collections.abc import Iterator

import dagster as dg

from assets.sensors.alerts import alert_failed_checks, alert_failed_runs
from assets.sensors.tick_alerts import alert_failed_ticks
from assets.sensors.ticks import watched
from resources.webhook import Webhook

NAME = "heartbeat"
OFF = "No heartbeat URL is configured (`alerts` in lakehouse.yaml)"

SILENT_SECONDS = 300
"""Time without a success after which a daemon or a sensor counts as not working."""
SILENT_TICKS = 5
"""Number of ticks that a sensor with a longer interval may miss."""

NEEDED = ("freshness", alert_failed_runs.name, alert_failed_checks.name, alert_failed_ticks.name)
"""Sensors that monitoring requires: the heartbeat stops if one of them is switched off."""


@dg.sensor(
    name=NAME,
    description="Calls the heartbeat URL while all daemons and sensors work. Its ticks show as skipped.",
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def heartbeat(context: dg.SensorEvaluationContext, alerts: Webhook) -> dg.SkipReason:
    """Call the URL if all daemons and sensors work.

    Raises:
        Unreachable: The call failed.
    """
    if not alerts.heartbeat_url:
        return dg.SkipReason(OFF)
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
    active = {one.name: one for one in watched(context) if one.name != NAME}
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
