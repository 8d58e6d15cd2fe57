"""A separate Dagster with a daemon for one topic, on the shared stack."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lakehouse.local import stack as local_stack
from lakehouse.local.client_environment import environment
from lakehouse.local.home import Home
from lakehouse.local.processes import process
from tests.support.topics import Stream

DAGSTER = ("dagster-code", "dagster", "dagster-daemon")


@contextmanager
def dagster_of(stream: Stream, home: Home, folder: Path, servers: Sequence[str] = DAGSTER) -> Iterator[None]:
    """Run Dagster with a lakehouse.yaml in `folder` that contains only the topic.

    Without the daemon among `servers`, only the test starts runs.
    """
    before = os.environ.get("LAKEHOUSE_CONFIG")
    os.environ["LAKEHOUSE_CONFIG"] = str(stream.declare(folder))
    try:
        local_stack.up(home, servers)
        # Another stack of these tests may use the port that was free when this stack was started.
        os.environ["LAKEHOUSE_UI_URL"] = environment(home)["LAKEHOUSE_UI_URL"]
        yield
    finally:
        for name in reversed(servers):
            process.stop(home, name)
        os.environ.pop("LAKEHOUSE_CONFIG")
        if before is not None:
            os.environ["LAKEHOUSE_CONFIG"] = before
