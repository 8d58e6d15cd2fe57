"""A catalog in an SQLite file, whose `uri` is the path."""

from resources.iceberg.catalog_types import SqlBackend


class FileBackend(SqlBackend):
    """A catalog in an SQLite file."""

    name = "sqlite_file"

    def uri(self, catalog):
        return f"sqlite:///{catalog.uri}"
