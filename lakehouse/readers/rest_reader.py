"""An Iceberg REST catalog, such as Polaris or Snowflake Open Catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.config.model import Topic
from lakehouse.core.errors import redact_credentials
from lakehouse.core.tables.naming import TableRef
from lakehouse.readers.reader import MetadataPointer, Pointer
from resources.iceberg.rest_catalog import RestCatalog
from resources.protocols import Resources, resource_of

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

    def look_up(self, ref: TableRef, resources: Resources) -> Pointer | None:
        registration = resource_of(resources, self.resource, RestCatalog).registration(*ref.shown)
        return Pointer(registration.metadata_location, registration.table_uuid, registration) if registration else None

    def point(self, topic: Topic, ref: TableRef, table: Table, resources: Resources, expected: Pointer | None) -> str:
        # The server does not compare the previous state.
        registration = resource_of(resources, self.resource, RestCatalog).publish(
            *ref.shown,
            metadata_location=table.metadata_location,
            table_uuid=str(table.metadata.table_uuid),
            expected=expected.registration if expected else None,
        )
        return registration.metadata_location

    def dataset(self, ref: TableRef, resources: Resources) -> tuple[str, str]:
        # OpenLineage specifies no names for REST catalogs.
        catalog = resource_of(resources, self.resource, RestCatalog)
        return redact_credentials(catalog.uri.rstrip("/")), f"{catalog.warehouse}.{ref}"
