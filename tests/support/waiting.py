"""Waiting for an asynchronous effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lakehouse.core.polling import poll

T = TypeVar("T")


def wait_until(condition: Callable[[], T], seconds: float = 60) -> T:
    """Wait until a condition is true, and return its value.

    Raises:
        AssertionError: It is not true in time.
    """
    value = poll(condition, pause=0.05, deadline_seconds=seconds)
    assert value, f"not within {seconds} s: {condition}"
    return value
