"""A catalog in a SQL database: SQLite, which needs no server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakehouse.core.errors import LakehouseError, Unreachable
from resources.catalogs.backend import CatalogBackend

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as IcebergCatalog

    from resources.catalog import Catalog


class SqlBackend(CatalogBackend):
    """Iceberg's tables in a database."""

    name = "sql"

    def pyiceberg_properties(self, catalog: Catalog) -> dict[str, Any]:
        """Return the properties of pyiceberg's SQL catalog."""
        return {"py-catalog-impl": "resources.clock_checked.ClockCheckedSqlCatalog", "uri": catalog.uri or ""}

    def spark_properties(self, catalog: Catalog) -> dict[str, str]:
        """Return the properties of Iceberg's JDBC catalog (Iceberg, JDBC integration)."""
        # SQLite needs a path where SQLAlchemy writes one more slash; pyiceberg's tables have the V1 columns.
        path = (catalog.uri or "").removeprefix("sqlite:///")
        return {"type": "jdbc", "uri": f"jdbc:sqlite:{path}", "jdbc.schema-version": "V1"}

    def load(self, properties: Mapping[str, Any]) -> IcebergCatalog:
        """Return pyiceberg's catalog, whose tables are made in an empty database."""
        from sqlalchemy.exc import OperationalError

        try:
            return super().load(properties)
        except OperationalError:
            # Two processes that find an empty database both make its tables: the second finds them made.
            return super().load(properties)

    def explained(self, error: Exception, catalog: Catalog) -> LakehouseError | None:
        """Return what an error of the database or of S3 means."""
        from sqlalchemy import make_url
        from sqlalchemy.exc import OperationalError

        if not isinstance(error, OperationalError):
            return super().explained(error, catalog)
        address = make_url(catalog.uri or "").render_as_string(hide_password=True)
        check = "that its file is there and no other program locks it, or its server is up (`lakehouse status`)"
        return Unreachable("The catalog's database", address, check, error.orig)
