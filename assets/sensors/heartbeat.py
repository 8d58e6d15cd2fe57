"""A heartbeat: a URL that is called while monitoring works, so that who waits for it notices when nobody is left to
send an alert."""

import time
from collections.abc import Iterator

import dagster as dg

from assets.sensors.alerts import alert_failed_checks, alert_failed_runs
from assets.sensors.tick_alerts import alert_failed_ticks
from assets.sensors.ticks import watched
from resources.webhook import Webhook

NAME = "heartbeat"
OFF = "No heartbeat URL is configured (`alerts` in lakehouse.yaml): none is called"

SILENT_SECONDS = 300
"""A daemon, or a sensor, that did nothing well for so long does not work."""
SILENT_TICKS = 5
"""Where a sensor's ticks are further apart, so many may be missed."""

NEEDED = ("freshness", alert_failed_runs.name, alert_failed_checks.name, alert_failed_ticks.name)
"""Sensors without which monitoring does not work: these may not even be switched off."""


@dg.sensor(
    name=NAME,
    description="Calls the heartbeat URL while all daemons and sensors work. A tick that did shows as skipped.",
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def heartbeat(context: dg.SensorEvaluationContext, alerts: Webhook) -> dg.SkipReason:
    """Call the URL, unless something does not work: then it is silence that tells.

    Raises: Unreachable when the URL does not take it.
    """
    if not alerts.heartbeat_url:
        return dg.SkipReason(OFF)
    if faults := [*_daemons(context.instance), *_sensors(context)]:
        return dg.SkipReason(f"Not called: {'; '.join(faults)}")
    alerts.beat()
    return dg.SkipReason("Called: all daemons and sensors work")


def _daemons(instance: dg.DagsterInstance) -> Iterator[str]:
    """Dagster calls a daemon healthy for half an hour after it was last heard: that is too long."""
    heard = instance.get_daemon_heartbeats()
    for daemon in instance.get_required_daemon_types():
        if daemon not in heard or time.time() - heard[daemon].timestamp > SILENT_SECONDS:
            yield f"daemon {daemon} was not heard for {SILENT_SECONDS} s"


def _sensors(context: dg.SensorEvaluationContext) -> Iterator[str]:
    # Its own ticks say nothing: it fails when the URL is not reached, and may call it again all the same.
    found = {one.name: one for one in watched(context) if one.name != NAME}
    yield from (f"sensor {name} is switched off, or never ticked" for name in NEEDED if name not in found)
    for one in found.values():
        # A schedule that failed last night has its alert, and hides from nobody that the rest works.
        if one.kind != "Sensor":
            continue
        silent = max(SILENT_SECONDS, SILENT_TICKS * one.interval)
        if one.failure:
            yield f"sensor {one.name} fails: {one.failure}"
        elif one.succeeded is None or time.time() - one.succeeded > silent:
            yield f"sensor {one.name} had no tick that succeeded for {silent:,.0f} s"
