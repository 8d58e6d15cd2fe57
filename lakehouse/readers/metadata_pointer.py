"""Readers that hold a pointer to the metadata file of each table, and follow the table by moving it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehouse.config.topic import Topic
from lakehouse.readers.reader import Reader, Registration

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True)
class Pointer:
    """What such a reader has registered under a table's name.

    Attributes:
        metadata_location: The metadata file that it points to.
        table_uuid: The UUID of the Iceberg table, where the reader knows it.
        found: The registration as the reader's client returned it, which guards an update.
    """

    metadata_location: str
    table_uuid: str | None
    found: Any


class MetadataPointer(Reader):
    """A reader whose pointer never moves back, and never over a commit that somebody made through the reader."""

    @abstractmethod
    def look_up(self, namespace: str, topic: Topic, clients: Any) -> Pointer | None:
        """Return what is registered under the name of the topic's table, if anything is.

        Raises:
            UnclearState: It is no Iceberg table.
            LakehouseError: The reader refuses.
            Unreachable: The reader does not answer.
        """

    @abstractmethod
    def point(self, namespace: str, topic: Topic, table: Table, clients: Any, expected: Pointer | None) -> str:
        """Register the table's metadata file in place of what is expected, and return its location.

        Raises:
            CommitConflict: Something else than `expected` is registered by now.
            UnclearState: Another Iceberg table has the name.
            LakehouseError: The reader refuses.
            Unreachable: The reader does not answer.
        """

    def publish(self, namespace: str, topic: Topic, table: Table, clients: Any) -> Registration:
        """Point the reader at the table, unless it points at this state or a later one."""
        from resources.catalog import snapshot_at
        from resources.registrations import is_current

        pointer = self.look_up(namespace, topic, clients)
        if pointer and pointer.table_uuid in (None, str(table.metadata.table_uuid)):
            location = pointer.metadata_location
            # It was looked up after the table was loaded, so that another process may have published since.
            if is_current(self.label, location, clients.catalog, namespace, table):
                return Registration(location, snapshot_at(clients.catalog, location))
        location = self.point(namespace, topic, table, clients, pointer)
        return Registration(location, table.metadata.current_snapshot_id)

    def current(self, namespace: str, topic: Topic, clients: Any) -> Registration | None:
        """Return the metadata file that is registered, and the snapshot in it."""
        from resources.catalog import snapshot_at

        pointer = self.look_up(namespace, topic, clients)
        if pointer is None:
            return None
        return Registration(pointer.metadata_location, snapshot_at(clients.catalog, pointer.metadata_location))
