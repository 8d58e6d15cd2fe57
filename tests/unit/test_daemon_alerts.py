"""Alerts about failing sensors and schedules, and the heartbeat, with a code server and Dagster's own daemon."""

import json
import logging
import time
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.test_utils import create_test_daemon_workspace_context, freeze_time
from dagster._core.workspace.load_target import PythonFileTarget
from dagster._daemon.sensor import execute_sensor_iteration
from dagster._daemon.types import DaemonHeartbeat
from dagster._scheduler.scheduler import launch_scheduled_runs

from tests.support.servers.listener import Listener
from tools.repository import PROJECT

WATCHED = PROJECT / "tests/support/processes/watched_definitions.py"
LOG = logging.getLogger("test_daemon_alerts")


class Receiver(Listener):
    """A webhook that receives messages and heartbeats."""

    read = 0

    def texts(self) -> list[str]:
        """Return the messages accepted since the last call."""
        new, self.read = self.received[self.read :], len(self.received)
        return [json.loads(r.body)["text"] for r in new if r.status == 200 and not r.path.startswith("/hook/beat")]

    @property
    def beats(self) -> int:
        return sum(request.path == "/hook/beat/a-secret" for request in self.received)


class Daemon:
    """A daemon that ticks every due sensor of the code location, as Dagster's does, at a simulated time."""

    def __init__(self, workspace, instance, failing: Path):
        self.workspace, self.instance, self.failing = workspace, instance, failing
        self.now = time.time() - 2_000

    def tick(self, times: int, **fails: str):
        """Tick for this many rounds, in which the named sensors fail (by name: how), and no others."""
        self.failing.write_text(json.dumps(fails))
        for _ in range(times):
            self.now += 61
            for daemon in self.instance.get_required_daemon_types():
                self.instance.add_daemon_heartbeat(DaemonHeartbeat(time.time(), daemon, "it"))
            with freeze_time(self.now):
                list(execute_sensor_iteration(self.workspace, LOG, None, None))

    def schedule(self, **fails: str):
        """Launch the due schedules, of which the named ones fail."""
        self.failing.write_text(json.dumps(fails))
        self.now += 61
        with freeze_time(self.now):
            list(launch_scheduled_runs(self.workspace, LOG, datetime.fromtimestamp(self.now, UTC), {}))

    def skip_reason(self, name: str) -> str:
        """Return the skip reason of a sensor's last tick."""
        [state] = [state for state in self.instance.all_instigator_state() if state.name == name]
        return self.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)[0].skip_reason


@pytest.fixture
def receiver():
    with Receiver().listening() as server:
        yield server


@pytest.fixture
def daemon(receiver, tmp_path, monkeypatch):
    failing = tmp_path / "failing.json"
    failing.write_text("{}")
    monkeypatch.setenv("WEBHOOK", f"{receiver.address}/hook")
    monkeypatch.setenv("FAILING", str(failing))
    target = PythonFileTarget(str(WATCHED), None, str(PROJECT), "lake")
    with dg.instance_for_test() as instance, create_test_daemon_workspace_context(target, instance) as workspace:
        yield Daemon(workspace, instance, failing)


def test_alert_failing_ticks_are_sent_once_and_stop_heartbeat(daemon, receiver):
    daemon.schedule()
    daemon.schedule(each_minute="known")
    daemon.tick(3, other="unexpected", freshness="caused")
    assert sorted(text.partition("|")[0] for text in receiver.texts()) == [
        "*Schedule fails: each_minute*\nTopic 'trades' was recreated. Nothing was changed\n"
        "<http://ui/locations/lake/schedules/each_minute",
        "*Sensor fails: freshness*\nKafka does not answer at 127.0.0.1:1. The call did not complete. Check the broker\n"
        "<http://ui/locations/lake/sensors/freshness",
        "*Sensor fails: other*\nValueError, see its page in Dagster\n<http://ui/locations/lake/sensors/other",
    ]
    assert receiver.beats == 0
    assert "sensor freshness fails: Kafka does not answer" in daemon.skip_reason("heartbeat")

    daemon.now = time.time()
    daemon.schedule()
    daemon.tick(2)
    assert sorted(text.partition("\n")[0] for text in receiver.texts()) == [
        "*Schedule recovered: each_minute*",
        "*Sensor recovered: freshness*",
        "*Sensor recovered: other*",
    ]
    assert receiver.beats > 0, daemon.skip_reason("heartbeat")
