"""Follow rows whose key changes: which change events are of one row.

A changed key is a deletion of the old key and a creation of the new one, which names the old key (Debezium, PostgreSQL
connector: Primary key updates).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Event(NamedTuple):
    """A change event, as far as it matters for its row's identity."""

    partition: int
    offset: int
    key: str
    """The key of its row."""
    old_key: str | None
    """The key that its row had until then; None if it had none or the same."""
    is_deletion: bool
    position: int | None
    """Its position in the log of the database, which is the same for both events of a changed key; None if unknown."""


class Lineages(NamedTuple):
    """The rows of events."""

    of_events: dict[tuple[int, int], tuple[int, int]]
    """The number of the row, and the number of the event in order, by partition and offset."""
    of_keys: dict[str, int]
    """The number of the row that had a key before all events."""


def lineages(events: Iterable[Event]) -> Lineages:
    """Return which events are of one row.

    Events of several partitions are ordered by their positions in the database's log. If those are unknown, they have
    no order, and the result is empty.
    """
    events = list(events)
    if len({event.partition for event in events}) > 1 and any(event.position is None for event in events):
        return Lineages({}, {})
    by_position = len({event.partition for event in events}) > 1
    if by_position:
        events.sort(key=lambda event: (event.position, not event.is_deletion, event.offset))
    else:
        events.sort(key=lambda event: event.offset)
    rows = 0
    current: dict[str, int] = {}
    first: dict[str, int] = {}
    ended: dict[str, int] = {}
    of_events = {}
    for number, event in enumerate(events):
        if event.key not in current:
            rows += 1
            current[event.key] = first[event.key] = rows
        if event.old_key is not None:
            if (moved := ended.pop(event.old_key, None)) is None:
                rows += 1
                moved = rows
            current[event.key] = moved
        of_events[event.partition, event.offset] = current[event.key], number
        if event.is_deletion:
            ended[event.key] = current[event.key]
            rows += 1
            current[event.key] = rows
    return Lineages(of_events, first)
