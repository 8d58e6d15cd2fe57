"""The AWS Glue Data Catalog: registrations of Iceberg tables, with optimistic locking.

Format: Apache Iceberg, AWS integrations, "Glue Catalog": a Glue table with the parameters `table_type=ICEBERG`,
`metadata_location` and `previous_metadata_location`. boto3 determines endpoints and credentials (AWS_ENDPOINT_URL,
AWS_ACCESS_KEY_ID …).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
from botocore.exceptions import ClientError
from pydantic import Field, PrivateAttr

from lakehouse.core.errors import CommitConflict, LakehouseError, UnclearState, Unreachable
from lakehouse.core.table_protocol import GLUE_LOCATION
from lakehouse.formats.columns import glue_comment
from resources.aws.clients import aws_errors, boto3_client, glue_error
from resources.iceberg.commits import not_iceberg_error

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from pyiceberg.schema import Schema

DESCRIPTION_CHARACTERS = 2048 // 4
"""Glue accepts 2,048 bytes (AWS Glue API, TableInput), and a character has up to four."""
STALE = (
    "ConcurrentModificationException",
    "VersionMismatchException",
    "AlreadyExistsException",
    "EntityNotFoundException",
)
"""Error codes of an update based on an outdated registration."""


@dataclass(frozen=True)
class GlueRegistration:
    """The registration of a table."""

    metadata_location: str
    """The metadata file."""
    table_uuid: str | None
    """The UUID of the Iceberg table."""
    version_id: str | None
    """Glue's version, which every update changes."""
    own_location: str | None = None
    """The metadata file that this program registered last; None if an earlier release did."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """All parameters of the table, also those that other programs set."""


class Glue(dg.ConfigurableResource):
    """The Glue Data Catalog of one AWS account and region."""

    region: str = Field(description="AWS region of the catalog.")
    catalog_id: str = Field(description="AWS account that owns the catalog.")
    tableflow_database: str = Field(
        default="", description="Database in which Tableflow registers tables. Default: the id of the Kafka cluster."
    )
    role_arn: str = Field(
        default="", description="IAM role to assume; if empty, the credentials of the environment apply."
    )

    _client: tuple[Sequence[str | None], GlueClient] | None = PrivateAttr(default=None)

    def client(self) -> GlueClient:
        """Return boto3's client, with time-outs and without retries: an update may have been applied.

        Creating a client takes longer than a request, so it is cached until the environment variables that determine
        its endpoint and account change.
        """
        variables = "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_GLUE", "AWS_ACCESS_KEY_ID"
        environment = [os.environ.get(name) for name in variables]
        if self._client is None or self._client[0] != environment:
            self._client = environment, boto3_client("glue", self.region, self.role_arn, total_max_attempts=1)
        return self._client[1]

    def ensure_database(self, database: str, location: str) -> None:
        """Create the database if it does not exist. Only this requires the right to create databases."""
        glue = self.client()
        with self._translate_errors():
            try:
                glue.get_database(CatalogId=self.catalog_id, Name=database)
                return
            except glue.exceptions.EntityNotFoundException:
                pass
            try:
                glue.create_database(
                    CatalogId=self.catalog_id, DatabaseInput={"Name": database, "LocationUri": location}
                )
            except glue.exceptions.AlreadyExistsException:
                return

    def registration(self, database: str, table: str) -> GlueRegistration | None:
        """Return the registration of a table, or None if there is none.

        Raises:
            UnclearState: Glue has a table of that name that is not an Iceberg table.
        """
        glue = self.client()
        with self._translate_errors():
            try:
                entry = glue.get_table(CatalogId=self.catalog_id, DatabaseName=database, Name=table)["Table"]
            except glue.exceptions.EntityNotFoundException:
                return None
        parameters = iceberg_parameters(entry, f"{database}.{table}")
        return GlueRegistration(
            metadata_location=parameters["metadata_location"],
            table_uuid=parameters.get("uuid"),
            version_id=entry.get("VersionId"),
            own_location=parameters.get(GLUE_LOCATION),
            parameters=parameters,
        )

    def register(
        self,
        database: str,
        table: str,
        *,
        metadata_location: str,
        table_uuid: str,
        schema: Schema,
        location: str,
        comment: str,
        expected: GlueRegistration | None,
    ) -> GlueRegistration:
        """Point the table at a metadata file: create it, or update it if it is still as `expected`.

        Args:
            database: Glue database.
            table: Glue table.
            metadata_location: The metadata file.
            table_uuid: UUID of the Iceberg table.
            schema: Columns for readers of Glue's own columns.
            location: Location of the table, for the same readers.
            comment: Description of the table.
            expected: The last known registration; None if there was none.

        Raises:
            CommitConflict: The registration has changed since.
            UnclearState: Another Iceberg table is registered under the name.
        """
        if expected and expected.table_uuid not in (None, table_uuid):
            raise UnclearState(
                f"Glue registers another Iceberg table as {database}.{table} (uuid {expected.table_uuid}, not "
                f"{table_uuid}). It was left unchanged. Drop it from Glue to register the new one"
            )
        if expected and expected.metadata_location == metadata_location:
            return expected
        # An update replaces all parameters, so those of others are written again, as Iceberg's catalogs for Glue do.
        parameters = dict(expected.parameters) if expected else {}
        parameters |= {"table_type": "ICEBERG", "metadata_location": metadata_location, "uuid": table_uuid}
        parameters[GLUE_LOCATION] = metadata_location
        if expected:
            parameters["previous_metadata_location"] = expected.metadata_location
        table_input: dict[str, Any] = {
            "Name": table,
            "Description": comment[:DESCRIPTION_CHARACTERS],
            "TableType": "EXTERNAL_TABLE",
            "Parameters": parameters,
            "StorageDescriptor": {"Location": location, "Columns": glue_columns(schema)},
        }
        # Glue rejects the update if another writer has changed the version since. The archive of old versions is
        # skipped because Iceberg keeps its own history (Iceberg, AWS integrations: skip archive).
        glue = self.client()
        target: dict[str, Any] = {"CatalogId": self.catalog_id, "DatabaseName": database, "TableInput": table_input}
        if expected and expected.version_id:
            target["VersionId"] = expected.version_id
        lost: Unreachable | None = None
        try:
            with self._translate_errors(database, table):
                glue.update_table(**target, SkipArchive=True) if expected else glue.create_table(**target)
        except Unreachable as error:
            # The response was lost, but the update may have been applied: read it back.
            lost = error
        current = self.registration(database, table)
        if current is not None and current.metadata_location == metadata_location:
            return current
        raise lost or CommitConflict(
            f"Another writer changed {database}.{table} in Glue at the same time. The registration was left unchanged. "
            f"Retry the run or command"
        )

    def _translate_errors(self, *table: str) -> AbstractContextManager[None]:
        def rejected(error: ClientError) -> LakehouseError | None:
            code = error.response["Error"]["Code"]
            if table and code in STALE:
                return CommitConflict(
                    f"Another writer changed {'.'.join(table)} in Glue since it was read ({code}). Nothing was "
                    f"changed. Retry the run or command"
                )
            if code in ("AlreadyExistsException", "EntityNotFoundException"):
                return None
            return glue_error(error, self.region)

        return aws_errors(rejected, partial(glue_error, region=self.region))


def iceberg_parameters(entry: Mapping[str, Any], name: str) -> Mapping[str, str]:
    """Return the parameters of a table of Glue.

    Raises:
        UnclearState: It is not an Iceberg table.
    """
    parameters: Mapping[str, str] = entry.get("Parameters", {})
    if parameters.get("table_type", "").upper() != "ICEBERG" or "metadata_location" not in parameters:
        raise not_iceberg_error("Glue", name)
    return parameters


def glue_columns(schema: Schema) -> list[dict[str, Any]]:
    """Return Iceberg columns as Glue columns: name, Hive type, comment and field id, as Iceberg's own Glue catalog
    writes them (org.apache.iceberg.aws.glue.IcebergToGlueConverter)."""
    from pyiceberg.catalog.glue import _IcebergSchemaToGlueType
    from pyiceberg.schema import visit

    return [
        {
            "Name": field.name,
            "Type": visit(field.field_type, _IcebergSchemaToGlueType()),
            "Comment": glue_comment(field.doc) or "",
            "Parameters": {
                "iceberg.field.id": str(field.field_id),
                "iceberg.field.optional": str(not field.required).lower(),
                "iceberg.field.current": "true",
            },
        }
        for field in schema.fields
    ]
