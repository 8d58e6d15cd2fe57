"""The state folder: lock, files, ports, permissions and disk space."""

import json
import os
import socket
import stat
import subprocess
import sys
import uuid
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import quote

import dagster as dg
import pytest

from assets.embedded_stack import disk_space
from lakehouse.core.errors import LakehouseError
from lakehouse.local import doctor, show, stack
from lakehouse.local import home as home_module
from lakehouse.local.client_environment import environment
from lakehouse.local.home import Credentials, Home, explain_full_disk, write_atomically
from lakehouse.local.java import property_value
from lakehouse.local.processes import ports
from tools.repository import PROJECT

AS_USER = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
"""Command prefix with which root is subject to the modes of files like other users, and can still start Python from a
folder that only root can enter."""


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def test_exclusive_second_process_is_refused(home):
    program = f"""
from pathlib import Path
from lakehouse.local.home import Home
with Home(Path({str(home.path)!r})).exclusive():
    pass
"""
    with home.exclusive():
        second = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert f"process {os.getpid()}" in second.stderr
    with home.exclusive():  # released
        pass


def test_require_usable_too_little_disk_writes_nothing(home, monkeypatch):
    monkeypatch.setattr(home_module, "NEEDED_BYTES", 1 << 60)
    with pytest.raises(LakehouseError, match="GiB free.*Nothing was started.*LAKEHOUSE_HOME"):
        home.require_usable()
    assert not home.path.exists()


def test_disk_space_low_is_reported_while_stack_runs(home, monkeypatch, capsys):
    monkeypatch.setenv("LAKEHOUSE_HOME", str(home.path))
    with dg.build_sensor_context() as context:
        assert "GiB are free" in disk_space(context).skip_message
        monkeypatch.setattr(home_module, "LOW_BYTES", 1 << 60)
        with pytest.raises(LakehouseError, match="GiB free.*complete data is not affected.*lakehouse up"):
            disk_space(context)
    show.servers(stack.status(home), home)
    assert "GiB free" in capsys.readouterr().out


def test_require_usable_path_with_colon_is_refused(tmp_path):
    with pytest.raises(LakehouseError, match="':'"):
        Home(tmp_path / "a:b").require_usable()


@pytest.mark.parametrize("path", ["/proc/lakehouse", "/proc/version/lakehouse", "/sys/kernel/lakehouse"])
def test_require_usable_path_without_write_access_is_refused(path):
    with pytest.raises(LakehouseError, match=f"{path} cannot be written.*Nothing was started.*LAKEHOUSE_HOME"):
        Home(Path(path)).require_usable()


def test_require_usable_file_in_place_of_folder_is_refused(tmp_path):
    (tmp_path / "home").write_text("")
    home = Home(tmp_path / "home")
    with pytest.raises(LakehouseError, match="home cannot be written.*Not a directory"):
        home.require_usable()
    [disk] = [diagnostic for diagnostic in doctor.examine(home) if diagnostic.subject == "Disk"]
    assert not disk.ok and "cannot be written" in disk.observation and "LAKEHOUSE_HOME" in disk.remedy


def test_require_usable_new_folder_leaves_nothing(tmp_path):
    Home(tmp_path / "a" / "b").require_usable()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's device that is always full")
def test_explain_full_disk_raises_one_sentence():
    with (
        pytest.raises(LakehouseError, match="The disk is full"),
        explain_full_disk("/dev/full"),
        open("/dev/full", "w") as full,
    ):
        full.write("x")
        full.flush()


def test_write_atomically_failure_keeps_old_file(home, monkeypatch):
    write_atomically(home.endpoints, "old")
    monkeypatch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError):
        write_atomically(home.endpoints, "new")
    assert home.endpoints.read_text() == "old"
    assert [file.name for file in home.path.iterdir()] == ["endpoints.json"]


def test_credentials_are_created_once_and_private(home):
    first = Credentials.of(home)
    assert Credentials.of(home) == first
    files = list((home.path / "secrets").iterdir())
    assert len(files) == 5
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    for secret in (first.aws_secret_access_key, first.spark_token, first.ui_token, first.kafka_password):
        assert secret not in repr(first)


def choose(home, in_use):
    """Return the ports that a stack chooses, without starting it."""
    with ports.chosen(home, in_use) as chosen:
        return chosen


def test_ports_repeated_choice_is_stable(home):
    assert choose(home, {}) == choose(home, {}) == ports.recorded(home)


def test_ports_occupied_port_is_replaced(home):
    chosen = choose(home, {})
    with socket.create_server(("127.0.0.1", chosen["kafka"])):
        second = choose(home, {})
    assert second["kafka"] != chosen["kafka"]
    assert len(set(second.values())) == len(ports.USUAL)
    assert {name: second[name] for name in second if name != "kafka"} == {
        name: chosen[name] for name in chosen if name != "kafka"
    }


def test_ports_are_below_ephemeral_range(home):
    with ExitStack() as servers:
        for port in ports.USUAL.values():
            with suppress(OSError):
                servers.enter_context(socket.create_server(("127.0.0.1", port)))
        # Linux assigns outgoing connections ports from 32768, other systems from higher ones.
        assert max(choose(home, {}).values()) < 32_768


def test_ports_of_running_servers_are_kept(home):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert choose(home, {"kafka": port})["kafka"] == port


@pytest.mark.parametrize("content", ["", '{"kafka": 90', "[]", '{"kafka": "x"}', "null"])
def test_ports_damaged_record_is_replaced(home, content):
    write_atomically(home.endpoints, content)
    assert set(choose(home, {})) == set(ports.USUAL)
    assert ports.recorded(home)


STARTING_PROGRAM = """
import json, sys
from pathlib import Path
from lakehouse.local import doctor, show, stack
from lakehouse.local.home import Home
from lakehouse.local.processes import ports
with ports.chosen(Home(Path(sys.argv[1])), {}) as chosen:
    print(json.dumps(chosen), flush=True)
    sys.stdin.read()
"""


def test_ports_of_stack_that_starts_are_not_chosen_by_another(home, tmp_path):
    recorded = choose(home, {})
    other = tmp_path / "other"
    other.mkdir()
    write_atomically(other / "endpoints.json", json.dumps(recorded))
    command = [sys.executable, "-c", STARTING_PROGRAM, str(other)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starting:
        assert json.loads(starting.stdout.readline()) == recorded
        meanwhile = choose(home, {})
        starting.kill()
    assert not {*meanwhile.values()} & {*recorded.values()}
    assert choose(Home(other), {}) == recorded  # the killed process reserves nothing


def test_ports_chosen_at_once_differ(home, tmp_path):
    with ports.chosen(home, {}) as first, ports.chosen(Home(tmp_path / "other"), {}) as second:
        assert not {*first.values()} & {*second.values()}


def test_exclusive_lock_is_private_and_follows_no_link(home, tmp_path):
    with home.exclusive():
        lock = home.path / "lock"
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    lock.unlink()
    lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LakehouseError, match="symbolic link"), home.exclusive():
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_folder_every_level_is_private(home):
    home.folder("a/b")
    folders = [home.path, home.path / "a", home.path / "a" / "b"]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


def test_environment_without_stack_raises(home):
    choose(home, {})
    with pytest.raises(LakehouseError, match="not up.*lakehouse up"):
        environment(home)


@pytest.mark.parametrize("length", [1, 150])
def test_sockets_path_is_short_and_private(tmp_path, length):
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
def test_sockets_folder_open_to_others_is_refused(tmp_path, spoil):
    home = Home(tmp_path / ("h" * 150))
    folder = home.sockets()
    try:
        spoil(folder)
        with pytest.raises(LakehouseError, match=f"{folder}, the folder for the sockets.*Nothing was started"):
            home.sockets()
    finally:
        folder.unlink() if folder.is_symlink() else folder.rmdir()


@pytest.mark.parametrize("name", ["a b", "Zoë", "it's"])
def test_sockets_path_is_valid_in_uri(name):
    home = Home(Path("/tmp") / name)  # noqa: S108 (nothing is created there)
    try:
        assert quote(str(home.sockets())) == str(home.sockets())
        assert not home.path.exists()
    finally:
        home.remove_sockets()


def test_property_value_escapes_characters_that_java_misreads():
    assert property_value(Path("/Zoë's 😀")) == r"/Zo\u00eb's \ud83d\ude00"


@pytest.mark.parametrize("command", ["status", "down"])
def test_state_folder_of_other_user_is_reported_without_traceback(tmp_path, command):
    (tmp_path / "home").mkdir(mode=0)
    env = {**os.environ, "LAKEHOUSE_HOME": str(tmp_path / "home")}
    command = [*AS_USER, sys.executable, "-m", "lakehouse.cli.main", command]
    result = subprocess.run(command, env=env, capture_output=True, text=True, cwd=PROJECT)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert f"Error: The state folder {tmp_path / 'home'} is not accessible: Permission denied" in result.stderr
