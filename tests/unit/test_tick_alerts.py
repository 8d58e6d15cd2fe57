"""Alerts about failing sensors and schedules, and the heartbeat while all of them work.

Ticks are stored as Dagster's daemon stores them; test_daemon_alerts.py uses the daemon itself.
"""

import json
import sys
import time

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import (
    GrpcServerCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    ScheduleInstigatorData,
    SensorInstigatorData,
    TickData,
    TickStatus,
)
from dagster._daemon.types import DaemonHeartbeat
from dagster._utils.error import serializable_error_info_from_exc_info

from assets.monitoring import NEEDED, alert_failed_ticks, heartbeat
from lakehouse.core.errors import LakehouseError, Unreachable
from lakehouse.definitions import defs
from resources.webhook import Webhook
from tests.support.servers.listener import OK, Listener

SECRET = "ping/a-secret"
FAILED, SKIPPED, STARTED = TickStatus.FAILURE, TickStatus.SKIPPED, TickStatus.STARTED


class Dagster:
    """An instance with the states and ticks of sensors and schedules."""

    def __init__(self, instance: dg.DagsterInstance):
        self.instance = instance
        self.states: dict[str, InstigatorState] = {}

    def add_tick(self, name: str, status: TickStatus, error: Exception | None = None, *, ago: float = 0, **of) -> None:
        state = self.states.get(name) or self.add_state(name, **of)
        at = time.time() - ago
        self.instance.create_tick(
            TickData(
                state.instigator_origin_id,
                name,
                state.instigator_type,
                status,
                at,
                error=serialized(error),
                selector_id=state.selector_id,
                end_timestamp=None if status == STARTED else at,
            )
        )

    def add_state(self, name: str, *, location: str = "lake", kind=InstigatorType.SENSOR) -> InstigatorState:
        origin = GrpcServerCodeLocationOrigin("127.0.0.1", 1, location_name=location)
        data = (
            SensorInstigatorData(min_interval=60) if kind == InstigatorType.SENSOR else ScheduleInstigatorData("@daily")
        )
        state = InstigatorState(
            RemoteInstigatorOrigin(RemoteRepositoryOrigin(origin, "__repository__"), name),
            kind,
            InstigatorStatus.DECLARED_IN_CODE,
            data,
        )
        self.states[name] = self.instance.add_instigator_state(state)
        return state

    def switch_off(self, name: str) -> None:
        self.instance.update_instigator_state(self.states[name].with_status(InstigatorStatus.STOPPED))

    def add_daemon_heartbeats(self, *without: str, ago: float = 0) -> None:
        for daemon in set(self.instance.get_required_daemon_types()) - {*without}:
            self.instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - ago, daemon, "it"))


def serialized(error: Exception | None):
    """Return an error as Dagster stores it."""
    if error is None:
        return None
    try:
        raise error
    except Exception:
        return serializable_error_info_from_exc_info(sys.exc_info())


class Sensor:
    """A sensor that is ticked as by the daemon, which discards the cursor of a tick that raises."""

    def __init__(self, sensor, instance, webhook: Webhook, definitions=None):
        self.sensor, self.instance, self.webhook, self.definitions = sensor, instance, webhook, definitions
        self.cursor = None

    def tick(self) -> str:
        resources = {"alerts": self.webhook}
        with dg.build_sensor_context(
            self.instance, self.cursor, resources=resources, definitions=self.definitions
        ) as context:
            result = self.sensor.evaluate_tick(context)
        self.cursor = result.cursor
        return result.skip_message


@pytest.fixture
def dagster():
    with dg.instance_for_test() as instance:
        yield Dagster(instance)


@pytest.fixture
def slack():
    with Listener().listening() as server:
        yield server


@pytest.fixture
def alerts(dagster, slack):
    return Sensor(alert_failed_ticks, dagster.instance, Webhook(url=slack.address))


def texts(slack) -> list[str]:
    """Return the accepted messages."""
    return [json.loads(request.body)["text"] for request in slack.received if request.status == 200]


def test_alert_sensor_failing_twice_is_sent_once_and_recovery(dagster, slack, alerts):
    error = Unreachable("Kafka", "b-1:9092", "the broker")
    dagster.add_tick("freshness", SKIPPED)
    dagster.add_tick("freshness", FAILED, error)
    alerts.tick()
    assert texts(slack) == []  # the next attempt may succeed

    dagster.add_tick("freshness", FAILED, error)
    dagster.add_tick("freshness", STARTED)
    for _ in range(3):
        alerts.tick()
    assert texts(slack) == [f"*Sensor fails: freshness*\n{error}"]

    dagster.add_tick("freshness", FAILED, LakehouseError("It fails for another reason by now"))
    alerts.tick()
    assert len(texts(slack)) == 1

    dagster.add_tick("freshness", SKIPPED)
    alerts.tick()
    alerts.tick()
    assert texts(slack)[1:] == ["*Sensor recovered: freshness*"]


def test_alert_schedule_failing_once_is_sent(dagster, slack, alerts):
    dagster.add_tick("maintenance_schedule", FAILED, ValueError("row: alice@example.com"), kind=InstigatorType.SCHEDULE)
    alerts.tick()
    assert texts(slack) == ["*Schedule fails: maintenance_schedule*\nValueError, see its page in Dagster"]


def test_alert_webhook_down_loses_no_alert(dagster, slack, alerts):
    slack.always = (500, "", {})
    for name in ("a", "b"):
        dagster.add_tick(name, FAILED, LakehouseError(name))
        dagster.add_tick(name, FAILED, LakehouseError(name))
    for _ in range(2):
        with pytest.raises(Unreachable, match="The alert webhook"):
            alerts.tick()
        dagster.add_tick("alert_failed_ticks", FAILED, LakehouseError("The webhook"))
    slack.always = (404, "no_service", {})
    slack.responses.append(OK)
    alerts.tick()
    slack.always = OK
    alerts.tick()
    alerts.tick()
    assert sorted(texts(slack)) == ["*Sensor fails: a*\na", "*Sensor fails: b*\nb"]


def test_alert_disabled_or_foreign_sensor_is_not_sent(dagster, slack, alerts):
    for name in ("freshness", "open_lineage", "theirs"):
        for _ in range(2):
            dagster.add_tick(name, FAILED, LakehouseError(name))
    dagster.switch_off("open_lineage")
    alerts.definitions = defs()
    alerts.tick()
    assert texts(slack) == ["*Sensor fails: freshness*\nfreshness"]
    # A sensor that is switched off is forgotten, and reported again if it fails when switched on.
    dagster.switch_off("freshness")
    alerts.tick()
    assert len(texts(slack)) == 1
    dagster.instance.update_instigator_state(dagster.states["freshness"])
    alerts.tick()
    assert texts(slack)[1:] == ["*Sensor fails: freshness*\nfreshness"]


def test_alert_without_webhook_is_skipped(dagster, alerts):
    alerts.webhook = Webhook()
    assert alerts.tick().startswith("No webhook is configured")


@pytest.fixture
def heartbeat_sensor(dagster, slack):
    """The heartbeat of an instance in which everything works."""
    dagster.add_daemon_heartbeats()
    for name in (*NEEDED, "topic_offsets"):
        dagster.add_tick(name, SKIPPED)
    return Sensor(heartbeat, dagster.instance, Webhook(heartbeat_url=f"{slack.address}/{SECRET}"))


def test_heartbeat_is_sent_while_everything_works(dagster, slack, heartbeat_sensor):
    dagster.add_tick("heartbeat", FAILED, LakehouseError("earlier"))
    dagster.add_tick("heartbeat", FAILED, LakehouseError("earlier"))
    dagster.add_tick("topic_offsets", FAILED, LakehouseError("once"))
    dagster.add_tick("maintenance_schedule", FAILED, LakehouseError("it has its alert"), kind=InstigatorType.SCHEDULE)
    assert heartbeat_sensor.tick() == "Called: all daemons and sensors work"
    assert [request.path for request in slack.received] == [f"/{SECRET}"]


def delay_ticks(dagster):
    for name in ("freshness", "alert_failed_runs"):
        dagster.instance.purge_ticks(
            dagster.states[name].instigator_origin_id, dagster.states[name].selector_id, time.time() + 1
        )
    dagster.add_tick("freshness", SKIPPED, ago=400)
    dagster.add_tick("freshness", STARTED, ago=300)
    dagster.add_tick("alert_failed_runs", SKIPPED, ago=200)


def fail_ticks(dagster):
    for _ in range(2):
        dagster.add_tick("topic_offsets", FAILED, LakehouseError("Kafka does not answer"))


@pytest.mark.parametrize(
    ("break_instance", "message"),
    [
        (delay_ticks, "sensor freshness had no successful tick for 300 s"),
        (fail_ticks, "sensor topic_offsets fails: Kafka does not answer"),
        (lambda dagster: dagster.switch_off("alert_failed_ticks"), "sensor alert_failed_ticks is switched off"),
        (lambda dagster: dagster.add_daemon_heartbeats(ago=600), "daemon SENSOR sent no heartbeat for 300 s"),
    ],
)
def test_heartbeat_stops_when_something_fails(dagster, slack, heartbeat_sensor, break_instance, message):
    break_instance(dagster)
    assert message in heartbeat_sensor.tick()
    assert slack.received == []


def test_heartbeat_starts_after_every_sensor_ticked(dagster, slack):
    webhook = Webhook(heartbeat_url=f"{slack.address}/{SECRET}")
    assert "sensor freshness is switched off or never ticked" in Sensor(heartbeat, dagster.instance, webhook).tick()
    disabled = Sensor(heartbeat, dagster.instance, Webhook())
    assert disabled.tick().startswith("No heartbeat URL is configured")
    assert slack.received == []


@pytest.mark.parametrize("response", [(302, "", {"Location": "/elsewhere"}), (404, SECRET, {})])
def test_heartbeat_rejected_fails_without_url_or_redirect(heartbeat_sensor, slack, response):
    slack.always = response
    with pytest.raises(
        Unreachable, match=f"The heartbeat URL does not answer at 127.0.0.1: HTTP {response[0]}"
    ) as raised:
        heartbeat_sensor.tick()
    assert "a-secret" not in str(raised.value) + repr(heartbeat_sensor.webhook)
    assert {request.path for request in slack.received} == {f"/{SECRET}"}
