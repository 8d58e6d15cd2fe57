"""Ctrl-C is acknowledged at once, even in a call that does not return to Python."""

import signal
import subprocess
import sys

import pytest

HANG = """
import hashlib, signal
from lakehouse.cli import interrupts
interrupts.acknowledge()
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGINT, lambda *_: None)
print("ready", flush=True)
hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_during_foreign_call_prints_one_line(number):
    program = [sys.executable, "-c", HANG]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stderr.readline() == "\n" and process.stderr.readline().startswith("Stopping.")
        process.kill()
