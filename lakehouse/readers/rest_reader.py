"""An Iceberg REST catalog, such as Polaris or Snowflake Open Catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehouse.config.topic import Topic
from lakehouse.core.tables.table_ref import TableRef
from lakehouse.readers.metadata_pointer import MetadataPointer, Pointer

if TYPE_CHECKING:
    from pyiceberg.table import Table


class RestCatalogReader(MetadataPointer):
    """Registers tables in a REST catalog."""

    name = "rest"
    label = "REST catalog"
    resource = "rest_catalog"
    engine = "DuckDB through the REST catalog"
    description = "Registered in an Iceberg REST catalog."
    check_description = "The REST catalog points to a snapshot that passed its audit and is not outdated."

    def look_up(self, ref: TableRef, clients: Any) -> Pointer | None:
        """Return the catalog's registration of the table."""
        registration = clients.rest_catalog.registration(*ref.shown)
        return Pointer(registration.metadata_location, registration.table_uuid, registration) if registration else None

    def point(self, topic: Topic, ref: TableRef, table: Table, clients: Any, expected: Pointer | None) -> str:
        """Register the table, or move the registration. The server does not compare the previous state."""
        location: str = clients.rest_catalog.publish(
            *ref.shown,
            metadata_location=table.metadata_location,
            table_uuid=str(table.metadata.table_uuid),
            expected=expected.registration if expected else None,
        ).metadata_location
        return location

    def dataset(self, ref: TableRef, clients: Any) -> tuple[str, str]:
        """Return the server's address and the table in its catalog; OpenLineage specifies no names for REST
        catalogs."""
        catalog = clients.rest_catalog
        return catalog.uri.rstrip("/"), f"{catalog.warehouse}.{ref}"
