"""Starting, awaiting, finding and stopping, on small servers of the test's own."""

import os
import signal
import socket
import subprocess
import sys
import time
from threading import Event

import pytest

from lakehouse.errors import LakehouseError
from lakehouse.local import process
from lakehouse.local.home import Home
from lakehouse.local.process import Server

SLEEPER = (sys.executable, "-c", "import time; time.sleep(60)")
WITH_CHILD = (sys.executable, "-c", f"import subprocess; subprocess.run({list(SLEEPER)!r})")
STUBBORN = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)",
)


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    yield home
    for name in process.running(home):
        process.stop(name, home)


def server(home, command, **fields):
    defaults = {"name": "sleeper", "folder": home.path, "address": "", "ready": lambda: True, "env": {}}
    return Server(**{**defaults, "command": command, **fields})


def start(described, home):
    running = process.start(described, home)
    process.wait_until_ready(described, running.leader, home, Event())
    # For a moment after it was started, the system shows a process without its environment.
    eventually(lambda: described.name in process.running(home))
    return running


def eventually(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)


def test_a_started_server_is_found_with_its_children_and_stopped(home):
    start(server(home, WITH_CHILD), home)
    eventually(lambda: len(process.running(home)["sleeper"].processes) == 2)
    process.stop("sleeper", home)
    assert process.running(home) == {}


def test_a_server_that_ignores_the_polite_signal_is_killed(home, monkeypatch):
    monkeypatch.setattr(process, "STOP_SECONDS", 0.5)
    start(server(home, STUBBORN), home)
    eventually(lambda: "ready" in home.log("sleeper").read_text())
    process.stop("sleeper", home)
    assert process.running(home) == {}


def test_children_that_outlived_their_server_are_found_and_stopped(home):
    running = start(server(home, WITH_CHILD), home)
    eventually(lambda: len(process.running(home)["sleeper"].processes) == 2)
    os.kill(running.leader.pid, signal.SIGKILL)
    eventually(lambda: process.running(home)["sleeper"].leader is None)
    process.stop("sleeper", home)
    assert process.running(home) == {}


def test_processes_of_another_state_folder_are_left_alone(home, tmp_path):
    foreign = {**os.environ, "LAKEHOUSE_HOME": str(tmp_path / "other"), "LAKEHOUSE_SERVER": "sleeper"}
    with subprocess.Popen(SLEEPER, env=foreign) as other:
        process.stop("sleeper", home)
        assert other.poll() is None
        other.kill()


def test_a_server_that_ends_while_starting_is_reported_with_its_last_words(home):
    dies = (sys.executable, "-c", "print('noise'); raise OSError('Address already in use')")
    described = server(home, dies, ready=lambda: False)
    with pytest.raises(LakehouseError, match="sleeper ended while it started.*OSError: Address already in use"):
        start(described, home)


def test_a_server_that_does_not_get_ready_in_time_is_reported(home):
    with pytest.raises(LakehouseError, match="not ready after 1 s"):
        start(server(home, SLEEPER, ready=lambda: False, seconds=1), home)


def test_somebody_else_answering_on_the_port_is_not_taken_for_the_server(home):
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        port = foreign.getsockname()[1]
        with pytest.raises(LakehouseError, match="not ready"):
            start(server(home, SLEEPER, ports={"kafka": port}, seconds=1), home)


def test_a_running_server_is_recognised_by_how_it_was_started(home):
    described = server(home, SLEEPER, env={"A": "1"}, env_once={"PASSWORD": "x"})
    start(described, home)
    found = process.running(home)["sleeper"]
    assert found.is_of(server(home, SLEEPER, env={"A": "1"}, env_once={"PASSWORD": "y"}))
    assert not found.is_of(server(home, SLEEPER, env={"A": "2"}))
    assert found.env["PASSWORD"] == "x"


def test_secrets_are_in_no_representation(home):
    described = server(home, SLEEPER, env={"KEY": "s3cret"}, env_once={"PASSWORD": "s3cret"})
    assert "s3cret" not in repr(described)
    assert "s3cret" not in repr(process.start(described, home))
