"""Move the tables of topics from a SQL database or Glue to a REST catalog, which registers their metadata files.

Each table is moved by two changes. The first one replaces the table by a marker in the old catalog, if no writer has
committed since it was read: no later commit to it is possible there, and writers stop with the new address. The second
one registers the table's last metadata file in the new catalog. The marker has all that the second change needs, so an
interrupted move is completed by repeating it. Files, snapshots, identities and bookmarks do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakehouse.config.model import Topic
from lakehouse.core.errors import CommitConflict, ConfigError, TransientError, UnclearState, Unreachable
from lakehouse.core.tables.naming import TableRef
from lakehouse.core.user_name import user_name
from resources.iceberg.catalog import Catalog
from resources.iceberg.catalog_backend import PointerBackend
from resources.iceberg.moved_table import Moved, move_command, moved_of, write_marker
from resources.iceberg.pauses import copy_pauses
from resources.iceberg.snapshots import last_batch
from resources.iceberg.table_chain import successor

if TYPE_CHECKING:
    from pyiceberg.table import Table

ATTEMPTS = 10
"""Number of attempts to replace a table by a marker: a stream commits every few seconds, and an attempt takes less."""

Report = Callable[[str], None]
"""Gets each change as text before it is made."""


@dataclass(frozen=True)
class Place:
    """An environment with its catalog."""

    environment: str
    catalog: Catalog


@dataclass(frozen=True)
class PlannedTable:
    """The move of one table."""

    ref: TableRef
    metadata_location: str
    """The metadata file at which it is registered in the new catalog, if no writer commits before."""
    is_fenced: bool
    """Whether the old catalog has a marker in its place."""
    is_registered: bool
    """Whether the new catalog has it."""

    def describe(self) -> str:
        """Return the move as text."""
        if self.is_registered:
            return f"{self.ref}: moved"
        step = "register (the old catalog has the marker)" if self.is_fenced else "move"
        return f"{self.ref}: {step} at {self.metadata_location}"


@dataclass(frozen=True)
class Move:
    """The move of the tables of topics from the catalog of one environment to that of another one.

    Raises:
        ConfigError: The catalogs are of other types.
    """

    namespace: str
    topics: Sequence[Topic]
    source: Place
    target: Place
    cluster_id: str
    """The Kafka cluster of the environment to which the tables are moved."""

    def __post_init__(self) -> None:
        old, new = self.source.catalog, self.target.catalog
        if not isinstance(old.backend, PointerBackend) or new.type != "rest":
            raise ConfigError(
                f"Tables are moved from a catalog of type sql or glue to one of type rest, and environment "
                f"'{self.source.environment}' has type {old.type}, '{self.target.environment}' type {new.type}. "
                f"Nothing was changed. Name other environments"
            )

    @property
    def _command(self) -> str:
        return move_command(self.source.environment, self.target.environment)

    def plan(self) -> list[PlannedTable]:
        """Return the move of each table that exists, in order.

        Raises:
            ConfigError: A table is of a topic in another Kafka cluster than that of the new environment.
            UnclearState: The new catalog has another table, or a registration by a reader; or a table that is not
                moved has files in the folder of one that is.
        """
        planned = [move for topic in self.topics for ref in self._tables(topic) if (move := self._planned(ref))]
        self._require_own_folders(planned)
        return planned

    def apply(self, report: Report) -> None:
        """Move each table. It may be repeated after an interruption at any time.

        Args:
            report: Gets each change before it is made.

        Raises:
            CommitConflict: Writers committed to a table at each attempt.
            TransientError: A catalog does not answer. A table may be in neither catalog until the move is repeated.
            UnclearState: As for `plan`; or the new catalog refused a table, which is in the old one as before.
        """
        if all(move.is_registered for move in self.plan()):
            # Pauses may have ended in the new environment since.
            return
        report(f"{self.namespace}: copy pauses")
        copy_pauses(self.source.catalog, self.target.catalog, self.namespace)
        for topic in self.topics:
            for ref in self._tables(topic):
                self._move(ref, report)

    def _tables(self, topic: Topic) -> Iterator[TableRef]:
        """Yield the tables of a topic that the old catalog may have, the first one last.

        Writers begin with the first table of a chain. As long as the new catalog does not have it, they refuse the
        later ones.
        """
        first = topic.table_in(self.namespace)
        chain = [first]
        while (following := self._successor(chain[-1])) and following not in chain:
            chain.append(following)
        yield first.dead_letters
        yield from reversed(chain)

    def _successor(self, ref: TableRef) -> TableRef | None:
        """Return the table that continues another one in the old catalog; None if that has been moved with it."""
        table = self.source.catalog.entry(ref)
        return successor(ref.first_table, table) if table and not moved_of(table) else None

    def _planned(self, ref: TableRef) -> PlannedTable | None:
        """Return the move of a table; None if the old catalog has neither a table nor a marker."""
        table, registered = self.source.catalog.entry(ref), self.target.catalog.entry(ref)
        if table is None:
            return None
        moved = moved_of(table)
        uuid, file = (moved.table_uuid, moved.metadata_location) if moved else (_uuid(table), table.metadata_location)
        if registered is None and moved and moved.address != self.target.catalog.address:
            raise UnclearState(
                f"Table {ref} was moved from environment '{moved.source}' to {moved.address}, and "
                f"{self.target.catalog.address} does not have it. It was left unchanged. Run "
                f"`{move_command(moved.source, moved.target)}` with the catalog of that time"
            )
        if registered and (not moved or _uuid(registered) != uuid):
            kind = "a registration of" if _uuid(registered) == uuid else "another table with the name of"
            raise UnclearState(
                f"The catalog {self.target.catalog.address} has {kind} {ref} (uuid {_uuid(registered)}), which is in "
                f"{self.source.catalog.address} (uuid {uuid}). Both were left unchanged. Stop the programs that write "
                f"there, such as the reader `rest_catalog` of environment '{self.source.environment}', drop it there "
                f"without its files (without purge), and run `{self._command}`"
            )
        self._require_cluster(ref, table)
        return PlannedTable(ref, file, moved is not None, registered is not None)

    def _require_cluster(self, ref: TableRef, table: Table) -> None:
        with suppress(UnclearState):  # its position is unknown, so ingestion would stop in both environments
            batch = last_batch(table)
            if batch and batch.cluster_id != self.cluster_id:
                raise ConfigError(
                    f"Table {ref} has records of the Kafka cluster {batch.cluster_id}, and environment "
                    f"'{self.target.environment}' has the cluster {self.cluster_id}. Nothing was changed. Name an "
                    f"environment with the same `kafka`"
                )

    def _require_own_folders(self, planned: Sequence[PlannedTable]) -> None:
        """Require that no table which stays has files in the folder of one that is moved.

        Maintenance in the new catalog would not know the other table, and delete its files as orphans.
        """
        files = self.source.catalog.metadata_files(self.namespace)
        moves = {str(move.ref): move for move in planned if not move.is_fenced}
        for move in moves.values():
            table = self.source.catalog.entry(move.ref)
            folder = f"{table.location()}/" if table else ""
            staying = sorted(name for name, file in files.items() if name not in moves and file.startswith(folder))
            if table and staying:
                raise UnclearState(
                    f"{', '.join(staying)}, of no topic in lakehouse.yaml, has files in the folder of {move.ref} "
                    f"({folder}), where maintenance would delete them after the move. Nothing was changed. Drop it, or "
                    f"declare its topic"
                )

    def _move(self, ref: TableRef, report: Report) -> None:
        for _ in range(ATTEMPTS):
            planned = self._planned(ref)
            if planned is None or planned.is_registered:
                return
            if following := self._successor(ref):
                # Without effect unless the topic rolled over since.
                self._move(following, report)
            if planned.is_fenced or self._fence(planned, report):
                return self._register(ref, report)
        raise CommitConflict(
            f"Writers committed to {ref} at each attempt to move it. It was left unchanged. Pause its topic "
            f"(`lakehouse --env {self.source.environment} pause TOPIC`), and run `{self._command}`"
        )

    def _fence(self, planned: PlannedTable, report: Report) -> bool:
        """Replace a table by a marker in the old catalog, and return whether it was as planned until then."""
        old, ref = self.source.catalog, planned.ref
        table = old.entry(ref)
        if table is None or table.metadata_location != planned.metadata_location:
            return False
        at = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
        environments = self.source.environment, self.target.environment
        moved = Moved(
            table.metadata_location, _uuid(table), *environments, self.target.catalog.address, at, user_name()
        )
        backend, iceberg = old.backend, old.iceberg()
        assert isinstance(backend, PointerBackend)
        with old.translate_errors():
            location = backend.new_location(iceberg, ref)
            assert location is not None
            marker = write_marker(table, location, moved)
            report(f"{ref}: replace it by a marker in {old.address}")
            try:
                return backend.point(iceberg, ref, table.metadata_location, marker)
            except Exception:
                # The response may be lost: only the catalog's state is conclusive.
                current = old.entry(ref)
                if current is None or current.metadata_location != marker.metadata_location:
                    raise
                return True

    def _register(self, ref: TableRef, report: Report) -> None:
        old, new = self.source.catalog, self.target.catalog
        moved = moved_of(old.entry(ref))
        assert moved is not None
        report(f"{ref}: register {moved.metadata_location} in {new.address}")
        failure: Exception | None = None
        try:
            with new.translate_errors():
                new.iceberg().register_table(ref.identifier, moved.metadata_location)
        except Exception as error:
            failure = error
        # Its response may be lost: only the catalog's state is conclusive.
        try:
            registered = new.entry(ref)
        except Unreachable as unreachable:
            raise self._unknown_outcome(ref, unreachable) from failure
        if registered and _uuid(registered) == moved.table_uuid:
            return
        if registered is None and isinstance(failure, Unreachable):
            raise self._unknown_outcome(ref, failure) from failure
        self._put_back(ref, moved)
        reason = f"{new.address} has another table with that name (uuid {_uuid(registered)})" if registered else failure
        raise UnclearState(
            f"{reason}. Table {ref} was not moved, and is in {old.address} as before. Remove the cause, and run "
            f"`{self._command}`"
        ) from failure

    def _unknown_outcome(self, ref: TableRef, unreachable: Unreachable) -> TransientError:
        return TransientError(
            unreachable.problem,
            f"Table {ref} is registered there or not, and {self.source.catalog.address} has a marker in its place",
            f"Check the network, and run `{self._command}`, which completes the move",
        )

    def _put_back(self, ref: TableRef, moved: Moved) -> None:
        """Replace the marker of a table by the table in the old catalog, because the new one does not accept it."""
        old = self.source.catalog
        marker, table = old.entry(ref), old.table_at(moved.metadata_location, ref)
        assert marker and table and isinstance(old.backend, PointerBackend)
        with old.translate_errors():
            old.backend.point(old.iceberg(), ref, marker.metadata_location, table)


def _uuid(table: Table) -> str:
    return str(table.metadata.table_uuid)
