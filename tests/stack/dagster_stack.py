"""A Dagster of a test's own, on the shared stack: it knows one topic, and its daemon runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from support import Stream

from lakehouse.local import process
from lakehouse.local import stack as local_stack
from lakehouse.local.environment import environment
from lakehouse.local.home import Home

DAGSTER = ("dagster-code", "dagster", "dagster-daemon")


@contextmanager
def dagster_of(stream: Stream, home: Home, folder: Path, servers: Sequence[str] = DAGSTER) -> Iterator[None]:
    """Dagster with the topic as its whole lakehouse.yaml, which is written to `folder`.

    Without the daemon among `servers`, nothing runs but what a test runs.
    """
    before = os.environ.get("LAKEHOUSE_CONFIG")
    os.environ["LAKEHOUSE_CONFIG"] = str(stream.declare(folder))
    try:
        local_stack.up(home, servers)
        # Another stack of these tests may have taken the port that was free when this one was started.
        os.environ["LAKEHOUSE_UI_URL"] = environment(home)["LAKEHOUSE_UI_URL"]
        yield
    finally:
        for name in reversed(servers):
            process.stop(name, home)
        os.environ.pop("LAKEHOUSE_CONFIG")
        if before is not None:
            os.environ["LAKEHOUSE_CONFIG"] = before
