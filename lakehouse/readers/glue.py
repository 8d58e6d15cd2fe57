"""The AWS Glue Data Catalog, where Athena and Snowflake find tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehouse.config.topic import Topic
from lakehouse.core.errors import UnclearState
from lakehouse.readers.metadata_pointer import MetadataPointer, Pointer
from resources.catalogs.glue import GlueBackend

if TYPE_CHECKING:
    from pyiceberg.table import Table


class GlueReader(MetadataPointer):
    """A registration in Glue."""

    name = "glue"
    label = "Glue"
    resource = "glue"
    is_optional = False
    engine = "DuckDB through Glue"
    kinds = frozenset({"glue", "iceberg"})
    description = "Registered in the AWS Glue Data Catalog."
    check_description = "Glue's metadata_location is of a snapshot that passed its audit, and not of an old one."

    def look_up(self, namespace: str, topic: Topic, clients: Any) -> Pointer | None:
        """Return Glue's registration, with the version that an update requires."""
        found = clients.glue.registration(namespace, topic.table)
        return Pointer(found.metadata_location, found.table_uuid, found) if found else None

    def point(self, namespace: str, topic: Topic, table: Table, clients: Any, expected: Pointer | None) -> str:
        """Create or update the registration. Where Glue is the catalog itself, each commit has done so."""
        glue, catalog = clients.glue, clients.catalog
        if isinstance(catalog.backend, GlueBackend):
            shown = expected.metadata_location if expected else "no such table"
            raise UnclearState(
                f"The catalog is Glue and has {namespace}.{topic.table}, but the resource `glue` (region {glue.region},"
                f" catalog {glue.catalog_id}) shows {shown}. Nothing was changed. Give `glue` and `catalog` the same"
                f" account and region in lakehouse.yaml"
            )
        if expected is None:
            glue.ensure_database(namespace, f"{catalog.warehouse}/{namespace}")
        registration = glue.register(
            namespace,
            topic.table,
            metadata_location=table.metadata_location,
            schema=table.schema(),
            table_uuid=str(table.metadata.table_uuid),
            location=table.location(),
            comment=topic.description,
            expected=expected.found if expected else None,
        )
        return str(registration.metadata_location)

    def dataset(self, namespace: str, topic: Topic, clients: Any) -> tuple[str, str]:
        """Return the catalog's ARN and the table in it."""
        return f"arn:aws:glue:{clients.glue.region}:{clients.glue.catalog_id}", f"table/{namespace}/{topic.table}"
