"""Reservations of a table: writers that repeat their work begin none while a command waits to publish in it.

A command reads for minutes what it writes in one commit, and a stream commits every few seconds, so the command would
always be the one that lost. A reservation only orders the writers: which commit is correct, the staged commit decides.
It is a property with a time at which it ends, which a thread of the command renews: that of a command which was killed
ends within `LEASE_SECONDS`. A command that hangs renews it for at most `ATTEMPT_FACTOR` durations of its last attempt.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from lakehouse.core.errors import CommitConflict, LakehouseError, Yielded
from lakehouse.core.polling import SYSTEM_CLOCK, poll
from lakehouse.core.table_protocol import RESERVATION
from lakehouse.core.tables.naming import TableRef
from resources.build import with_own_connections
from resources.iceberg.commits import MAX_SKEW_SECONDS, detect_conflict, format_utc, now_ms

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from resources.iceberg.catalog import Catalog

T = TypeVar("T")

ATTEMPTS = 6
"""Number of attempts of a command. In the second one, it may meet batches that began before its reservation."""

LEASE_SECONDS = 60.0
"""Time after which a reservation ends unless it is renewed, twice the tolerated difference between the clocks of two
machines."""

RENEWAL_SECONDS = 15.0
"""Interval at which a reservation is renewed."""

ATTEMPT_FACTOR = 3
"""Maximum time for which a reservation is renewed, in durations of the attempt before it."""

LOOK_SECONDS = 1.0
"""Interval at which a reservation is looked up."""


@dataclass(frozen=True)
class Reservation:
    """A reservation as the table stores it."""

    holder: str
    """Identifies one execution of a command."""
    command: str
    """The command."""
    until_ms: int
    """The time at which it ends unless it is renewed, in milliseconds since the epoch."""

    def describe(self) -> str:
        """Return the reservation as text."""
        return f"reserved by `lakehouse {self.command}` until {format_utc(self.until_ms)} UTC, or until it is renewed"


def reservation_of(table: Table | None) -> Reservation | None:
    """Return the reservation of a table as loaded; None if it has none, or its time has passed."""
    text = table.properties.get(RESERVATION) if table else None
    if not text:
        return None
    stored = json.loads(text)
    reservation = Reservation(stored["holder"], stored["command"], stored["until_ms"])
    remaining = (reservation.until_ms - now_ms()) / 1000
    # A clock that is far ahead must not reserve a table for longer.
    return reservation if 0 < remaining <= LEASE_SECONDS + MAX_SKEW_SECONDS else None


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
    with ExitStack() as stack:
        lease: Lease | None = None
        for _ in range(ATTEMPTS - 1):
            began = SYSTEM_CLOCK.now()
            with suppress(CommitConflict):
                return attempt()
            lease = lease or stack.enter_context(Lease(catalog, first, command))
            lease.hold(ATTEMPT_FACTOR * (SYSTEM_CLOCK.now() - began))
        return attempt()


class Lease:
    """The reservation of the newest table of a chain by one execution of a command, which a thread renews.

    Args:
        catalog: The catalog.
        first: The first table of the chain.
        command: The name of the command.
    """

    def __init__(self, catalog: Catalog, first: TableRef, command: str):
        self._catalog, self._first, self._command = catalog, first, command
        self._holder, self._renewed_until = uuid.uuid4().hex[:12], 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        # If that fails, the reservation ends at its time.
        with suppress(LakehouseError):
            self._change(self._catalog, reserve=False)

    def hold(self, seconds: float) -> None:
        """Reserve the table, after other commands that have reserved it, and renew the reservation for a time.

        Args:
            seconds: The longest time for which it is renewed.
        """
        poll(lambda: self._change(self._catalog), pause=LOOK_SECONDS)
        self._renewed_until = SYSTEM_CLOCK.now() + seconds

    def _renew(self) -> None:
        catalog = with_own_connections(self._catalog)
        while not self._ended.wait(RENEWAL_SECONDS):
            if SYSTEM_CLOCK.now() < self._renewed_until:
                with suppress(LakehouseError):
                    self._change(catalog)

    def _change(self, catalog: Catalog, *, reserve: bool = True) -> bool:
        """Set the reservation, or remove it.

        Returns:
            Whether it was done; else another command has reserved the table, or another writer changed it.
        """
        _, table = catalog.chain(self._first).newest
        present = reservation_of(table)
        if table is None or (present and present.holder != self._holder):
            return table is None
        reservation = Reservation(self._holder, self._command, now_ms() + int(LEASE_SECONDS * 1000))
        with suppress(CommitConflict), catalog.translate_errors(), detect_conflict(table):
            with table.transaction() as transaction:
                if reserve:
                    transaction.set_properties({RESERVATION: json.dumps(asdict(reservation))})
                elif present:
                    transaction.remove_properties(RESERVATION)
            return True
        return False
