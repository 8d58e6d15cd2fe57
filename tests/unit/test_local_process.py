"""Start, readiness, lookup and stop of servers, with small programs as servers."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Event

import pytest
import yaml

from lakehouse.core.errors import LakehouseError
from lakehouse.local.home import Home
from lakehouse.local.java import java
from lakehouse.local.processes import process
from lakehouse.local.processes.description import Server, for_project_code, inherited_variables
from tests.support.waiting import wait_until
from tools.repository import PROJECT

SLEEPER = (sys.executable, "-c", "import time; time.sleep(60)")
WITH_CHILD = (sys.executable, "-c", f"import subprocess; subprocess.run({list(SLEEPER)!r})")
IGNORES_SIGTERM = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)",
)


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    yield home
    process.stop(home, *process.running(home))


def server(home, command, **fields):
    defaults = {"name": "sleeper", "folder": home.path, "address": "", "ready": lambda: True, "env": {}}
    return Server(**{**defaults, "command": command, **fields})


def start(config, home):
    running = process.start(config, home)
    process.wait_until_ready(config, running.leader, home, Event())
    # Just after its start, the system shows a process without its environment.
    wait_until(lambda: config.name in process.running(home))
    return running


def output_of_stopped(home, code):
    """Start a server with this program, stop it once it has printed `ready`, and return its output."""
    start(server(home, (sys.executable, "-c", code)), home)
    wait_until(lambda: "ready" in home.log("sleeper").read_text())
    process.stop(home, "sleeper")
    assert process.running(home) == {}
    return home.log("sleeper").read_text()


def test_running_server_is_listed_with_children_and_stopped(home):
    start(server(home, WITH_CHILD), home)
    wait_until(lambda: len(process.running(home)["sleeper"].processes) == 2)
    process.stop(home, "sleeper")
    assert process.running(home) == {}


def test_stop_server_ignoring_sigterm_kills_it(home, monkeypatch):
    monkeypatch.setattr(process, "REPEAT_SECONDS", 0.2)
    monkeypatch.setattr(process, "STOP_SECONDS", 0.5)
    start(server(home, IGNORES_SIGTERM), home)
    wait_until(lambda: "ready" in home.log("sleeper").read_text())
    process.stop(home, "sleeper")
    assert process.running(home) == {}


def test_stop_server_that_loses_first_sigterm_ends_it_by_second(home, monkeypatch):
    monkeypatch.setattr(process, "REPEAT_SECONDS", 0.2)
    code = """
import signal, sys, time
signals = []
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("ended", flush=True)) if signals else signals.append(1))
print("ready", flush=True)
time.sleep(60)
"""
    assert output_of_stopped(home, code) == "ready\nended\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_start_by_process_that_ignores_signal_gives_server_default(home, number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with process.default_signals():
            running = start(server(home, SLEEPER), home)
            os.kill(os.getpid(), number)
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)
    running.leader.send_signal(number)
    wait_until(lambda: not process.is_alive(running.leader))


def test_stop_servers_signals_all_before_waiting_for_any(home):
    # Each ends only when the other has received SIGTERM too.
    code = """
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path(sys.argv[1]).touch()
    while not pathlib.Path(sys.argv[2]).exists():
        time.sleep(0.01)
    print("ended", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""
    files = {name: str(home.folder("") / f"{name}.signalled") for name in ("one", "two")}
    for name, other in (("one", "two"), ("two", "one")):
        start(server(home, (sys.executable, "-c", code, files[name], files[other]), name=name), home)
        wait_until(lambda name=name: "ready" in home.log(name).read_text())
    process.stop(home, "one", "two")
    assert process.running(home) == {}
    assert [home.log(name).read_text() for name in files] == ["ready\nended\n"] * 2


def test_stop_server_with_new_child_ends_child_by_sigterm(home):
    child = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("ended", flush=True)))
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
time.sleep(60)
"""
    # The child inherits that SIGTERM is blocked until it handles it.
    code = f"""
import signal, subprocess, sys, time
def end(*_):
    signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM}})
    sys.exit(subprocess.run([sys.executable, "-c", {child!r}]).returncode)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""
    assert output_of_stopped(home, code) == "ready\nended\n"


def test_stop_finds_children_that_outlived_their_server(home):
    running = start(server(home, WITH_CHILD), home)
    wait_until(lambda: len(process.running(home)["sleeper"].processes) == 2)
    os.kill(running.leader.pid, signal.SIGKILL)
    wait_until(lambda: process.running(home)["sleeper"].leader is None)
    process.stop(home, "sleeper")
    assert process.running(home) == {}


def test_stop_leaves_processes_of_other_state_folder(home, tmp_path):
    foreign_env = {**os.environ, "LAKEHOUSE_HOME": str(tmp_path / "other"), "LAKEHOUSE_SERVER": "sleeper"}
    with subprocess.Popen(SLEEPER, env=foreign_env) as foreign:
        process.stop(home, "sleeper")
        assert foreign.poll() is None
        foreign.kill()


def test_start_server_that_exits_reports_its_last_output(home):
    failing = (sys.executable, "-c", "print('noise'); raise OSError('Address already in use')")
    config = server(home, failing, ready=lambda: False)
    with pytest.raises(LakehouseError, match="sleeper exited during its start.*OSError: Address already in use"):
        start(config, home)


def test_start_server_not_ready_in_time_is_reported(home):
    with pytest.raises(LakehouseError, match="not ready after 1 s"):
        start(server(home, SLEEPER, ready=lambda: False, seconds=1), home)


def test_start_foreign_listener_on_port_does_not_count_as_ready(home):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(LakehouseError, match="not ready"):
            start(server(home, SLEEPER, ports={"kafka": port}, seconds=1), home)


def test_is_of_compares_command_and_environment(home):
    config = server(home, SLEEPER, env={"A": "1"}, env_once={"PASSWORD": "x"})
    start(config, home)
    running = process.running(home)["sleeper"]
    assert running.is_of(server(home, SLEEPER, env={"A": "1"}, env_once={"PASSWORD": "y"}))
    assert not running.is_of(server(home, SLEEPER, env={"A": "2"}))
    assert running.env["PASSWORD"] == "x"


def test_repr_contains_no_secrets(home):
    config = server(home, SLEEPER, env={"KEY": "s3cret"}, env_once={"PASSWORD": "s3cret"})
    assert "s3cret" not in repr(config)
    assert "s3cret" not in repr(process.start(config, home))


def output_of(home, code, **fields):
    """Start a server that runs Python code, and return its output."""
    start(server(home, (sys.executable, "-uc", f"{code}; import time; time.sleep(60)"), **fields), home)
    wait_until(lambda: home.log("sleeper").read_text().endswith("\n"))
    return home.log("sleeper").read_text().strip()


ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


def test_environment_excludes_unneeded_variables(home, monkeypatch):
    monkeypatch.setenv("CONFLUENT_CLOUD_API_SECRET", "canary")
    monkeypatch.setenv("LAKEHOUSE_ALERT_WEBHOOK", "canary")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    env = json.loads(output_of(home, ENVIRONMENT, env={"OWN": "1"}))
    assert "canary" not in env.values() and "PYTHONDONTWRITEBYTECODE" not in env
    assert (env["OWN"], env["LC_ALL"], env["PATH"]) == ("1", "C.UTF-8", os.environ["PATH"])


def test_environment_includes_inherited_variables(home, monkeypatch):
    monkeypatch.setenv("NEEDED", "1")
    monkeypatch.setenv("FAMILY_MEMBER", "2")
    monkeypatch.setenv("STRANGER", "3")
    env = json.loads(output_of(home, ENVIRONMENT, inherits=lambda: ("NEEDED", "FAMILY_*")))
    assert (env["NEEDED"], env["FAMILY_MEMBER"]) == ("1", "2") and "STRANGER" not in env


def test_environment_of_project_code_includes_what_config_reads(tmp_path, monkeypatch):
    text = yaml.safe_load((PROJECT / "lakehouse.yaml").read_text())
    text["environments"]["local"]["alerts"]["url"] = {"env": "OUR_WEBHOOK"}
    text["topics"] = {}
    (tmp_path / "lakehouse.yaml").write_text(yaml.safe_dump(text))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(tmp_path / "lakehouse.yaml"))
    monkeypatch.setenv("LAKEHOUSE_PASS_ENV", "MINE, OTHER")
    for name in ("OUR_WEBHOOK", "MINE", "OTHER", "KAFKA_API_SECRET", "HTTPS_PROXY", "LAKEHOUSE_ENV"):
        monkeypatch.setenv(name, "local" if name == "LAKEHOUSE_ENV" else "x")
    assert {"OUR_WEBHOOK", "MINE", "OTHER", "HTTPS_PROXY"} <= set(inherited_variables(for_project_code()))
    assert "KAFKA_API_SECRET" not in inherited_variables(for_project_code())
    monkeypatch.setenv("LAKEHOUSE_ENV", "aws")
    assert "KAFKA_API_SECRET" in inherited_variables(for_project_code())


@pytest.fixture
def short_folder():
    """Create a folder with a short path, unlike pytest's."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    "name, place", [("home", "home/tmp/sleeper"), ("of a user with a long name/" * 4 + "home", "cache/tmp/*/sleeper")]
)
def test_temporary_folder_is_private_empty_and_fits_sockets(short_folder, monkeypatch, name, place):
    monkeypatch.setenv("LAKEHOUSE_CACHE", str(short_folder / "cache"))
    home = Home(short_folder / name)
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
            wait_until(lambda: re.search("done|Error", home.log("sleeper").read_text()))
            assert home.log("sleeper").read_text() == "True []\ndone\n"
            process.stop(home, "sleeper")
    finally:
        process.stop(home, "sleeper")
    (temporary,) = short_folder.glob(place)
    assert (temporary / "left").exists()


def test_temporary_folder_of_jvm_is_in_state_folder(short_folder):
    with_space = Home(short_folder / "with a space and a quote'")
    java_server = server(with_space, java("-XshowSettings:properties", "-version", heap="32m"), name="java")
    process.start(java_server, with_space)
    try:
        setting = f"java.io.tmpdir = {with_space.path}/tmp/java"
        wait_until(lambda: setting in with_space.log("java").read_text())
    finally:
        process.stop(with_space, "java")


def test_files_of_server_are_private(home):
    file = home.path / "written"
    output_of(home, f"open({str(file)!r}, 'w'); print(1)")
    modes = {file: stat.S_IMODE(file.stat().st_mode) for file in [file, home.log("sleeper"), home.path]}
    assert not [file for file, mode in modes.items() if mode & 0o077]
