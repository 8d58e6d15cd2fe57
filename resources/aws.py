"""AWS Glue Data Catalog: the registration of an Iceberg table, with optimistic locking.

Format: Apache Iceberg, AWS integrations, "Glue Catalog": a Glue table whose parameters are `table_type=ICEBERG`,
`metadata_location` and `previous_metadata_location`. Endpoints and credentials come the way boto3 takes them
(AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID …).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import PrivateAttr

from lakehouse.core.errors import CommitConflict, LakehouseError, UnclearState, Unreachable, translate
from lakehouse.formats.columns import glue_comment
from resources import glue_errors

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

TIMEOUT_SECONDS = 10
DESCRIPTION_CHARACTERS = 2048 // 4
"""Glue takes 2,048 bytes (AWS Glue API, TableInput), and a character has up to four."""
STALE = ("ConcurrentModificationException", "VersionMismatchException", "AlreadyExistsException")


@dataclass(frozen=True)
class Registration:
    """What Glue says of a table. `version_id` is Glue's own and changes with every update."""

    metadata_location: str
    previous_metadata_location: str | None
    table_uuid: str | None
    version_id: str | None


class Glue(dg.ConfigurableResource):
    """The Glue Data Catalog of one AWS account and region."""

    region: str
    catalog_id: str
    """The AWS account that owns the catalog."""
    tableflow_database: str = ""
    """Where Confluent's Tableflow publishes: the Kafka cluster's id."""

    _client: tuple[Sequence[str | None], GlueClient] | None = PrivateAttr(default=None)

    def client(self) -> GlueClient:
        """boto3's client, with time-outs set. It never repeats a call by itself: an update may have been applied.

        Making one takes longer than what it is asked, so it is kept while the environment leads to the same place.
        """
        import boto3
        from botocore.config import Config

        led_by = [os.environ.get(name) for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_GLUE", "AWS_ACCESS_KEY_ID")]
        if self._client is None or self._client[0] != led_by:
            config = Config(
                connect_timeout=TIMEOUT_SECONDS, read_timeout=TIMEOUT_SECONDS, retries={"total_max_attempts": 1}
            )
            self._client = led_by, boto3.client("glue", region_name=self.region, config=config)
        return self._client[1]

    def ensure_database(self, database: str, location: str) -> None:
        """Create the database if it is not there.

        Raises: Unreachable.
        """
        glue = self.client()
        with self._explained():
            try:
                glue.create_database(
                    CatalogId=self.catalog_id, DatabaseInput={"Name": database, "LocationUri": location}
                )
            except glue.exceptions.AlreadyExistsException:
                return

    def registration(self, database: str, table: str) -> Registration | None:
        """What is registered, or None.

        Raises: UnclearState when Glue has a table of that name that is not Iceberg; Unreachable.
        """
        glue = self.client()
        with self._explained():
            try:
                found = glue.get_table(CatalogId=self.catalog_id, DatabaseName=database, Name=table)["Table"]
            except glue.exceptions.EntityNotFoundException:
                return None
        parameters = found.get("Parameters", {})
        if parameters.get("table_type", "").upper() != "ICEBERG" or "metadata_location" not in parameters:
            raise UnclearState(
                f"Glue has a table {database}.{table} that is not an Iceberg table. It was left untouched. "
                f"Drop or rename it, or choose another namespace in lakehouse.yaml"
            )
        return Registration(
            metadata_location=parameters["metadata_location"],
            previous_metadata_location=parameters.get("previous_metadata_location"),
            table_uuid=parameters.get("uuid"),
            version_id=found.get("VersionId"),
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
        expected: Registration | None,
    ) -> Registration:
        """Point the table at a metadata file: create it, or update it if it is still as `expected`.

        Parameters: `table_uuid` of the Iceberg table; `schema` and `location` are for readers that look at Glue's own
        columns; `expected` is what `registration` said before.
        Raises: CommitConflict when Glue shows something else by now; UnclearState when another Iceberg table is
        registered under the name; Unreachable.
        """
        if expected and expected.table_uuid not in (None, table_uuid):
            raise UnclearState(
                f"Glue registers another Iceberg table as {database}.{table} (uuid {expected.table_uuid}, not "
                f"{table_uuid}). It was left untouched. Drop it from Glue to register the new one"
            )
        if expected and expected.metadata_location == metadata_location:
            return expected
        parameters = {"table_type": "ICEBERG", "metadata_location": metadata_location, "uuid": table_uuid}
        if expected:
            parameters["previous_metadata_location"] = expected.metadata_location
        table_input: dict[str, Any] = {
            "Name": table,
            "Description": comment[:DESCRIPTION_CHARACTERS],
            "TableType": "EXTERNAL_TABLE",
            "Parameters": parameters,
            "StorageDescriptor": {"Location": location, "Columns": glue_columns(schema)},
        }
        # A reader holds the version it read: Glue refuses the update if somebody else's came first. The archive of
        # old versions is of no use, Iceberg has its own (Iceberg, AWS integrations: skip archive).
        glue = self.client()
        target: dict[str, Any] = {"CatalogId": self.catalog_id, "DatabaseName": database, "TableInput": table_input}
        if expected and expected.version_id:
            target["VersionId"] = expected.version_id
        try:
            with self._explained(database, table):
                glue.update_table(**target, SkipArchive=True) if expected else glue.create_table(**target)
        except Unreachable:
            # The answer was lost, perhaps not the update: Glue decides.
            now = self.registration(database, table)
            if now is None or now.metadata_location != metadata_location:
                raise
            return now
        now = self.registration(database, table)
        if now is None or now.metadata_location != metadata_location:
            raise CommitConflict(f"Somebody else changed {database}.{table} in Glue at the same time. Run it again")
        return now

    def _explained(self, *table: str) -> AbstractContextManager[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        def answered(error: ClientError) -> LakehouseError | None:
            code = error.response["Error"]["Code"]
            if table and code in STALE:
                return CommitConflict(
                    f"Somebody else changed {'.'.join(table)} in Glue since it was read ({code}). Nothing was changed; "
                    f"run it again"
                )
            if code in ("AlreadyExistsException", "EntityNotFoundException"):
                return None
            return glue_errors.error_of(error, self.region)

        unanswered = partial(glue_errors.error_of, region=self.region)
        return translate({ClientError: answered, BotoCoreError: unanswered})


def glue_columns(schema: Schema) -> list[dict[str, Any]]:
    """Iceberg columns as Glue's: name, Hive type, comment and the field's id, as Iceberg's own Glue catalog writes them
    (org.apache.iceberg.aws.glue.IcebergToGlueConverter)."""
    return [
        {
            "Name": field.name,
            "Type": hive_type(field.field_type),
            "Comment": glue_comment(field.doc) or "",
            "Parameters": {
                "iceberg.field.id": str(field.field_id),
                "iceberg.field.optional": str(not field.required).lower(),
                "iceberg.field.current": "true",
            },
        }
        for field in schema.fields
    ]


def hive_type(type_: IcebergType) -> str:
    """An Iceberg type as Hive and Athena write it."""
    from pyiceberg import types as t

    match type_:
        case t.StructType(fields=fields):
            return f"struct<{','.join(f'{f.name}:{hive_type(f.field_type)}' for f in fields)}>"
        case t.ListType(element_type=element):
            return f"array<{hive_type(element)}>"
        case t.MapType(key_type=key, value_type=value):
            return f"map<{hive_type(key)},{hive_type(value)}>"
        case t.DecimalType(precision=precision, scale=scale):
            return f"decimal({precision},{scale})"
        case t.LongType():
            return "bigint"
        case t.TimestampType() | t.TimestamptzType():
            return "timestamp"
        case t.FixedType() | t.BinaryType():
            return "binary"
        case t.UUIDType() | t.TimeType():
            return "string"
    return str(type_)
