"""An Iceberg catalog in memory, on pyiceberg's own metadata code: metadata files by name, with compare-and-swap."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from pyiceberg.catalog import Catalog as IcebergCatalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import RemoveSnapshotsUpdate

from lakehouse.core.errors import Stalled
from lakehouse.core.tables import naming
from lakehouse.core.tables.naming import TableRef
from resources.iceberg.catalog import Catalog
from resources.iceberg.catalog_backend import CatalogBackend, CatalogSettings
from resources.iceberg.catalog_types import ClockChecked, SqlBackend
from tests.simulation.systems.memory_files import MemoryFileIO, write_metadata
from tests.simulation.world import World

T = TypeVar("T")
NAMED_FILES = 100
"""Maximum number of earlier metadata files that a table names."""

FILE_IO = {"py-io-impl": "tests.simulation.systems.memory_files.MemoryFileIO"}

_numbers = itertools.count()
_systems: WeakValueDictionary[str, Any] = WeakValueDictionary()


def address_of(system: object) -> str:
    """Return a new address of a system in memory."""
    address = f"memory://warehouse{next(_numbers)}"
    _systems[address] = system
    return address


def system_at(address: str | None) -> Any:
    """Return the system at an address, which all clients with this setting share."""
    return _systems[address or ""]


class FilesInMemory:
    """The connection and the files of backends in memory."""

    def load(self, properties: Mapping[str, Any]) -> IcebergCatalog:
        """Return the catalog at the address that is the warehouse."""
        iceberg: IcebergCatalog = system_at(properties["warehouse"])
        return iceberg

    def file_io(self, catalog: CatalogSettings) -> dict[str, str]:
        """Return how files are read."""
        return FILE_IO


class MemoryBackend(FilesInMemory, SqlBackend):
    """Locations in memory, without requests."""

    def new_location(self, iceberg: IcebergCatalog, ref: TableRef) -> str:
        """Return a location for a new table, which no other table ever has."""
        return f"{iceberg.properties['warehouse']}/{ref.namespace}/{naming.new_folder(ref.name)}"

    def metadata_files(self, iceberg: IcebergCatalog, namespace: str) -> dict[str, str]:
        """Return the metadata file of each table by the table's full name."""
        assert isinstance(iceberg, MemoryIcebergCatalog)
        return iceberg.metadata_files()


class MemoryIcebergCatalog(ClockChecked):
    """A catalog that performs every request through `World.call`, so each may fail before or after its effect."""

    backend: CatalogBackend = MemoryBackend()

    def __init__(self, world: World):
        # pyiceberg caches manifests by path, so no two worlds share one.
        super().__init__("memory", warehouse=address_of(self), **FILE_IO)
        self._world, self._io = world, MemoryFileIO()
        self._io.on_read = lambda: self._call("read_metadata", lambda: None)
        self._locations: dict[tuple[str, ...], str] = {}
        self._metadata: dict[str, TableMetadata] = {}
        self._namespaces: dict[str, dict[str, str]] = {}
        self.on_drop: Callable[[Table], None] = lambda _: None
        self.on_commit: Callable[[str, TableMetadata | None, TableMetadata], None] = lambda *_: None

    def load_table(self, identifier: Any) -> Table:
        """Load a table."""
        return self._call("load", lambda: self._load(self.identifier_to_tuple(identifier)))

    def _load(self, identifier: tuple[str, ...]) -> Table:
        if identifier not in self._locations:
            raise NoSuchTableError(f"Table does not exist: {identifier}")
        location = self._locations[identifier]
        return Table(identifier, self._metadata[location], location, self._io, self)

    def create_table(
        self,
        identifier: Any,
        schema: Any,
        location: str | None = None,
        partition_spec: Any = UNPARTITIONED_PARTITION_SPEC,
        sort_order: Any = UNSORTED_SORT_ORDER,
        properties: Any = None,
    ) -> Table:
        """Create a table."""
        name = self.identifier_to_tuple(identifier)

        def create() -> Table:
            if name[0] not in self._namespaces:
                raise NoSuchNamespaceError(name[0])
            if name in self._locations:
                raise TableAlreadyExistsError(str(name))
            base = location or f"{self.properties['warehouse']}/{'/'.join(name)}-{next(_numbers)}"
            metadata = new_table_metadata(schema, partition_spec, sort_order, base, properties or {})
            self._keep(name, metadata, f"{base}/metadata/00000-first.metadata.json")
            return self._load(name)

        return self._call("create_table", create)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        """Commit, if the requirements are met by the table as it is now."""
        return self._response(self._call("commit", lambda: self.commit_now(table, requirements, updates)))

    def _response(self, location: str) -> CommitTableResponse:
        # Metadata that is in memory needs no validation.
        return SimpleNamespace(metadata=self._metadata[location], metadata_location=location)  # type: ignore[return-value]

    def commit_now(self, table: Table, requirements: Any, updates: Any) -> str:
        """Commit without a fault, and return the location of the metadata."""
        name = table.name()
        current = self._load(name) if name in self._locations else None
        staged = self._update_and_stage_table(current, name, requirements, updates)
        if current is None or staged.metadata != current.metadata:
            self._keep(name, staged.metadata, staged.metadata_location)
        return self._locations[name]

    @staticmethod
    def _parse_metadata_version(metadata_location: str) -> int:
        # Without validation of the name, which is by pyiceberg.
        return int(metadata_location.rpartition("/")[2].partition("-")[0])

    def expire(self, table: Table, snapshot_ids: set[int]) -> None:
        """Remove snapshots. As in Iceberg's Java library, those that remain keep the ids of their parents."""
        self.commit_now(table, (), (RemoveSnapshotsUpdate(snapshot_ids=sorted(snapshot_ids)),))
        location = self._locations[table.name()]
        kept = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in snapshot_ids]
        self._keep(table.name(), self._metadata[location].model_copy(update={"snapshots": kept}), location)

    def _load_file_io(self, properties: Any = None, location: str | None = None) -> MemoryFileIO:
        return self._io

    def _keep(self, name: tuple[str, ...], metadata: TableMetadata, location: str) -> None:
        write_metadata(location, metadata)
        before = self._metadata.get(self._locations.get(name, ""))
        self._metadata[location], self._locations[name] = metadata, location
        self._world.judge(self.on_commit, name[-1], before, metadata)

    def metadata_at(self, location: str) -> TableMetadata:
        """Return the content of a metadata file without a fault."""
        return self._metadata[location]

    def add_metadata(self, location: str, metadata: TableMetadata) -> None:
        """Write a metadata file that no table of this catalog has, as another writer does."""
        write_metadata(location, metadata)
        self._metadata[location] = metadata

    def loaded(self, name: str) -> Table:
        """Load a table without a fault."""
        return self._load(("lake", name))

    def names(self) -> list[str]:
        """Return the names of all tables without a fault."""
        return [name for _, name in self._locations]

    def metadata_files(self) -> dict[str, str]:
        """Return the metadata file of each table by the table's full name, without a fault."""
        return {".".join(name): file for name, file in self._locations.items()}

    def has_long_log(self) -> bool:
        """Return whether a table has had more metadata files than it names (Iceberg: previous-versions-max)."""
        return any(len(self._metadata[file].metadata_log) >= NAMED_FILES for file in self._locations.values())

    def find(self, name: str) -> Table | None:
        """Load a table without a fault; None if it does not exist."""
        return self._load(("lake", name)) if ("lake", name) in self._locations else None

    def list_tables(self, namespace: Any) -> list[tuple[str, ...]]:
        """Return the names of all tables."""
        return self._call("list_tables", lambda: list(self._locations))

    def drop_table(self, identifier: Any) -> None:
        """Drop a table, and keep its files."""
        name = self.identifier_to_tuple(identifier)

        def drop() -> None:
            self._world.judge(self.on_drop, self._load(name))
            del self._locations[name]

        self._call("drop_table", drop)

    def create_namespace(self, namespace: Any, properties: Any = None) -> None:
        """Create a namespace."""

        def create() -> None:
            if namespace in self._namespaces:
                raise NamespaceAlreadyExistsError(namespace)
            self._namespaces[namespace] = dict(properties or {})

        self._call("create_namespace", create)

    def load_namespace_properties(self, namespace: Any) -> dict[str, str]:
        """Return the properties of a namespace."""

        def properties() -> dict[str, str]:
            if namespace not in self._namespaces:
                raise NoSuchNamespaceError(namespace)
            return dict(self._namespaces[namespace])

        return self._call("namespace_properties", properties)

    def update_namespace_properties(self, namespace: Any, removals: Any = None, updates: Any = None) -> Any:
        """Change the properties of a namespace."""

        def update() -> None:
            present = self._namespaces[namespace]
            present.update(updates or {})
            for name in removals or ():
                present.pop(name, None)

        self._call("update_namespace", update)

    def lost_job(self, name: str) -> Callable[[str], Exception]:
        """Return the error of a job of the engine whose response is lost."""
        return partial(Stalled, "Spark Connect", "its address")

    def _call(self, operation: str, effect: Callable[[], T]) -> T:
        return self._world.call(f"catalog.{operation}", effect, OSError)


# Nothing else of pyiceberg's catalogs is used.
MemoryIcebergCatalog.__abstractmethods__ = frozenset()


class SimulatedCatalog(Catalog):
    """The production catalog on the one in memory."""

    @property
    def backend(self) -> CatalogBackend:
        """The type of catalog."""
        backend: CatalogBackend = system_at(self.warehouse).backend
        return backend

    @classmethod
    def on(cls, iceberg: IcebergCatalog, **settings: str) -> SimulatedCatalog:
        """Return the production catalog on one of pyiceberg."""
        # Dagster validates a resource for longer than a schedule takes to start, so there is one template.
        return _template().model_copy(update={"warehouse": iceberg.properties["warehouse"], **settings})

    def spark_settings(self) -> dict[str, str]:
        """Return no settings: the simulated engine has no sessions."""
        return {}


@cache
def _template() -> SimulatedCatalog:
    settings: dict[str, Any] = {"type": "sql", "uri": "sqlite:///simulated", "warehouse": "memory://"}
    return SimulatedCatalog(**settings)
