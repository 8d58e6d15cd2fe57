"""AWS Glue as the Iceberg catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.catalog.glue import GlueCatalog

from lakehouse.core.errors import LakehouseError
from resources.aws import glue_errors
from resources.aws.assumed_role import botocore_session
from resources.iceberg.catalog_settings import CatalogSettings
from resources.iceberg.catalogs.backend import CatalogBackend

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as IcebergCatalog

TIMEOUT_SECONDS, RETRIES = 10, 2
"""Limits for sensors: Dagster ends a tick after 60 seconds."""


class GlueBackend(CatalogBackend):
    """The AWS Glue Data Catalog."""

    name = "glue"
    namespace_suffix = ".db"
    cleaning = {"s3.delete-enabled": "true"}

    def pyiceberg_properties(self, catalog: CatalogSettings) -> dict[str, Any]:
        """Return the properties of pyiceberg's Glue catalog, with calls limited to 31 seconds instead of 11 minutes.

        PyIceberg has no property for time-outs, so they are set on the session of its client.
        """
        session = botocore_session(catalog.role_arn, catalog.region)
        session.set_default_client_config(Config(connect_timeout=TIMEOUT_SECONDS, read_timeout=TIMEOUT_SECONDS))
        implementation = "resources.iceberg.clock_checked.ClockCheckedGlueCatalog"
        return {"py-catalog-impl": implementation, "botocore_session": session, "glue.max-retries": RETRIES}

    def spark_properties(self, catalog: CatalogSettings) -> dict[str, str]:
        """Return the properties of Iceberg's Glue catalog (Iceberg, AWS integration)."""
        # Iceberg rejects hyphens in database names, but Tableflow's database is the id of a Kafka cluster: lkc-….
        validation = {"glue.skip-name-validation": "true"}
        # Iceberg's Java catalog treats any error response of UpdateTable as a rejection (GlueTableOperations.doCommit)
        # and deletes the metadata file, which Glue may refer to by now. So no commit may delete files.
        return {"type": "glue", "s3.delete-enabled": "false"} | validation

    def metadata_files(self, iceberg: IcebergCatalog, namespace: str) -> dict[str, str]:
        """Return the metadata file of each table in a database by the table's full name."""
        assert isinstance(iceberg, GlueCatalog)
        pages = iceberg.glue.get_paginator("get_tables").paginate(DatabaseName=namespace)
        tables = [table for page in pages for table in page["TableList"]]
        files = {table["Name"]: table.get("Parameters", {}).get("metadata_location") for table in tables}
        return {f"{namespace}.{name}": file for name, file in files.items() if file}

    def to_error(self, error: Exception, catalog: CatalogSettings) -> LakehouseError | None:
        """Translate an error of Glue or S3."""
        if isinstance(error, ClientError | BotoCoreError):
            return glue_errors.to_error(error, catalog.region)
        return super().to_error(error, catalog)
