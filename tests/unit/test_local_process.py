"""Starting, awaiting, finding and stopping, on small servers of the test's own."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event

import pytest
import yaml

from lakehouse.config.loader import PROJECT
from lakehouse.core.errors import LakehouseError
from lakehouse.local import inherited, process
from lakehouse.local.home import Home
from lakehouse.local.java import java
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


def said(home, code, **fields):
    """What a server prints that runs some Python."""
    start(server(home, (sys.executable, "-uc", f"{code}; import time; time.sleep(60)"), **fields), home)
    eventually(lambda: home.log("sleeper").read_text().endswith("\n"))
    return home.log("sleeper").read_text().strip()


ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


def test_a_server_gets_no_variable_that_it_does_not_need(home, monkeypatch):
    monkeypatch.setenv("CONFLUENT_CLOUD_API_SECRET", "canary")
    monkeypatch.setenv("LAKEHOUSE_ALERT_WEBHOOK", "canary")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    env = json.loads(said(home, ENVIRONMENT, env={"OWN": "1"}))
    assert "canary" not in env.values()
    assert (env["OWN"], env["LC_ALL"], env["PATH"]) == ("1", "C.UTF-8", os.environ["PATH"])


def test_a_server_gets_the_variables_that_it_names(home, monkeypatch):
    monkeypatch.setenv("NEEDED", "1")
    monkeypatch.setenv("FAMILY_MEMBER", "2")
    monkeypatch.setenv("STRANGER", "3")
    env = json.loads(said(home, ENVIRONMENT, inherits=lambda: ("NEEDED", "FAMILY_*")))
    assert (env["NEEDED"], env["FAMILY_MEMBER"]) == ("1", "2") and "STRANGER" not in env


def test_project_code_gets_what_the_environment_in_use_and_its_transforms_read(tmp_path, monkeypatch):
    text = yaml.safe_load((PROJECT / "lakehouse.yaml").read_text())
    text["environments"]["local"]["alerts"]["url"] = {"env": "OUR_WEBHOOK"}
    text["topics"] = {}
    (tmp_path / "lakehouse.yaml").write_text(yaml.safe_dump(text))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(tmp_path / "lakehouse.yaml"))
    monkeypatch.setenv("LAKEHOUSE_PASS_ENV", "MINE, OTHER")
    for name in ("OUR_WEBHOOK", "MINE", "OTHER", "KAFKA_API_SECRET", "HTTPS_PROXY", "LAKEHOUSE_ENV"):
        monkeypatch.setenv(name, "local" if name == "LAKEHOUSE_ENV" else "x")
    assert {"OUR_WEBHOOK", "MINE", "OTHER", "HTTPS_PROXY"} <= set(inherited.selected(inherited.for_project_code()))
    assert "KAFKA_API_SECRET" not in inherited.selected(inherited.for_project_code())
    monkeypatch.setenv("LAKEHOUSE_ENV", "aws")
    assert "KAFKA_API_SECRET" in inherited.selected(inherited.for_project_code())


@pytest.fixture
def short():
    """A folder whose name is short, as those of tests are not."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    "name, place", [("home", "home/tmp/sleeper"), ("of a user with a long name/" * 4 + "home", "cache/tmp/*/sleeper")]
)
def test_a_server_has_a_temporary_folder_of_its_own_which_is_empty_and_holds_sockets(short, monkeypatch, name, place):
    monkeypatch.setenv("LAKEHOUSE_CACHE", str(short / "cache"))
    home = Home(short / name)
    code = """
import multiprocessing.connection, os, stat, tempfile
folder = tempfile.gettempdir()
print(stat.S_IMODE(os.stat(folder).st_mode) == 0o700, os.listdir(folder), flush=True)
multiprocessing.connection.Listener(family="AF_UNIX")
open(os.path.join(folder, "left"), "w")
print("done", flush=True)
import time
time.sleep(60)
"""
    try:
        for _ in range(2):
            start(server(home, (sys.executable, "-c", code)), home)
            eventually(lambda: re.search("done|Error", home.log("sleeper").read_text()))
            assert home.log("sleeper").read_text() == "True []\ndone\n"
            process.stop("sleeper", home)
    finally:
        process.stop("sleeper", home)
    (temporary,) = short.glob(place)
    assert (temporary / "left").exists()


def test_a_jvm_has_its_temporary_folder_there_too(short):
    with_space = Home(short / "with a space and a quote'")
    show = server(with_space, java("-XshowSettings:properties", "-version", heap="32m"), name="java")
    process.start(show, with_space)
    try:
        shown = f"java.io.tmpdir = {with_space.path}/tmp/java"
        eventually(lambda: shown in with_space.log("java").read_text())
    finally:
        process.stop("java", with_space)


def test_what_a_server_writes_is_its_owners_only(home):
    written = home.path / "written"
    said(home, f"open({str(written)!r}, 'w'); print(1)")
    modes = {file: stat.S_IMODE(file.stat().st_mode) for file in [written, home.log("sleeper"), home.path]}
    assert not [file for file, mode in modes.items() if mode & 0o077]
