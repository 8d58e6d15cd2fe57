"""AWS Glue as the catalog itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehouse.core.errors import LakehouseError
from resources import glue_errors
from resources.catalogs.backend import CatalogBackend

if TYPE_CHECKING:
    from resources.catalog import Catalog

TIMEOUT_SECONDS, RETRIES = 10, 2
"""A sensor asks, too, and Dagster ends its tick after 60 seconds."""


class GlueBackend(CatalogBackend):
    """The AWS Glue Data Catalog."""

    name = "glue"
    cleaning = {"s3.delete-enabled": "true"}

    def pyiceberg_properties(self, catalog: Catalog) -> dict[str, Any]:
        """Return the properties of pyiceberg's Glue catalog, by which a call ends within 31 seconds instead of eleven
        minutes.

        PyIceberg has no property for the time-outs: they come with the session that it makes its client of.
        """
        from botocore.config import Config
        from botocore.session import get_session

        session = get_session()
        session.set_default_client_config(Config(connect_timeout=TIMEOUT_SECONDS, read_timeout=TIMEOUT_SECONDS))
        implementation = "resources.clock_checked.ClockCheckedGlueCatalog"
        return {"py-catalog-impl": implementation, "botocore_session": session, "glue.max-retries": RETRIES}

    def spark_properties(self, catalog: Catalog) -> dict[str, str]:
        """Return the properties of Iceberg's Glue catalog (Iceberg, AWS integration)."""
        # Iceberg's Java catalog takes any error answer of UpdateTable for a refusal (GlueTableOperations.doCommit), and
        # then deletes the metadata file that Glue may point to by now. So no commit may delete files.
        return {"type": "glue", "s3.delete-enabled": "false"}

    def explained(self, error: Exception, catalog: Catalog) -> LakehouseError | None:
        """Return what an error of Glue or of S3 means."""
        from botocore.exceptions import BotoCoreError, ClientError

        if isinstance(error, ClientError | BotoCoreError):
            return glue_errors.error_of(error, catalog.region)
        return super().explained(error, catalog)
