"""Servers start one stack at a time: two processes of tests would choose the same ports, where nobody listens yet."""

import os
import tempfile
from pathlib import Path

from filelock import FileLock

ONE_AT_A_TIME = FileLock(Path(tempfile.gettempdir()) / f"lakehouse-tests-{os.getuid()}.lock")
