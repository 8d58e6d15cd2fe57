"""A sensor or a schedule that fails is told of once, whatever the webhook does; the heartbeat is called while all work.

The ticks are as Dagster's daemon stores them; test_daemon_alerts.py has the daemon itself.
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
from listener import OK, Listener

from assets.sensors.heartbeat import NEEDED, heartbeat
from assets.sensors.tick_alerts import alert_failed_ticks
from lakehouse.core.errors import LakehouseError, Unreachable
from lakehouse.definitions import defs
from resources.webhook import Webhook

SECRET = "ping/a-secret"
FAILED, SKIPPED, STARTED = TickStatus.FAILURE, TickStatus.SKIPPED, TickStatus.STARTED


class Dagster:
    """An instance with the states and ticks of sensors and schedules."""

    def __init__(self, instance: dg.DagsterInstance):
        self.instance = instance
        self.states: dict[str, InstigatorState] = {}

    def ticked(self, name: str, status: TickStatus, error: Exception | None = None, *, ago: float = 0, **of) -> None:
        state = self.states.get(name) or self.switched_on(name, **of)
        at = time.time() - ago
        self.instance.create_tick(
            TickData(
                state.instigator_origin_id,
                name,
                state.instigator_type,
                status,
                at,
                error=_stored(error),
                selector_id=state.selector_id,
                end_timestamp=None if status == STARTED else at,
            )
        )

    def switched_on(self, name: str, *, location: str = "lake", kind=InstigatorType.SENSOR) -> InstigatorState:
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

    def switched_off(self, name: str) -> None:
        self.instance.update_instigator_state(self.states[name].with_status(InstigatorStatus.STOPPED))

    def heard(self, *without: str, ago: float = 0) -> None:
        for daemon in set(self.instance.get_required_daemon_types()) - {*without}:
            self.instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - ago, daemon, "it"))


def _stored(error: Exception | None):
    """An error as Dagster stores it."""
    if error is None:
        return None
    try:
        raise error
    except Exception:
        return serializable_error_info_from_exc_info(sys.exc_info())


class Sensor:
    """A sensor ticked as the daemon does: the cursor of a tick that raises is not kept."""

    def __init__(self, sensor, instance, webhook: Webhook, definitions=None):
        self.sensor, self.instance, self.webhook, self.definitions = sensor, instance, webhook, definitions
        self.cursor = None

    def tick(self) -> str:
        given = {"alerts": self.webhook}
        with dg.build_sensor_context(
            self.instance, self.cursor, resources=given, definitions=self.definitions
        ) as context:
            done = self.sensor.evaluate_tick(context)
        self.cursor = done.cursor
        return done.skip_message


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
    """The messages that were taken."""
    return [json.loads(request.body)["text"] for request in slack.received if request.status == 200]


def test_a_sensor_is_told_of_when_it_failed_twice_and_when_it_works_again(dagster, slack, alerts):
    error = Unreachable("Kafka", "b-1:9092", "the broker")
    dagster.ticked("freshness", SKIPPED)
    dagster.ticked("freshness", FAILED, error)
    alerts.tick()
    assert texts(slack) == []  # the next try may do

    dagster.ticked("freshness", FAILED, error)
    dagster.ticked("freshness", STARTED)
    for _ in range(3):
        alerts.tick()
    assert texts(slack) == [f"*Sensor fails: freshness*\n{error}"]

    dagster.ticked("freshness", FAILED, LakehouseError("It fails for another reason by now"))
    alerts.tick()
    assert len(texts(slack)) == 1

    dagster.ticked("freshness", SKIPPED)
    alerts.tick()
    alerts.tick()
    assert texts(slack)[1:] == ["*Sensor works again: freshness*"]


def test_a_schedule_is_told_of_when_it_failed_once(dagster, slack, alerts):
    dagster.ticked("maintenance_schedule", FAILED, ValueError("row: alice@example.com"), kind=InstigatorType.SCHEDULE)
    alerts.tick()
    assert texts(slack) == ["*Schedule fails: maintenance_schedule*\nValueError, see its page in Dagster"]


def test_a_webhook_that_is_down_loses_nothing_and_is_not_told_of(dagster, slack, alerts):
    slack.always = (500, "", {})
    for name in ("a", "b"):
        dagster.ticked(name, FAILED, LakehouseError(name))
        dagster.ticked(name, FAILED, LakehouseError(name))
    for _ in range(2):
        with pytest.raises(Unreachable, match="The alert webhook"):
            alerts.tick()
        dagster.ticked("alert_failed_ticks", FAILED, LakehouseError("The webhook"))
    slack.always = (404, "no_service", {})
    slack.answers.append(OK)
    alerts.tick()
    slack.always = OK
    alerts.tick()
    alerts.tick()
    assert sorted(texts(slack)) == ["*Sensor fails: a*\na", "*Sensor fails: b*\nb"]


def test_what_is_switched_off_or_of_another_project_is_not_told_of(dagster, slack, alerts):
    for name in ("freshness", "open_lineage", "theirs"):
        for _ in range(2):
            dagster.ticked(name, FAILED, LakehouseError(name))
    dagster.switched_off("open_lineage")
    alerts.definitions = defs()
    alerts.tick()
    assert texts(slack) == ["*Sensor fails: freshness*\nfreshness"]
    # Switched off, it is forgotten, and told of again when it is switched on and still fails.
    dagster.switched_off("freshness")
    alerts.tick()
    assert len(texts(slack)) == 1
    dagster.instance.update_instigator_state(dagster.states["freshness"])
    alerts.tick()
    assert texts(slack)[1:] == ["*Sensor fails: freshness*\nfreshness"]


def test_without_a_webhook_nothing_happens(dagster, alerts):
    alerts.webhook = Webhook()
    assert alerts.tick().startswith("No webhook is configured")


@pytest.fixture
def beating(dagster, slack):
    """The heartbeat of a Dagster in which all is well."""
    dagster.heard()
    for name in (*NEEDED, "topic_offsets"):
        dagster.ticked(name, SKIPPED)
    return Sensor(heartbeat, dagster.instance, Webhook(heartbeat_url=f"{slack.address}/{SECRET}"))


def test_the_heartbeat_is_called_while_all_is_well(dagster, slack, beating):
    dagster.ticked("heartbeat", FAILED, LakehouseError("earlier"))
    dagster.ticked("heartbeat", FAILED, LakehouseError("earlier"))
    dagster.ticked("topic_offsets", FAILED, LakehouseError("once"))
    dagster.ticked("maintenance_schedule", FAILED, LakehouseError("it has its alert"), kind=InstigatorType.SCHEDULE)
    assert beating.tick() == "Called: all daemons and sensors work"
    assert [request.path for request in slack.received] == [f"/{SECRET}"]


def late(dagster):
    for name in ("freshness", "alert_failed_runs"):
        dagster.instance.purge_ticks(
            dagster.states[name].instigator_origin_id, dagster.states[name].selector_id, time.time() + 1
        )
    dagster.ticked("freshness", SKIPPED, ago=400)
    dagster.ticked("freshness", STARTED, ago=300)
    dagster.ticked("alert_failed_runs", SKIPPED, ago=200)


def failing(dagster):
    for _ in range(2):
        dagster.ticked("topic_offsets", FAILED, LakehouseError("Kafka does not answer"))


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (late, "sensor freshness had no tick that succeeded for 300 s"),
        (failing, "sensor topic_offsets fails: Kafka does not answer"),
        (lambda dagster: dagster.switched_off("alert_failed_ticks"), "sensor alert_failed_ticks is switched off"),
        (lambda dagster: dagster.heard(ago=600), "daemon SENSOR was not heard for 300 s"),
    ],
)
def test_the_heartbeat_stops_when_something_does_not_work(dagster, slack, beating, broken, said):
    broken(dagster)
    assert said in beating.tick()
    assert slack.received == []


def test_a_heartbeat_begins_when_everything_ticked(dagster, slack):
    webhook = Webhook(heartbeat_url=f"{slack.address}/{SECRET}")
    assert "sensor freshness is switched off, or never ticked" in Sensor(heartbeat, dagster.instance, webhook).tick()
    off = Sensor(heartbeat, dagster.instance, Webhook())
    assert off.tick().startswith("No heartbeat URL is configured")
    assert slack.received == []


@pytest.mark.parametrize("answer", [(302, "", {"Location": "/elsewhere"}), (404, SECRET, {})])
def test_a_heartbeat_that_is_not_taken_fails_without_its_url_and_follows_nobody(beating, slack, answer):
    slack.always = answer
    with pytest.raises(
        Unreachable, match=f"The heartbeat URL does not answer at 127.0.0.1: HTTP {answer[0]}"
    ) as raised:
        beating.tick()
    assert "a-secret" not in str(raised.value) + repr(beating.webhook)
    assert {request.path for request in slack.received} == {f"/{SECRET}"}
