"""A reader of another distribution: a folder with a file a table, which names the table's metadata file."""

import json
from pathlib import Path

import dagster as dg
from pyiceberg.table import Table

from lakehouse.config.model import Topic
from lakehouse.core.tables.naming import TableRef
from lakehouse.readers.reader import MetadataPointer, Pointer
from resources.protocols import Resources, resource_of


class Shelf(dg.ConfigurableResource):
    """The folder."""

    folder: str

    def file(self, ref: TableRef) -> Path:
        return Path(self.folder) / f"{ref}.json"


class ShelfReader(MetadataPointer):
    """A file a table."""

    name = "shelf"
    label = "Shelf"
    resource = "shelf"
    engine = "DuckDB through the shelf"
    description = "On a shelf."
    check_description = "The shelf shows a published snapshot."

    def look_up(self, ref: TableRef, resources: Resources) -> Pointer | None:
        file = resource_of(resources, self.resource, Shelf).file(ref)
        return Pointer(*json.loads(file.read_text()), None) if file.exists() else None

    def point(self, topic: Topic, ref: TableRef, table: Table, resources: Resources, expected: Pointer | None) -> str:
        content = [table.metadata_location, str(table.metadata.table_uuid)]
        resource_of(resources, self.resource, Shelf).file(ref).write_text(json.dumps(content))
        return table.metadata_location

    def dataset(self, ref: TableRef, resources: Resources) -> tuple[str, str]:
        return f"file://{resource_of(resources, self.resource, Shelf).folder}", str(ref)
