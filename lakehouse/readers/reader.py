"""The protocol of readers: systems that expose published tables to query engines.

Many of them are catalogs that store a pointer to the metadata file of each table: they derive from `MetadataPointer`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from lakehouse.config.model import Topic
from lakehouse.core.errors import CommitConflict, LakehouseError
from lakehouse.core.tables.naming import TableRef
from resources.protocols import Resources

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse.readers.engine_totals import TableTotals


@dataclass(frozen=True)
class Registration:
    """State of a table that a reader exposes."""

    metadata_location: str
    """The location of the table's metadata file."""
    snapshot_id: int | None
    """The current snapshot in that file; None if it has none, or the file was deleted."""
    rows: int | None = None
    """The number of rows; None if the reader did not count them."""

    @staticmethod
    def of(metadata_location: str, ref: TableRef, resources: Resources, rows: int | None = None) -> Registration:
        """Return the state that a metadata file of a table describes."""
        table = resources.catalog.table_at(metadata_location, ref)
        return Registration(metadata_location, table.metadata.current_snapshot_id if table else None, rows)


Publish = Callable[[Topic, TableRef, "Table"], Registration]
"""Exposes the table of a topic as it was loaded."""


class Reader(ABC):
    """A system that exposes published tables.

    Implement it in a module of `lakehouse.readers` and name it in SYSTEMS. A separate distribution names the class as
    an entry point of the group `lakehouse.readers`, and the class of its Dagster resource as one of the group
    `lakehouse.resources`, by the resource's key. The assets of each topic with their checks and freshness, `lakehouse
    status`, publication by streams, and lineage are built from this protocol.

    Every method takes the Dagster resources of an environment: at least `catalog` and the reader's own, which
    `resource_of` returns with its type (resources/protocols.py).
    """

    name: ClassVar[str]
    """The first part of its assets' keys."""
    label: ClassVar[str]
    """The display name."""
    resource: ClassVar[str]
    """The key of its Dagster resource, which is also the system's key in lakehouse.yaml. Environments without it do not
    have the reader."""
    upstream: ClassVar[str] = "iceberg"
    """The first part of the key of the asset that it follows: `iceberg`, or the name of another reader."""
    kinds: ClassVar[frozenset[str]] = frozenset({"iceberg"})
    """Tags of its assets, which Dagster shows as icons."""
    description: ClassVar[str]
    """The description of its assets."""
    check: ClassVar[str] = "registration_current"
    """The name of the check that compares it with the published table."""
    check_description: ClassVar[str]
    """The description of that check."""
    is_blocking: ClassVar[bool] = True
    """Whether downstream assets wait while the check fails."""
    engine: ClassVar[str]
    """The display name of the engine that queries tables through the reader."""
    min_interval_seconds: ClassVar[float] = 0.0
    """The minimum time between two publications of one table by a stream, for readers that charge for each."""

    def of_environment(self, systems: Mapping[str, Mapping[str, object]]) -> Reader:
        """Return the reader in an environment with these systems: another one if that depends on their settings.

        Raises:
            ConfigError: The settings contradict each other.
        """
        return self

    @abstractmethod
    def publish(self, topic: Topic, ref: TableRef, table: Table, resources: Resources) -> Registration:
        """Expose a table as it was loaded, unless the reader already exposes that state or a later one.

        Args:
            topic: The topic of the table, as declared in lakehouse.yaml.
            table: The table as loaded. Another process may have published since.

        Raises:
            CommitConflict: Another process changed the reader's state at the same time.
            LakehouseError: The reader refuses the request.
            UnclearState: The reader exposes a state that the table never had.
            Unreachable: The reader does not answer.
        """

    @abstractmethod
    def current(self, ref: TableRef, resources: Resources) -> Registration | None:
        """Return the exposed state without the number of rows; None if the reader does not have the table.

        It is called every minute for each topic, so it must not consume paid compute.

        Raises:
            LakehouseError: The reader refuses the request.
            Unreachable: The reader does not answer.
        """

    @abstractmethod
    def dataset(self, ref: TableRef, resources: Resources) -> tuple[str, str]:
        """Return the table's namespace and name in OpenLineage (https://openlineage.io/docs/spec/naming)."""

    def counted(self, ref: TableRef, resources: Resources) -> Registration | None:
        """Return the same as `current`, with the number of rows if the reader can count them."""
        return self.current(ref, resources)

    def table_name(self, ref: TableRef) -> str:
        """Return the name of a table in queries of this system."""
        return str(ref)

    def publish_tables(
        self, topic: Topic, ref: TableRef, table: Table, resources: Resources, publish: Publish | None = None
    ) -> Registration:
        """Expose the newest table of a topic; if the reader lacks it, expose the tables that it continues first.

        A topic that rolled over adds nothing to those, so they are complete as soon as the newest one is exposed.

        Args:
            publish: Exposes one table, for example in a session; `Reader.publish` if None.

        Raises:
            CommitConflict: The reader's upstream does not expose the last snapshot of an earlier table yet.
            LakehouseError: See `publish`.
        """

        def expose(ref: TableRef, table: Table) -> Registration:
            return publish(topic, ref, table) if publish else self.publish(topic, ref, table, resources)

        if ref.first and self.current(ref, resources) is None:
            for earlier, closed in resources.catalog.chain(TableRef(ref.namespace, ref.first)).closed:
                last = closed.current_snapshot()
                if last is not None and earlier != ref:
                    expose(earlier, closed)
                    shown = self.current(earlier, resources)
                    if shown is None or shown.snapshot_id != last.snapshot_id:
                        raise CommitConflict(
                            f"{self.label} does not show snapshot {last.snapshot_id} of {self.table_name(earlier)}, "
                            f"the last one before topic '{topic.name}' rolled over, because {self.upstream} does not "
                            f"expose it. {self.table_name(ref)} was not exposed. Materialize "
                            f"{topic.name}/{self.upstream}, then {topic.name}/{self.name}"
                        )
        return expose(ref, table)

    @contextmanager
    def session(self, resources: Resources) -> Iterator[Publish]:
        """Open a context for publishing many tables; an error in one of them ends it."""
        yield lambda topic, ref, table: self.publish(topic, ref, table, resources)

    def query_totals(self, topic: Topic, ref: TableRef, resources: Resources) -> TableTotals:
        """Count the rows of the table as this system exposes them, and sum its columns."""
        from lakehouse.readers.engine_totals import query_totals

        return query_totals(self.engine, topic, ref, self.require(topic, ref, resources).metadata_location, resources)

    def require(self, topic: Topic, ref: TableRef, resources: Resources, *, count: bool = False) -> Registration:
        """Return the exposed state.

        Args:
            topic: The topic, for the message.
            count: Whether to count the rows.
        """
        registration = (self.counted if count else self.current)(ref, resources)
        if registration is None:
            missing = f"{self.label} has no table {self.table_name(ref)}"
            raise LakehouseError(f"{missing}. Nothing was changed. Materialize {topic.name}/{self.name}")
        return registration


@dataclass(frozen=True)
class Pointer:
    """Registration of a table in such a reader."""

    metadata_location: str
    """The location of the metadata file."""
    table_uuid: str | None
    """The UUID of the Iceberg table; None if the reader does not store it."""
    registration: Any
    """The registration as returned by the reader's client, which guards an update."""
    is_own: bool | None = None
    """Whether this program registered the file; None if unknown."""


class MetadataPointer(Reader):
    """A reader whose pointer is never moved back, and never over a commit made through the reader by another writer."""

    @abstractmethod
    def look_up(self, ref: TableRef, resources: Resources) -> Pointer | None:
        """Return the registration of a table; None if there is none.

        Raises:
            LakehouseError: The reader refuses the request.
            UnclearState: The name belongs to an object that is not an Iceberg table.
            Unreachable: The reader does not answer.
        """

    @abstractmethod
    def point(self, topic: Topic, ref: TableRef, table: Table, resources: Resources, expected: Pointer | None) -> str:
        """Register the table's metadata file in place of the expected registration, and return its location.

        Raises:
            CommitConflict: The registration is no longer the expected one.
            LakehouseError: The reader refuses the request.
            UnclearState: The name belongs to another Iceberg table.
            Unreachable: The reader does not answer.
        """

    def publish(self, topic: Topic, ref: TableRef, table: Table, resources: Resources) -> Registration:
        from resources.iceberg.registrations import is_current

        pointer = self.look_up(ref, resources)
        if pointer and pointer.table_uuid in (None, str(table.metadata.table_uuid)):
            location = pointer.metadata_location
            # The pointer was looked up after the table was loaded, so another process may have published since.
            if is_current(self.label, location, resources.catalog, table, is_own=pointer.is_own):
                return Registration.of(location, ref, resources)
        location = self.point(topic, ref, table, resources, pointer)
        return Registration(location, table.metadata.current_snapshot_id)

    def current(self, ref: TableRef, resources: Resources) -> Registration | None:
        pointer = self.look_up(ref, resources)
        return Registration.of(pointer.metadata_location, ref, resources) if pointer else None
