"""A catalog in a SQL database: SQLite, which needs no server, or PostgreSQL, which several machines can share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from sqlalchemy import make_url, select
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError
from sqlalchemy.orm import Session

from lakehouse.core.errors import ConfigError, LakehouseError, Unreachable
from resources.iceberg.catalog_settings import CatalogSettings
from resources.iceberg.catalogs.backend import CatalogBackend

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as IcebergCatalog
    from sqlalchemy import URL

POSTGRESQL_PORT = 5432


class SqlBackend(CatalogBackend):
    """Iceberg tables whose current metadata files are listed in a database."""

    name = "sql"

    def uri(self, catalog: CatalogSettings) -> str:
        """Return the database as a SQLAlchemy URL."""
        return catalog.uri or ""

    def pyiceberg_properties(self, catalog: CatalogSettings) -> dict[str, Any]:
        """Return the properties of pyiceberg's SQL catalog."""
        return {"py-catalog-impl": "resources.iceberg.clock_checked.ClockCheckedSqlCatalog", "uri": self.uri(catalog)}

    def spark_properties(self, catalog: CatalogSettings) -> dict[str, str]:
        """Return the properties of Iceberg's JDBC catalog (Iceberg, JDBC integration).

        Raises:
            ConfigError: The database is neither SQLite nor PostgreSQL, or the address is incomplete.
        """
        url = _url(self.uri(catalog))
        # pyiceberg creates its tables with the columns of version V1.
        settings = {"type": "jdbc", "jdbc.schema-version": "V1"}
        if url.get_backend_name() == "sqlite":
            return settings | {"uri": f"jdbc:sqlite:{Path(url.database or '').absolute()}"}
        # Options have the same names in libpq and in PostgreSQL's JDBC driver, such as sslmode.
        host = f"[{url.host}]" if ":" in (url.host or "") else url.host
        address = f"jdbc:postgresql://{host}:{url.port or POSTGRESQL_PORT}/{url.database}"
        options = {f"jdbc.{key}": str(value) for key, value in url.query.items()}
        login = {"jdbc.user": url.username or "", "jdbc.password": url.password or ""}
        return settings | {"uri": address} | options | login

    def load(self, properties: Mapping[str, Any]) -> IcebergCatalog:
        """Return pyiceberg's catalog, which creates its tables in an empty database."""
        try:
            return super().load(properties)
        except DatabaseError:
            # Two processes that open an empty database both create its tables; the second one's attempt fails.
            return super().load(properties)

    def metadata_files(self, iceberg: IcebergCatalog, namespace: str) -> dict[str, str]:
        """Return the metadata file of each table by the table's full name, of all namespaces in one query."""
        assert isinstance(iceberg, SqlCatalog)
        columns = IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location
        query = select(*columns).where(IcebergTables.catalog_name == iceberg.name)
        with Session(iceberg.engine) as session:
            return {f"{owner}.{name}": file or "" for owner, name, file in session.execute(query)}

    def to_error(self, error: Exception, catalog: CatalogSettings) -> LakehouseError | None:
        """Translate an error of the database or S3."""
        if not isinstance(error, OperationalError):
            return super().to_error(error, catalog)
        address = _url(self.uri(catalog)).render_as_string(hide_password=True)
        check = "that its file exists and no other program locks it, or that its server is up (`lakehouse status`)"
        return Unreachable("The catalog's database", address, check, error.orig)


def _url(uri: str) -> URL:
    remedy = "Set `uri` to sqlite:///PATH or postgresql+psycopg2://HOST/DATABASE, with the login, in lakehouse.yaml"
    try:
        url = make_url(uri)
    except ArgumentError:
        # The text is not repeated: it may contain a password.
        raise ConfigError(f"The `uri` of the catalog is not a SQLAlchemy URL. {remedy}") from None
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigError(f"The catalog has no support for {url.get_backend_name()} databases. {remedy}")
    if not url.database or (url.get_backend_name() == "postgresql" and not url.host):
        raise ConfigError(f"The `uri` of the catalog names no host or no database, which Spark needs. {remedy}")
    return url
