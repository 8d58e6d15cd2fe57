"""The state folder: its lock, its files, and a machine that cannot carry the stack."""

import os
import socket
import stat
import subprocess
import sys
import uuid

import pytest

from lakehouse.errors import LakehouseError
from lakehouse.local import home as home_module
from lakehouse.local import ports
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
    assert len(files) == 4
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    secrets = (first.aws_secret_access_key, first.spark_token, first.kafka_password)
    assert not any(secret in repr(first) for secret in secrets)


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


def test_the_ports_of_running_servers_stay_although_they_are_taken(home):
    with socket.create_server(("127.0.0.1", 0)) as running:
        port = running.getsockname()[1]
        assert ports.choose(home, {"kafka": port})["kafka"] == port


@pytest.mark.parametrize("content", ["", '{"kafka": 90', "[]", '{"kafka": "x"}', "null"])
def test_a_damaged_record_of_ports_is_replaced(home, content):
    write_atomically(home.endpoints, content)
    assert set(ports.choose(home, {})) == set(ports.USUAL)
    assert ports.recorded(home)


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
