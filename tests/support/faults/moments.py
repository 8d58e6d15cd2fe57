"""Actions during a batch, and runs that may fail, for tests of faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakehouse.pipeline.commits.staged_commit import OnPhase, no_report
from tests.support.topics import Stream

LOGGED = {"errors": "log"}
"""Settings of a topic whose bad records become dead letters."""


def once_before(monkeypatch: Any, owner: object, function: str, act: Callable[[], Any]) -> list[Any]:
    """Call `act` before the first call of a function of a library, or of a system in memory.

    Returns:
        A list that contains the result of `act` once it was called.
    """
    original, done = getattr(owner, function), []

    def instead(*args: Any, **kwargs: Any) -> Any:
        if not done:
            done.append(None)
            done[0] = act()
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, function, instead)
    return done


def attempt(stream: Stream, on_phase: OnPhase = no_report) -> Exception | None:
    """Run once, and return the error of a failed run."""
    try:
        stream.ingest(on_phase)
    except Exception as error:
        print("RAISED", repr(error)[:600])
        return error
    return None
