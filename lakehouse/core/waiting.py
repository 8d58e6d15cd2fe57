"""The systems that this process waits for at the moment, so that a command can show them."""

from collections.abc import Iterator
from contextlib import contextmanager

_AWAITED: list[str] = []
"""What the threads of this process wait for, in the order in which they began. Operations of lists are atomic."""


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Record that the body waits for something, such as `Kafka`; empty records nothing."""
    if not what:
        yield
        return
    _AWAITED.append(what)
    try:
        yield
    finally:
        _AWAITED.remove(what)


def awaited() -> str:
    """Return what is waited for, as the thread that began last recorded it; empty if nothing was recorded."""
    return (_AWAITED[-1:] or [""])[0]
