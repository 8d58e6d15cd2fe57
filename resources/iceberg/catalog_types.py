"""The types of Iceberg catalog: a SQL database, AWS Glue, and Iceberg's REST protocol (rest_backend.py).

To add one, write a class that implements CatalogBackend and add it to CATALOGS. A separate distribution names its class
as an entry point of the group `lakehouse.catalogs`.

pyiceberg writes the local time into a table's metadata without any comparison. Iceberg's Java library, and so Spark,
Athena and Trino, refuse to read metadata whose history goes back by more than a minute
(org.apache.iceberg.TableMetadata, "Expected sorted snapshot log entries"), and nothing repairs such a table. Catalogs
whose metadata files pyiceberg writes therefore derive from `ClockChecked`, which refuses commits while this machine's
clock is behind the table's history. REST catalogs do not: their servers write the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.glue import GlueCatalog, _construct_table_input
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from sqlalchemy import make_url, select, update
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError
from sqlalchemy.orm import Session

from lakehouse.core.errors import ClockSkew, ConfigError, LakehouseError, Unreachable
from lakehouse.core.registry import by_name, implementations
from lakehouse.core.tables.naming import TableRef
from resources.aws.clients import botocore_session, glue_error, translate_permanent_errors
from resources.aws.glue import STALE, iceberg_parameters
from resources.forms import Form
from resources.iceberg.catalog_backend import CatalogBackend, CatalogSettings, PointerBackend
from resources.iceberg.commits import MAX_SKEW_SECONDS, format_utc, now_ms
from resources.iceberg.rest_backend import RestBackend

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as IcebergCatalog
    from sqlalchemy import URL


POSTGRESQL_PORT = 5432
IN_S3 = Form(r"(s3[an]?|file)://\S+", "a folder in S3", "s3://BUCKET/FOLDER")


class SqlBackend(PointerBackend):
    """Iceberg tables whose current metadata files are listed in a database."""

    name = "sql"
    forms = {
        "uri": Form(
            r"sqlite:///.+|postgresql(\+\w+)?://[^\s/].*",
            "the URL of a SQLite or PostgreSQL database",
            "sqlite:///catalog.db or postgresql://HOST/DATABASE",
        ),
        "warehouse": IN_S3,
    }

    def uri(self, catalog: CatalogSettings) -> str:
        """Return the database as a SQLAlchemy URL."""
        return catalog.uri or ""

    def pyiceberg_properties(self, catalog: CatalogSettings) -> dict[str, Any]:
        uri = self.uri(catalog)
        _url(uri)  # pyiceberg and SQLAlchemy would report an unusable one by a traceback without the remedy
        return {"py-catalog-impl": "resources.iceberg.catalog_types.ClockCheckedSqlCatalog", "uri": uri}

    def spark_properties(self, catalog: CatalogSettings) -> dict[str, str]:
        # Iceberg, JDBC integration.
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
        try:
            return super().load(properties)
        except DatabaseError:
            # Two processes that open an empty database both create its tables; the second one's attempt fails.
            return super().load(properties)

    def metadata_files(self, iceberg: IcebergCatalog, namespace: str) -> dict[str, str]:
        assert isinstance(iceberg, SqlCatalog)
        # One query for all namespaces.
        columns = IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location
        query = select(*columns).where(IcebergTables.catalog_name == iceberg.name)
        with Session(iceberg.engine) as session:
            return {f"{owner}.{name}": file or "" for owner, name, file in session.execute(query)}

    def point(self, iceberg: IcebergCatalog, ref: TableRef, expected: str, replacement: Table) -> bool:
        assert isinstance(iceberg, SqlCatalog)
        namespace, name = ref.identifier
        row = {"catalog_name": iceberg.name, "table_namespace": namespace, "table_name": name}
        files = {"metadata_location": replacement.metadata_location, "previous_metadata_location": expected}
        statement = update(IcebergTables).filter_by(**row, metadata_location=expected).values(**files)
        with Session(iceberg.engine) as session:
            changed = session.connection().execute(statement).rowcount
            session.commit()
        return changed == 1

    def to_error(self, error: Exception, catalog: CatalogSettings) -> LakehouseError | None:
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


TIMEOUT_SECONDS, RETRIES = 10, 2
"""Limits for sensors: Dagster ends a tick after 60 seconds."""


class GlueBackend(PointerBackend):
    """The AWS Glue Data Catalog."""

    name = "glue"
    forms = {"warehouse": IN_S3}
    namespace_suffix = ".db"
    cleaning = {"s3.delete-enabled": "true"}

    def address(self, catalog: CatalogSettings) -> str:
        return f"AWS Glue, region {catalog.region or 'of the environment'}"

    def pyiceberg_properties(self, catalog: CatalogSettings) -> dict[str, Any]:
        # Calls are limited to 31 seconds instead of 11 minutes. pyiceberg has no property for time-outs, so the session
        # of its client has them.
        session = botocore_session(catalog.role_arn, catalog.region)
        session.set_default_client_config(Config(connect_timeout=TIMEOUT_SECONDS, read_timeout=TIMEOUT_SECONDS))
        implementation = "resources.iceberg.catalog_types.ClockCheckedGlueCatalog"
        return {"py-catalog-impl": implementation, "botocore_session": session, "glue.max-retries": RETRIES}

    def spark_properties(self, catalog: CatalogSettings) -> dict[str, str]:
        # Iceberg rejects hyphens in database names, but Tableflow's database is the id of a Kafka cluster: lkc-….
        validation = {"glue.skip-name-validation": "true"}
        # Iceberg's Java catalog treats any error response of UpdateTable as a rejection (GlueTableOperations.doCommit)
        # and deletes the metadata file, which Glue may refer to by now. So no commit may delete files.
        return {"type": "glue", "s3.delete-enabled": "false"} | validation

    def metadata_files(self, iceberg: IcebergCatalog, namespace: str) -> dict[str, str]:
        assert isinstance(iceberg, GlueCatalog)
        pages = iceberg.glue.get_paginator("get_tables").paginate(DatabaseName=namespace)
        tables = [table for page in pages for table in page["TableList"]]
        files = {table["Name"]: table.get("Parameters", {}).get("metadata_location") for table in tables}
        return {f"{namespace}.{name}": file for name, file in files.items() if file}

    def point(self, iceberg: IcebergCatalog, ref: TableRef, expected: str, replacement: Table) -> bool:
        assert isinstance(iceberg, GlueCatalog)
        database, name = ref.identifier
        entry = iceberg.glue.get_table(DatabaseName=database, Name=name)["Table"]
        if iceberg_parameters(entry, f"{database}.{name}")["metadata_location"] != expected:
            return False
        table = _construct_table_input(
            name, replacement.metadata_location, {}, replacement.metadata, entry, prev_metadata_location=expected
        )
        try:
            iceberg.glue.update_table(
                DatabaseName=database, TableInput=table, VersionId=entry["VersionId"], SkipArchive=True
            )
        except ClientError as error:
            if error.response["Error"]["Code"] in STALE:
                return False
            raise
        return True

    def to_error(self, error: Exception, catalog: CatalogSettings) -> LakehouseError | None:
        if isinstance(error, ClientError | BotoCoreError):
            return glue_error(error, catalog.region)
        return super().to_error(error, catalog)


def require_clock(table: Table) -> None:
    """Require that this machine's clock is not behind the newest entry in a table's history.

    Raises:
        ClockSkew: The clock is more than `MAX_SKEW_SECONDS` behind.
    """
    metadata = table.metadata
    logged = [entry.timestamp_ms for entry in metadata.snapshot_log[-1:]]
    logged += [entry.timestamp_ms for entry in metadata.metadata_log[-1:]]
    newest, now = max(metadata.last_updated_ms, *logged, 0), now_ms()
    if now < newest - MAX_SKEW_SECONDS * 1000:
        raise ClockSkew(
            f"{format_utc(now)} UTC, {(newest - now) / 1000:.0f} s before the newest entry in the history of "
            f"{'.'.join(table.name())} ({format_utc(newest)} UTC)",
            "Spark and Athena could no longer read the table",
        )


class ClockChecked(MetastoreCatalog):
    """Base class of catalogs that compare the clock with the very metadata that a commit replaces."""

    def _update_and_stage_table(self, current_table: Table | None, *arguments: Any) -> StagedTable:
        # The table that a caller passes to commit_table is older: another machine may have committed since.
        if current_table is not None:
            require_clock(current_table)
        return super()._update_and_stage_table(current_table, *arguments)


class ClockCheckedSqlCatalog(ClockChecked, SqlCatalog):
    """An Iceberg catalog in a SQL database."""


class ClockCheckedGlueCatalog(ClockChecked, GlueCatalog):
    """An Iceberg catalog in AWS Glue, which distinguishes rejections from lost responses."""

    def _get_glue_table(self, database_name: str, table_name: str) -> Any:
        table = super()._get_glue_table(database_name, table_name)
        iceberg_parameters(table, f"{database_name}.{table_name}")
        return table

    def create_namespace(self, *args: Any, **kwargs: Any) -> None:
        with translate_permanent_errors(self.glue.meta.region_name):
            super().create_namespace(*args, **kwargs)

    def create_table(self, *args: Any, **kwargs: Any) -> Table:
        with translate_permanent_errors(self.glue.meta.region_name):
            return super().create_table(*args, **kwargs)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        with translate_permanent_errors(self.glue.meta.region_name):
            return super().commit_table(table, requirements, updates)


CATALOGS: Sequence[type[CatalogBackend]] = (SqlBackend, GlueBackend, RestBackend)
"""The types of this project."""


@cache
def registered() -> Mapping[str, CatalogBackend]:
    """Return all types by name: this project's and those of installed distributions."""
    return {name: backend() for name, backend in implementations(CATALOGS, "lakehouse.catalogs").items()}


def backend_of(type_: str) -> CatalogBackend:
    """Return the backend of a type."""
    return by_name(registered(), type_, f"Catalog type '{type_}' is not known.")
