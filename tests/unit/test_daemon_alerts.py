"""Alerts of sensors and schedules that fail, and the heartbeat, by a code server and Dagster's own daemon."""

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
from listener import Listener

from lakehouse.config.loader import PROJECT

LOG = logging.getLogger("test_daemon_alerts")


class Receiver(Listener):
    """Takes messages and heartbeats."""

    read = 0

    def texts(self) -> list[str]:
        """The messages taken since this was last asked."""
        new, self.read = self.received[self.read :], len(self.received)
        return [json.loads(r.body)["text"] for r in new if r.status == 200 and not r.path.startswith("/hook/beat")]

    @property
    def beats(self) -> int:
        return sum(request.path == "/hook/beat/a-secret" for request in self.received)


class Daemon:
    """Ticks every sensor of the code location whose time has come, as Dagster's daemon does, at times that are set."""

    def __init__(self, workspace, instance, failing: Path):
        self.workspace, self.instance, self.failing = workspace, instance, failing
        self.now = time.time() - 2_000

    def tick(self, times: int, **fails: str):
        """Let these fail (by name: how), and the others not, for so many rounds."""
        self.failing.write_text(json.dumps(fails))
        for _ in range(times):
            self.now += 61
            for daemon in self.instance.get_required_daemon_types():
                self.instance.add_daemon_heartbeat(DaemonHeartbeat(time.time(), daemon, "it"))
            with freeze_time(self.now):
                list(execute_sensor_iteration(self.workspace, LOG, None, None))

    def schedule(self, **fails: str):
        self.failing.write_text(json.dumps(fails))
        self.now += 61
        with freeze_time(self.now):
            list(launch_scheduled_runs(self.workspace, LOG, datetime.fromtimestamp(self.now, UTC), {}))

    def said(self, name: str) -> str:
        """What a sensor said in its last tick."""
        [state] = [one for one in self.instance.all_instigator_state() if one.name == name]
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
    target = PythonFileTarget(str(Path(__file__).with_name("watched_definitions.py")), None, str(PROJECT), "lake")
    with dg.instance_for_test() as instance, create_test_daemon_workspace_context(target, instance) as workspace:
        yield Daemon(workspace, instance, failing)


def test_what_dagsters_daemon_records_of_failures_is_told_once_and_silences_the_heartbeat(daemon, receiver):
    daemon.schedule()
    daemon.schedule(each_minute="known")
    daemon.tick(3, other="unforeseen", freshness="caused")
    assert sorted(text.partition("|")[0] for text in receiver.texts()) == [
        "*Schedule fails: each_minute*\nTopic 'trades' was recreated. Nothing was changed\n"
        "<http://ui/locations/lake/schedules/each_minute",
        "*Sensor fails: freshness*\nKafka does not answer at 127.0.0.1:1. Nothing was changed. Check the broker\n"
        "<http://ui/locations/lake/sensors/freshness",
        "*Sensor fails: other*\nValueError, see its page in Dagster\n<http://ui/locations/lake/sensors/other",
    ]
    assert receiver.beats == 0
    assert "sensor freshness fails: Kafka does not answer" in daemon.said("heartbeat")

    daemon.now = time.time()
    daemon.schedule()
    daemon.tick(2)
    assert sorted(text.partition("\n")[0] for text in receiver.texts()) == [
        "*Schedule works again: each_minute*",
        "*Sensor works again: freshness*",
        "*Sensor works again: other*",
    ]
    assert receiver.beats > 0, daemon.said("heartbeat")
