"""A code location for test_daemon_alerts.py, whose sensors and schedule fail as configured in the file FAILING."""

import json
import os
from pathlib import Path

import dagster as dg

from assets.alerts import alert_failed_checks
from assets.monitoring import alert_failed_ticks, heartbeat
from assets.run_alerts import alert_failed_runs
from lakehouse.core.errors import UnclearState, Unreachable
from resources.webhook import Webhook

RUNNING = dg.DefaultSensorStatus.RUNNING


def outcome(name: str) -> dg.SkipReason:
    match json.loads(Path(os.environ["FAILING"]).read_text()).get(name):
        case "known":
            raise UnclearState("Topic 'trades' was recreated. Nothing was changed")
        case "caused":
            try:
                raise OSError("secret-of-a-client")
            except OSError as error:
                raise dg.DagsterError("wrapped") from Unreachable("Kafka", "127.0.0.1:1", "the broker", error.errno)
        case "unexpected":
            raise ValueError("row: alice@example.com")
    return dg.SkipReason("all is well")


@dg.sensor(minimum_interval_seconds=1, default_status=RUNNING)
def freshness():
    return outcome("freshness")


@dg.sensor(minimum_interval_seconds=1, default_status=RUNNING)
def other():
    return outcome("other")


@dg.op
def nothing(): ...


@dg.job
def nightly():
    nothing()


@dg.schedule(job=nightly, cron_schedule="* * * * *", default_status=dg.DefaultScheduleStatus.RUNNING)
def each_minute():
    return outcome("each_minute")


definitions = dg.Definitions(
    jobs=[nightly],
    schedules=[each_minute],
    sensors=[freshness, other, alert_failed_runs, alert_failed_checks, alert_failed_ticks, heartbeat],
    resources={
        "alerts": Webhook(
            url=dg.EnvVar("WEBHOOK"), ui_url="http://ui", heartbeat_url=f"{os.environ['WEBHOOK']}/beat/a-secret"
        )
    },
)
