"""What tests of faults share: something that happens in the middle of a batch, and a run that may fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support import Stream

LOGGED = {"errors": "log"}
"""Settings of a topic whose bad records become dead letters."""


def once_before(monkeypatch: Any, owner: object, function: str, act: Callable[[], Any]) -> list[Any]:
    """Do something before the first call of a function of the project. Returns a list that will hold what it gave."""
    original, done = getattr(owner, function), []

    def instead(*args: Any, **kwargs: Any) -> Any:
        if not done:
            done.append(None)
            done[0] = act()
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, function, instead)
    return done


def attempt(stream: Stream) -> Exception | None:
    """One run; what it failed with, if it did."""
    try:
        stream.ingest()
    except Exception as error:
        print("RAISED", repr(error)[:600])
        return error
    return None
