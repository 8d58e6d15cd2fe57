"""A reader of another distribution: a folder with a file a table, which names the table's metadata file."""

import json
from pathlib import Path

import dagster as dg

from lakehouse.readers.metadata_pointer import MetadataPointer, Pointer


class Shelf(dg.ConfigurableResource):
    """The folder."""

    folder: str

    def file(self, namespace: str, table: str) -> Path:
        return Path(self.folder) / f"{namespace}.{table}.json"


class ShelfReader(MetadataPointer):
    """A file a table."""

    name = "shelf"
    label = "Shelf"
    resource = "shelf"
    engine = "DuckDB through the shelf"
    description = "On a shelf."
    check_description = "The shelf shows a published snapshot."

    def look_up(self, namespace, topic, clients):
        file = clients.shelf.file(namespace, topic.table)
        return Pointer(*json.loads(file.read_text()), None) if file.exists() else None

    def point(self, namespace, topic, table, clients, expected):
        content = [table.metadata_location, str(table.metadata.table_uuid)]
        clients.shelf.file(namespace, topic.table).write_text(json.dumps(content))
        return table.metadata_location

    def dataset(self, namespace, topic, clients):
        return f"file://{clients.shelf.folder}", f"{namespace}.{topic.table}"
