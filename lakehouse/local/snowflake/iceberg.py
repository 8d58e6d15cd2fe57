"""Iceberg tables of AWS Glue or a REST catalog, copied to DuckDB.

Copies do not change between two refreshes, like Snowflake's tables. pyiceberg reads the tables, and applies position
deletes and deletion vectors; it rejects equality deletes, as Snowflake does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from duckdb import DuckDBPyConnection
from pyiceberg import exceptions, types
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import RESTError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, ancestors_of
from pyiceberg.types import NestedField
from requests import RequestException

from lakehouse.core.sql import DUCKDB
from lakehouse.local.snowflake import snowflake_errors
from lakehouse.local.snowflake.statements import Name


@dataclass(frozen=True)
class Lake:
    """Access to Glue and S3. It replaces the IAM role that Snowflake assumes, which is not enforced here."""

    glue_endpoint: str
    s3_endpoint: str
    region: str
    access_key_id: str
    secret_access_key: str = field(repr=False)

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Lake:
        """Read the access from environment variables.

        Args:
            env: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and AWS_ENDPOINT_URL_S3 if S3
                has another endpoint.
        """
        return cls(
            glue_endpoint=env["AWS_ENDPOINT_URL"],
            s3_endpoint=env.get("AWS_ENDPOINT_URL_S3") or env["AWS_ENDPOINT_URL"],
            region=env["AWS_REGION"],
            access_key_id=env["AWS_ACCESS_KEY_ID"],
            secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
        )

    def table(self, integration: Mapping[str, Any], namespace: str, name: str) -> Table:
        """Load the current metadata of a table.

        Args:
            integration: Options of the catalog integration.
            namespace: Namespace in the catalog.
            name: The table's name in it.
        """
        try:
            table = self._catalog(integration).load_table((namespace, name))
        except (
            exceptions.NoSuchTableError,
            exceptions.NoSuchIcebergTableError,
            exceptions.NoSuchPropertyException,
        ) as error:
            raise snowflake_errors.failed(f"The catalog has no Iceberg table '{namespace}.{name}': {error}") from None
        except (BotoCoreError, ClientError, OSError, RequestException, exceptions.RESTError) as error:
            message = f"Table '{namespace}.{name}' cannot be read from the catalog or S3: {error}"
            raise snowflake_errors.failed(message) from None
        if vends(integration) and "s3.session-token" not in table.config:
            raise snowflake_errors.failed(f"The catalog issued no credentials for the files of '{namespace}.{name}'")
        return table

    def tables(self, integration: Mapping[str, Any], namespace: str) -> list[str]:
        """Return the names of the tables in a namespace of a REST catalog.

        Raises:
            RequestException: The catalog does not answer.
            RESTError: It refuses the request.
        """
        return [name for *_, name in self._catalog(integration).list_tables(namespace)]

    def login_refusal(self, integration: Mapping[str, Any]) -> str:
        """Return why a REST catalog refuses the OAuth login of an integration; empty if it accepts it."""
        try:
            self._catalog(integration)
        except (RequestException, RESTError) as error:
            return str(error)
        return ""

    def role_refusal(self, role_arn: str, principal: str, external_id: str) -> str:
        """Return why the principal may not assume the IAM role with this external id; empty if it may."""
        iam = boto3.session.Session().client(
            "iam",
            endpoint_url=self.glue_endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
        )
        refused = f"{principal} is not authorized to perform: sts:AssumeRole on resource: {role_arn}"
        try:
            role = iam.get_role(RoleName=role_arn.rpartition("/")[2])["Role"]
        except (BotoCoreError, ClientError):
            return refused
        trusted = {
            "Effect": "Allow",
            "Principal": {"AWS": principal},
            "Action": "sts:AssumeRole",
            "Condition": {"StringEquals": {"sts:ExternalId": external_id}},
        }
        return "" if trusted in role["AssumeRolePolicyDocument"]["Statement"] else refused

    def _catalog(self, integration: Mapping[str, Any]) -> Catalog:
        rest, login = integration.get("REST_CONFIG", {}), integration.get("REST_AUTHENTICATION", {})
        region = login.get("SIGV4_SIGNING_REGION") or integration.get("GLUE_REGION") or self.region
        if login.get("TYPE") == "OAUTH":
            properties = {
                "uri": rest["CATALOG_URI"],
                "warehouse": rest["CATALOG_NAME"],
                "credential": f"{login['OAUTH_CLIENT_ID']}:{login['OAUTH_CLIENT_SECRET']}",
                "scope": " ".join(login["OAUTH_ALLOWED_SCOPES"]),
                "oauth2-server-uri": login.get("OAUTH_TOKEN_URI") or f"{rest['CATALOG_URI']}/v1/oauth/tokens",
            }
            # pyiceberg asks for credentials for the files by default, and uses them in place of its own.
            return RestCatalog("rest", **properties, **({} if vends(integration) else self.s3(region)))
        # Glue's REST endpoint is not emulated. Glue's API has the same tables.
        return _glue(self, rest["CATALOG_NAME"] if rest else integration["GLUE_CATALOG_ID"], region)

    def s3(self, region: str) -> dict[str, str]:
        """Return pyiceberg's properties of S3: endpoint, region and credentials."""
        return {
            "s3.endpoint": self.s3_endpoint,
            "s3.region": region,
            "s3.access-key-id": self.access_key_id,
            "s3.secret-access-key": self.secret_access_key,
        }


def vends(integration: Mapping[str, Any]) -> bool:
    """Return whether the catalog of an integration issues the credentials for the files of its tables."""
    return integration.get("REST_CONFIG", {}).get("ACCESS_DELEGATION_MODE") == "VENDED_CREDENTIALS"


@cache
def _glue(lake: Lake, id_: str, region: str) -> Catalog:
    """Return the catalog, cached because the creation of its client takes longer than the refresh of a table."""
    glue = {
        "glue.endpoint": lake.glue_endpoint,
        "glue.id": id_,
        "glue.region": region,
        "glue.access-key-id": lake.access_key_id,
        "glue.secret-access-key": lake.secret_access_key,
    }
    return GlueCatalog("glue", **glue, **lake.s3(region))


@dataclass(frozen=True)
class Copied:
    """The snapshot and schema of an Iceberg table that a DuckDB table contains."""

    snapshot_id: int | None
    schema_id: int


def copy(table: Table, duckdb: DuckDBPyConnection, target: Name, previous: Copied | None) -> Copied:
    """Copy the rows of the table's current snapshot to a DuckDB table, in one transaction.

    Args:
        table: The Iceberg table.
        duckdb: Connection of the database.
        target: Name of the DuckDB table.
        previous: Content of the DuckDB table so far. If rows were only appended since, only those are copied.
    """
    fields = table.schema().fields
    names = [field.name.upper() for field in fields]
    if duplicates := {name for name in names if names.count(name) > 1}:
        raise snowflake_errors.failed(
            f"Column names differ in case only, and Snowflake has one case: {sorted(duplicates)}"
        )
    columns = ", ".join(f"{_value(field)} AS {DUCKDB.identifier(field.name.upper())}" for field in fields)
    if previous and previous.schema_id == table.schema().schema_id and _only_appended(table, previous.snapshot_id):
        statement = f"INSERT INTO {DUCKDB.identifier(*target)}"
        rows = table.incremental_append_scan(from_snapshot_id_exclusive=previous.snapshot_id).to_arrow_batch_reader()
    else:
        statement = f"CREATE OR REPLACE TABLE {DUCKDB.identifier(*target)} AS"
        rows = table.scan().to_arrow_batch_reader()
    try:
        duckdb.register("iceberg_rows", rows)
        duckdb.execute(f"{statement} SELECT {columns} FROM iceberg_rows")  # noqa: S608 (quoted above from the table's own columns)
        duckdb.unregister("iceberg_rows")
    except (OSError, ValueError) as error:
        raise snowflake_errors.failed(f"The data files of '{'.'.join(target)}' cannot be read: {error}") from None
    return Copied(table.metadata.current_snapshot_id, table.schema().schema_id)


def _only_appended(table: Table, since: int | None) -> bool:
    """Return whether every snapshot after `since` appended rows, or rewrote files without changing rows.

    Source: Iceberg specification, Snapshots, operation.
    """
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        if snapshot.snapshot_id == since:
            return True
        if snapshot.summary is None or snapshot.summary.operation not in (Operation.APPEND, Operation.REPLACE):
            return False
    return False


def _value(field: NestedField) -> str:
    """Return the expression that casts a column to the DuckDB type that fakesnow maps to Snowflake's type.

    Source: Snowflake, Data types for Apache Iceberg tables. Nested values are converted to JSON (docs/snowflake.md).
    """
    name = DUCKDB.identifier(field.name)
    match field.field_type:
        case types.StructType() | types.ListType() | types.MapType():
            return f"to_json({name})"
        case types.IntegerType() | types.LongType():
            return f"{name}::BIGINT"
        case types.FloatType() | types.DoubleType():
            return f"{name}::DOUBLE"
        case types.FixedType() | types.BinaryType():
            return f"{name}::BLOB"
        case types.UUIDType():
            # The text form, because DuckDB cannot cast a UUID to binary.
            return f"{name}::VARCHAR"
        case (
            types.BooleanType()
            | types.DecimalType()
            | types.DateType()
            | types.TimeType()
            | types.TimestampType()
            | types.TimestamptzType()
            | types.StringType()
        ):
            return name
        case other:
            raise snowflake_errors.not_emulated(f"Column '{field.name}' of Iceberg type {other}")
