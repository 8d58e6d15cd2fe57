"""Run the test files of a tier in two processes of pytest: `python -m tests.run_tier first`.

Each process collects only its own files. With pytest-xdist, each process collected all tests, which took 29 seconds of
CPU time, and started the stack. What is left of a tier when one of them has run its files, it runs in groups.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from tests import tiers

PROJECT = tiers.FOLDER.parent
REPORTS = PROJECT / "reports" / "tests"

COLOR = re.compile(r"\x1b\[[\d;]*m")
PROGRESS = re.compile(r"(\S+\.py)( |$)")
CLOSING = re.compile(r"=+ .*\bin \d+\.\d+s\b.* =+$")


class Part(threading.Thread):
    """A process of pytest with some files, whose progress is printed and whose summary is kept.

    After its files, it runs groups that no other part has run. If the process dies, because a test hangs and cannot be
    interrupted or a library crashes, that is a failure, and another process runs the files after the one that ran.
    """

    def __init__(self, name: str, files: Sequence[str], shared: deque[Sequence[str]]) -> None:
        super().__init__(name=name)
        self.summary: list[str] = []
        self.closing: list[str] = []
        self.code = 0
        self._groups, self._shared = deque([files]), shared
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def run(self) -> None:
        number = 0
        while not self._stopped and (files := self._next()):
            number += 1
            running, ended = self._run(files, f"{self.name}-{number}")
            if not ended:
                self.code = 1
                code = self._process.returncode
                self.closing.append(f"A process of pytest died in {running}, with exit code {code}.")
                if running in files[:-1]:
                    self._groups.append(files[files.index(running) + 1 :])

    def _next(self) -> list[str]:
        """Return the files that run next; none if all files have run."""
        for groups in (self._groups, self._shared):
            with suppress(IndexError):
                return [os.path.relpath(file, PROJECT) for file in groups.popleft()]
        return []

    def interrupt(self) -> None:
        """Let pytest end as after Ctrl-C: with the teardown of all fixtures, and a summary."""
        self._stopped = True
        if self._process:
            self._process.send_signal(signal.SIGINT)

    def _run(self, files: list[str], report: str) -> tuple[str, bool]:
        """Run files, and return the last one that started and whether pytest ended properly."""
        running, ended, summary = "", False, False
        command = [sys.executable, "-m", "pytest", "--no-header", "-o", "junit_family=xunit1"]
        command += [f"--junitxml={REPORTS / report}.xml", f"--color={'yes' if sys.stdout.isatty() else 'no'}", *files]
        # Another process group: Ctrl-C in a terminal would interrupt pytest directly and by `interrupt`, and the second
        # interrupt would end the teardown of the first one.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=PROJECT,
            process_group=0,
            env=os.environ | {"COLUMNS": str(shutil.get_terminal_size().columns)},
        )
        for line in self._process.stdout:
            plain = COLOR.sub("", line).rstrip()
            summary = summary or bool(re.match("[=!-]", plain) and "test session starts" not in plain)
            if CLOSING.match(plain):
                self.closing.append(line.rstrip())
                ended = True
            elif summary and "generated xml file" not in plain:
                self.summary.append(line)
            elif plain and not summary and not plain.startswith("="):
                sys.stdout.write(line.rstrip("\n") + "\n")
                sys.stdout.flush()
            if not summary and (progress := PROGRESS.match(plain)):
                running = progress[1]
        self.code = max(self.code, abs(self._process.wait()))
        return running, ended


def run(name: str, divided: Sequence[Sequence[str]], groups: Sequence[Sequence[str]] = ()) -> int:
    """Run the files of each part and the groups that they share, print the output, and return the exit code."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    for report in REPORTS.glob(f"{name}-*.xml"):
        report.unlink()
    started = time.monotonic()
    shared = deque(groups)
    parts = [Part(f"{name}-{number}", files, shared) for number, files in enumerate(divided, 1)]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: [part.interrupt() for part in parts])
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    print(*(line for part in parts for line in part.summary), sep="", end="")
    print(*(line for part in parts for line in part.closing), sep="\n")
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    code = max(part.code for part in parts)
    print(f"{'failed' if code else 'passed'} in {minutes} min {seconds} s")
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], *tiers.share(tiers.files(sys.argv[1]))))
