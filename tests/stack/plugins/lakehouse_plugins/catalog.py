"""A catalog in a file of SQLite, whose `uri` is the path."""

from resources.catalogs.sql import SqlBackend


class FileBackend(SqlBackend):
    """The path, as pyiceberg takes it; Spark takes it as it is."""

    name = "sqlite_file"

    def pyiceberg_properties(self, catalog):
        return super().pyiceberg_properties(catalog) | {"uri": f"sqlite:///{catalog.uri}"}
