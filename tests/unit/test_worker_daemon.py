"""The process that Spark forks Python workers from, by the protocol of PySpark's daemon."""

import os
import socket
import struct
import subprocess
import sys
import tempfile
import time

import psutil
import pytest

IDLE_SECONDS = 0.5
LONGEST = 60.0


@pytest.fixture
def daemon():
    """Start the process, and yield it with the path of its socket, which has at most about a hundred characters."""
    with tempfile.TemporaryDirectory() as folder:
        yield from started(folder)


def started(folder):
    """Start the process, whose socket is in a folder."""
    code = f"from spark import worker_daemon; worker_daemon.run({IDLE_SECONDS})"
    environment = {**os.environ, "PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": folder}
    command = [sys.executable, "-c", code, "pyspark.worker"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    [length] = struct.unpack("!i", process.stdout.read(4))
    yield process, process.stdout.read(length).decode()
    process.kill()
    process.wait()
    process.stdout.close()


def worker_of(path):
    """Request a worker, and return its connection and its process."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    [pid] = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
    return connection, psutil.Process(pid)


def test_daemon_remains_with_a_worker_and_ends_without(daemon):
    process, path = daemon
    connection, worker = worker_of(path)

    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(8 * IDLE_SECONDS)
    assert worker.is_running()

    connection.close()
    process.wait(LONGEST)
    assert not os.path.exists(path)


def test_daemon_ends_with_spark(daemon):
    process, path = daemon
    _, worker = worker_of(path)

    process.stdin.close()

    process.wait(LONGEST)
    deadline = time.monotonic() + LONGEST
    while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
