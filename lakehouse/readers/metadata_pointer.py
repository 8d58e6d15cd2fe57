"""Readers that store a pointer to the metadata file of each table, and follow the table by moving the pointer."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehouse.config.model import Topic
from lakehouse.core.tables.naming import TableRef
from lakehouse.readers.reader import Reader, Registration
from resources.protocols import Resources

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True)
class Pointer:
    """Registration of a table in such a reader.

    Attributes:
        metadata_location: The location of the metadata file.
        table_uuid: The UUID of the Iceberg table; None if the reader does not store it.
        registration: The registration as returned by the reader's client, which guards an update.
        is_own: Whether this program registered the file; None if unknown.
    """

    metadata_location: str
    table_uuid: str | None
    registration: Any
    is_own: bool | None = None


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
        """Move the pointer to the table as loaded, unless it is there already or at a later state."""
        from resources.iceberg.registrations import is_current

        pointer = self.look_up(ref, resources)
        if pointer and pointer.table_uuid in (None, str(table.metadata.table_uuid)):
            location = pointer.metadata_location
            # The pointer was looked up after the table was loaded, so another process may have published since.
            if is_current(self.label, location, resources.catalog, table, is_own=pointer.is_own):
                return Registration.of(location, resources)
        location = self.point(topic, ref, table, resources, pointer)
        return Registration(location, table.metadata.current_snapshot_id)

    def current(self, ref: TableRef, resources: Resources) -> Registration | None:
        """Return the registered metadata file and its snapshot."""
        pointer = self.look_up(ref, resources)
        return Registration.of(pointer.metadata_location, resources) if pointer else None
