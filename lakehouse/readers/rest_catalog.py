"""An Iceberg REST catalog, such as Polaris or Snowflake Open Catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehouse.config.topic import Topic
from lakehouse.readers.metadata_pointer import MetadataPointer, Pointer

if TYPE_CHECKING:
    from pyiceberg.table import Table


class RestCatalogReader(MetadataPointer):
    """A registration in the catalog."""

    name = "rest"
    label = "REST catalog"
    resource = "rest_catalog"
    engine = "DuckDB through the REST catalog"
    description = "Registered in an Iceberg REST catalog."
    check_description = "The REST catalog shows a snapshot that passed its audit, and not an old one."

    def look_up(self, namespace: str, topic: Topic, clients: Any) -> Pointer | None:
        """Return the table as the catalog has it."""
        found = clients.rest_catalog.registered(namespace, topic.table)
        return Pointer(found.metadata_location, found.table_uuid, found) if found else None

    def point(self, namespace: str, topic: Topic, table: Table, clients: Any, expected: Pointer | None) -> str:
        """Register the table, or move it; the server compares nothing."""
        location: str = clients.rest_catalog.publish(
            namespace,
            topic.table,
            metadata_location=table.metadata_location,
            table_uuid=str(table.metadata.table_uuid),
            expected=expected.found if expected else None,
        ).metadata_location
        return location

    def dataset(self, namespace: str, topic: Topic, clients: Any) -> tuple[str, str]:
        """Return the server's address and the table in its catalog: the specification names no REST catalogs."""
        catalog = clients.rest_catalog
        return catalog.uri.rstrip("/"), f"{catalog.warehouse}.{namespace}.{topic.table}"
