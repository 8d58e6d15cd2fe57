"""The AWS Glue Data Catalog, in which Athena and Snowflake look up tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.config.model import Topic
from lakehouse.core.errors import UnclearState
from lakehouse.core.tables.naming import TableRef
from lakehouse.readers.reader import MetadataPointer, Pointer
from resources.aws.glue import Glue
from resources.protocols import Resources, resource_of

if TYPE_CHECKING:
    from pyiceberg.table import Table


class GlueReader(MetadataPointer):
    """Registers tables in Glue."""

    name = "glue"
    label = "Glue"
    resource = "glue"
    engine = "DuckDB through Glue"
    kinds = frozenset({"glue", "iceberg"})
    description = "Registered in the AWS Glue Data Catalog."
    check_description = "Glue's metadata_location points to a snapshot that passed its audit and is not outdated."

    def look_up(self, ref: TableRef, resources: Resources) -> Pointer | None:
        registration = resource_of(resources, self.resource, Glue).registration(*ref.identifier)
        if registration is None:
            return None
        location, written = registration.metadata_location, registration.own_location
        is_own = None if written is None else written == location
        return Pointer(location, registration.table_uuid, registration, is_own)

    def point(self, topic: Topic, ref: TableRef, table: Table, resources: Resources, expected: Pointer | None) -> str:
        glue, catalog = resource_of(resources, self.resource, Glue), resources.catalog
        if not topic.is_ingested:
            location = expected.metadata_location if expected else "no such table"
            raise UnclearState(
                f"Tableflow registers its tables in Glue itself, but Glue has {location} as "
                f"{'.'.join(ref.identifier)}. Nothing was changed. Check the catalog integration of Tableflow with Glue"
            )
        from resources.iceberg.catalog_types import GlueBackend

        # If Glue is the Iceberg catalog itself, each commit has updated the registration.
        if isinstance(catalog.backend, GlueBackend):
            location = expected.metadata_location if expected else "no such table"
            raise UnclearState(
                f"The catalog is Glue and has {ref}, but the resource `glue` (region {glue.region},"
                f" catalog {glue.catalog_id}) has {location}. Nothing was changed. Configure the same account and"
                f" region for `glue` and `catalog` in lakehouse.yaml"
            )
        if expected is None:
            glue.ensure_database(ref.namespace, f"{catalog.folder(table)}/{ref.namespace}")
        registration = glue.register(
            *ref.identifier,
            metadata_location=table.metadata_location,
            schema=table.schema(),
            table_uuid=str(table.metadata.table_uuid),
            location=table.location(),
            comment=topic.description,
            expected=expected.registration if expected else None,
        )
        return str(registration.metadata_location)

    def dataset(self, ref: TableRef, resources: Resources) -> tuple[str, str]:
        glue = resource_of(resources, self.resource, Glue)
        return f"arn:aws:glue:{glue.region}:{glue.catalog_id}", f"table/{ref.namespace}/{ref.name}"
