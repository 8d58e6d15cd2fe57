"""A REST catalog in memory: its server commits, and its client does not always know whether a commit was applied.

The rules are those of Iceberg's REST server and of pyiceberg's client; tests/contract/test_simulated_rest.py compares
them. The server writes the times of metadata files. The time of a snapshot is its writer's, and the server refuses one
whose time would go back in the history of main.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    RESTError,
    ServerError,
    ServiceUnavailableError,
)
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.update import RemovePropertiesUpdate
from requests import ConnectionError as LostConnection
from requests import ReadTimeout

from lakehouse.core.errors import Stalled
from lakehouse.pipeline.engine_values import JobFailed
from resources.iceberg.rest_backend import RestBackend
from tests.simulation.systems.catalog import FilesInMemory, MemoryIcebergCatalog
from tests.simulation.world import World

T = TypeVar("T")

LOST: tuple[Callable[[str], Exception], ...] = (ServiceUnavailableError, ServerError, LostConnection, ReadTimeout)
"""The errors of pyiceberg's client for a request without a response: status 503 and 500, and two of the connection."""

UNKNOWN: tuple[Callable[[str], Exception], ...] = (CommitStateUnknownException, *LOST)
"""Those for a commit: after status 500, 502 and 504, its outcome is unknown."""

TOLERANCE_MS = 60_000
"""How far a time may be before the one that precedes it (Apache Iceberg, TableMetadata)."""

HISTORY = "[BUG] Expected sorted snapshot log entries."
"""The server's refusal of a time that is before the one that precedes it."""

COMMITS = "commit", "create_branch", "delete rows", "expire"
"""Beginnings of the names of Spark's jobs that commit."""


class MemoryRestBackend(FilesInMemory, RestBackend):
    """A REST catalog in memory."""


class MemoryRestCatalog(MemoryIcebergCatalog):
    """The server and its clients.

    Attributes:
        repeat_percent: The probability that a proxy repeats a request whose response it lost: the client gets the
            response to the second one, such as a conflict with the first.
    """

    backend = MemoryRestBackend()

    def __init__(self, world: World):
        super().__init__(world)
        self.repeat_percent = 0

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        """Commit; a table that was dropped has no error of its own (pyiceberg, RestCatalog.commit_table)."""

        def commit() -> str:
            if table.name() not in self._locations:
                raise RESTError(f"NoSuchTableException: Table does not exist: {'.'.join(table.name())}")
            return self.commit_now(table, requirements, updates)

        return self._response(self._call("commit", commit))

    def _update_and_stage_table(
        self, current_table: Table | None, table_identifier: Any, requirements: Any, updates: Any
    ) -> StagedTable:
        assert current_table is not None
        # The server ignores properties that were removed before.
        names = current_table.properties.keys()
        updates = tuple(x for x in updates if not isinstance(x, RemovePropertiesUpdate) or names & {*x.removals})
        with self._clock_of_server():
            try:
                staged = MetastoreCatalog._update_and_stage_table(
                    self, current_table, table_identifier, requirements, updates
                )
            except ValueError as error:
                # Servers before Iceberg 1.11 do not report an overtaken snapshot as a conflict.
                is_overtaken = "older than last sequence number" in str(error)
                refusals = (CommitFailedException, BadRequestError) if is_overtaken else (BadRequestError,)
                raise self._world.choices.of(refusals)(f"ValidationException: {error}") from error
            now_ms = int(self._world.now() * 1000)
        if staged.metadata != current_table.metadata:
            staged.metadata = staged.metadata.model_copy(update={"last_updated_ms": now_ms})
            times = [*(entry.timestamp_ms for entry in staged.metadata.snapshot_log[-2:]), now_ms]
            if any(later - earlier < -TOLERANCE_MS for earlier, later in pairwise(times)):
                raise BadRequestError(f"IllegalArgumentException: {HISTORY}")
        return staged

    @contextmanager
    def _clock_of_server(self) -> Iterator[None]:
        """Let the clock of the present machine show the server's time."""
        machine = self._world.current and self._world.current.machine
        skew = machine.skew if machine else 0.0
        try:
            if machine:
                machine.skew = 0.0
            yield
        finally:
            if machine:
                machine.skew = skew

    def purge_table(self, identifier: Any) -> None:
        """Drop a table in one request."""
        self.drop_table(identifier)

    def lost_job(self, name: str) -> Callable[[str], Exception]:
        """Return the error of a job whose response is lost: Spark's connection, or that of its commit."""

        def error(symptom: str) -> Exception:
            if name.startswith(COMMITS) and self._world.choices.below(2):
                return JobFailed(f"org.apache.iceberg.exceptions.CommitStateUnknownException: {symptom}")
            return Stalled("Spark Connect", "its address", symptom)

        return error

    def _call(self, operation: str, effect: Callable[[], T]) -> T:
        if operation == "read_metadata":
            return super()._call(operation, effect)

        def repeated() -> T:
            with self._clock_of_server():
                first = effect()
                # Nobody repeats what an operator requests, or a request that was refused.
                return effect() if self._world.current and self._world.choices.happens(self.repeat_percent) else first

        errors = UNKNOWN if operation == "commit" else LOST
        error: Callable[[str], Exception] = lambda symptom: self._world.choices.of(errors)(symptom)  # noqa: E731
        return self._world.call(f"catalog.{operation}", repeated, error)
