"""The state folder: its lock, its files, and a machine that cannot carry the stack."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
import uuid
from contextlib import ExitStack, suppress

import dagster as dg
import pytest

from assets.sensors.disk_space import disk_space
from lakehouse.core.errors import LakehouseError
from lakehouse.local import home as home_module
from lakehouse.local import ports, show, stack
from lakehouse.local.credentials import Credentials
from lakehouse.local.environment import environment
from lakehouse.local.home import Home, explain_full_disk, write_atomically


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def test_only_one_command_at_a_time(home):
    take = f"""
from pathlib import Path
from lakehouse.local.home import Home
with Home(Path({str(home.path)!r})).exclusive():
    pass
"""
    with home.exclusive():
        second = subprocess.run([sys.executable, "-c", take], capture_output=True, text=True)
    assert f"process {os.getpid()}" in second.stderr
    with home.exclusive():  # free again
        pass


def test_too_little_disk_is_refused_before_anything_is_written(home, monkeypatch):
    monkeypatch.setattr(home_module, "NEEDED_BYTES", 1 << 60)
    with pytest.raises(LakehouseError, match="GiB free.*Nothing was started.*LAKEHOUSE_HOME"):
        home.require_usable()
    assert not home.path.exists()


def test_a_disk_that_fills_is_noticed_while_the_stack_runs(home, monkeypatch, capsys):
    monkeypatch.setenv("LAKEHOUSE_HOME", str(home.path))
    with dg.build_sensor_context() as context:
        assert "GiB are free" in disk_space(context).skip_message
        monkeypatch.setattr(home_module, "LOW_BYTES", 1 << 60)
        with pytest.raises(LakehouseError, match="GiB free.*what was complete before stays.*lakehouse up"):
            disk_space(context)
    show.servers(stack.status(home), home)
    assert "GiB free" in capsys.readouterr().out


def test_a_name_that_java_cannot_hold_is_refused(tmp_path):
    with pytest.raises(LakehouseError, match="':'"):
        Home(tmp_path / "a:b").require_usable()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's device that is always full")
def test_a_full_disk_is_one_sentence():
    with (
        pytest.raises(LakehouseError, match="The disk is full"),
        explain_full_disk("/dev/full"),
        open("/dev/full", "w") as full,
    ):
        full.write("x")
        full.flush()


def test_a_failed_write_leaves_the_old_file(home, monkeypatch):
    write_atomically(home.endpoints, "old")
    monkeypatch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError):
        write_atomically(home.endpoints, "new")
    assert home.endpoints.read_text() == "old"
    assert [file.name for file in home.path.iterdir()] == ["endpoints.json"]


def test_credentials_are_made_once_and_are_their_owners_only(home):
    first = Credentials.of(home)
    assert Credentials.of(home) == first
    files = list((home.path / "secrets").iterdir())
    assert len(files) == 5
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    for secret in (first.aws_secret_access_key, first.spark_token, first.ui_token, first.kafka_password):
        assert secret not in repr(first)


def test_ports_stay_from_run_to_run(home):
    assert ports.choose(home, {}) == ports.choose(home, {}) == ports.recorded(home)


def test_a_taken_port_yields_another(home):
    chosen = ports.choose(home, {})
    with socket.create_server(("127.0.0.1", chosen["kafka"])):
        again = ports.choose(home, {})
    assert again["kafka"] != chosen["kafka"]
    assert len(set(again.values())) == len(ports.USUAL)
    assert {name: again[name] for name in again if name != "kafka"} == {
        name: chosen[name] for name in chosen if name != "kafka"
    }


def test_no_port_is_one_that_an_outgoing_connection_may_take_while_its_server_restarts(home):
    with ExitStack() as others:
        for port in ports.USUAL.values():
            with suppress(OSError):
                others.enter_context(socket.create_server(("127.0.0.1", port)))
        # What Linux gives to outgoing connections begins at 32768, and later on other systems.
        assert max(ports.choose(home, {}).values()) < 32_768


def test_the_ports_of_running_servers_stay_although_they_are_taken(home):
    with socket.create_server(("127.0.0.1", 0)) as running:
        port = running.getsockname()[1]
        assert ports.choose(home, {"kafka": port})["kafka"] == port


@pytest.mark.parametrize("content", ["", '{"kafka": 90', "[]", '{"kafka": "x"}', "null"])
def test_a_damaged_record_of_ports_is_replaced(home, content):
    write_atomically(home.endpoints, content)
    assert set(ports.choose(home, {})) == set(ports.USUAL)
    assert ports.recorded(home)


HOLD = """
import sys
from lakehouse.local import ports, show, stack
with ports.in_turn():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_stack_that_starts_for_too_long_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKEHOUSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(ports, "TURN_SECONDS", 0.3)
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(LakehouseError, match=f"process {other.pid}.*Nothing was started.*try again"),
            ports.in_turn(),
        ):
            pass
        other.stdin.close()
        other.wait()
        with ports.in_turn():  # free again
            pass


def test_no_lock_is_where_others_can_write_or_follows_a_link(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKEHOUSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "shared"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "shared").mkdir()
    with ports.in_turn():
        assert list((tmp_path / "shared").iterdir()) == []
    (lock,) = (tmp_path / "cache").iterdir()
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    lock.unlink()
    lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LakehouseError, match="symbolic link"), ports.in_turn():
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_every_folder_of_a_state_folder_is_its_owners_only(home):
    home.folder("a/b")
    folders = [home.path, home.path / "a", home.path / "a" / "b"]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


def test_there_is_no_environment_without_a_stack(home):
    ports.choose(home, {})
    with pytest.raises(LakehouseError, match="not up.*lakehouse up"):
        environment(home)


@pytest.mark.parametrize("length", [1, 150])
def test_sockets_fit_into_a_folder_of_their_owners_only(tmp_path, length):
    home = Home(tmp_path / ("h" * length))
    folder = home.sockets()
    try:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and folder.stat().st_uid == os.getuid()
        assert home.sockets() == folder
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(folder / f".{uuid.uuid4()}.sock"))
    finally:
        home.remove_sockets()
    assert folder.exists() == folder.is_relative_to(home.path)


@pytest.mark.parametrize(
    "spoil", [lambda path: path.chmod(0o777), lambda path: (path.rmdir(), path.symlink_to("/tmp"))]
)
def test_a_folder_for_sockets_that_others_could_enter_is_refused(tmp_path, spoil):
    home = Home(tmp_path / ("h" * 150))
    folder = home.sockets()
    try:
        spoil(folder)
        with pytest.raises(LakehouseError, match=f"{folder} is not a folder of yours alone.*Nothing was started"):
            home.sockets()
    finally:
        folder.unlink() if folder.is_symlink() else folder.rmdir()
