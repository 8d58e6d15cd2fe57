"""Rotation of logs that servers are writing."""

import subprocess
import sys

import pytest

from lakehouse.local.processes import logs
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def small_limit(monkeypatch):
    monkeypatch.setattr(logs, "MAX_BYTES", 1000)


def test_shorten_log_being_written_stays_small(tmp_path):
    log = tmp_path / "kafka.log"
    with log.open("ab", buffering=0) as server:
        for number in range(10):
            server.write(f"{number}\n".encode() * 600)
            logs.shorten(tmp_path)
        server.write(b"last\n")
    assert log.read_text() == "last\n"
    assert (tmp_path / "kafka.log.1").read_text() == "9\n" * 600
    assert {file.name for file in tmp_path.iterdir()} == {"kafka.log", "kafka.log.1", "kafka.log.2"}
    assert all(file.stat().st_mode & 0o077 == 0 for file in tmp_path.glob("*.?"))


def test_shorten_small_log_is_unchanged(tmp_path):
    (tmp_path / "kafka.log").write_text("short")
    logs.shorten(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["kafka.log"]


def test_shorten_log_that_cannot_be_copied_is_emptied(tmp_path):
    (tmp_path / "kafka.log").write_text("x" * 2000)
    code = f"""
import resource
from pathlib import Path
from lakehouse.local.processes import logs
logs.MAX_BYTES = 1000
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))  # a longer file cannot be written, as on a full disk
logs.shorten(Path({str(tmp_path)!r}))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert [file.name for file in tmp_path.iterdir()] == ["kafka.log"]
    assert (tmp_path / "kafka.log").read_text() == ""


def test_set_aside_keeps_logs_of_earlier_starts(tmp_path):
    log = tmp_path / "kafka.log"
    for number in range(5):
        logs.set_aside(log)
        log.write_text(str(number))
    assert [(tmp_path / f"kafka.log{end}").read_text() for end in ("", ".1", ".2")] == ["4", "3", "2"]
    assert len(list(tmp_path.iterdir())) == 3


def test_logs_process_shortens_until_killed(tmp_path):
    with subprocess.Popen([sys.executable, "-P", "-m", "lakehouse.local.processes.logs", str(tmp_path)]) as rotation:
        try:
            for _ in range(2):
                (tmp_path / "s3.log").write_bytes(b"x" * (11 * 1024 * 1024))
                wait_until(lambda: not (tmp_path / "s3.log").stat().st_size, seconds=20)
                assert rotation.poll() is None
        finally:
            rotation.kill()
