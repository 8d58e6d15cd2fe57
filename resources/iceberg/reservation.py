"""Reservations of a table: writers that repeat their work begin none while a command waits to publish in it.

A command reads for minutes what it writes in one commit, and a stream commits every few seconds, so the command would
always be the one that lost. A reservation only orders the writers: which commit is correct, the staged commit decides.
It is a property with a time at which it ends, so that nobody has to remove that of a command which was killed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

from lakehouse.core.errors import CommitConflict, LakehouseError, Yielded
from lakehouse.core.polling import SYSTEM_CLOCK, poll
from lakehouse.core.table_protocol import RESERVATION
from lakehouse.core.tables.naming import TableRef
from resources.iceberg.commits import MAX_SKEW_SECONDS, detect_conflict, format_utc, now_ms

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from resources.iceberg.catalog import Catalog

T = TypeVar("T")

ATTEMPTS = 6
"""Number of attempts of a command. In the second one, it may meet batches that began before its reservation."""

MIN_SECONDS = 60.0
"""Minimum duration of a reservation, twice the tolerated difference between the clocks of two machines."""

ATTEMPT_FACTOR = 3
"""Duration of a reservation, in durations of the attempt before it."""

LOOK_SECONDS = 1.0
"""Interval at which a reservation is looked up."""

COMMITS = 20
"""Number of attempts at a change of a reservation beside other commits."""


@dataclass(frozen=True)
class Reservation:
    """A reservation as the table stores it."""

    holder: str
    """Identifies one execution of a command."""
    command: str
    """The command."""
    seconds: float
    """Its duration."""
    until_ms: int
    """The time at which it ends, in milliseconds since the epoch."""

    def describe(self) -> str:
        """Return the reservation as text."""
        return f"reserved by `lakehouse {self.command}` until {format_utc(self.until_ms)} UTC at the latest"


def reservation_of(table: Table | None) -> Reservation | None:
    """Return the reservation of a table as loaded; None if it has none, or its time has passed."""
    text = table.properties.get(RESERVATION) if table else None
    if not text:
        return None
    reservation = Reservation(**json.loads(text))
    remaining = (reservation.until_ms - now_ms()) / 1000
    # A clock that is far ahead must not reserve a table for longer.
    return reservation if 0 < remaining <= reservation.seconds + MAX_SKEW_SECONDS else None


def require_unreserved(name: str, table: Table | None) -> None:
    """Require that no command waits to publish in a table.

    Raises:
        Yielded: One does.
    """
    if reservation := reservation_of(table):
        raise Yielded(name, reservation.describe())


def await_unreserved(catalog: Catalog, ref: TableRef) -> None:
    """Wait until no command waits to publish in a table, at most until its reservation ends."""
    poll(lambda: reservation_of(catalog.load(ref)) is None, pause=LOOK_SECONDS)


def in_turn(catalog: Catalog, first: TableRef, command: str, attempt: Callable[[], T]) -> T:
    """Return the result of a command that publishes in a table. Of several at a time, one after the other is attempted.

    Args:
        catalog: The catalog.
        first: The first table of the topic. The reservation is that of the newest one.
        command: The name of the command.
        attempt: Executes the command, which may be repeated.

    Raises:
        CommitConflict: Writers that do not yield kept publishing first.
    """
    holder, number = uuid.uuid4().hex[:12], 0
    while True:
        began = SYSTEM_CLOCK.now()
        try:
            result = attempt()
        except CommitConflict:
            number += 1
            if number == ATTEMPTS:
                _release(catalog, first, holder)
                raise
            seconds = max(MIN_SECONDS, ATTEMPT_FACTOR * (SYSTEM_CLOCK.now() - began))
            reserve(catalog, first, Reservation(holder, command, seconds, 0))
        except BaseException:
            if number:
                _release(catalog, first, holder)
            raise
        else:
            if number:
                _release(catalog, first, holder)
            return result


def reserve(catalog: Catalog, first: TableRef, reservation: Reservation) -> None:
    """Reserve the newest table of a chain, after other commands that have reserved it.

    Args:
        catalog: The catalog.
        first: The first table of the chain.
        reservation: The reservation, whose end is computed.
    """
    for _ in range(COMMITS):
        ref, table = catalog.chain(first).newest
        present = reservation_of(table)
        if present and present.holder != reservation.holder:
            await_unreserved(catalog, ref)
            continue
        if table is None:
            return
        until = now_ms() + int(reservation.seconds * 1000)
        text = json.dumps(asdict(reservation) | {"until_ms": until})
        with suppress(CommitConflict), catalog.translate_errors(), detect_conflict(table):
            with table.transaction() as transaction:
                transaction.set_properties({RESERVATION: text})
            return


def _release(catalog: Catalog, first: TableRef, holder: str) -> None:
    """End the reservation of a command. If that fails, it ends at its time."""
    for _ in range(COMMITS):
        with suppress(LakehouseError):
            _, table = catalog.chain(first).newest
            present = reservation_of(table)
            if table is None or present is None or present.holder != holder:
                return
            with catalog.translate_errors(), detect_conflict(table):
                with table.transaction() as transaction:
                    transaction.remove_properties(RESERVATION)
                return
