"""A client of AWS Athena that runs one statement and fetches all pages of its result.

Reference: Athena API, StartQueryExecution, GetQueryExecution, GetQueryResults. boto3 determines endpoint and
credentials.
"""

from __future__ import annotations

import datetime as dt
from contextlib import AbstractContextManager, suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import dagster as dg
from botocore.exceptions import ClientError
from pydantic import Field

from lakehouse.core.errors import LakehouseError, Unreachable
from lakehouse.core.polling import doubling, poll
from resources.aws.clients import aws_errors, boto3_client

if TYPE_CHECKING:
    from mypy_boto3_athena import AthenaClient

PAUSE = doubling(first_seconds=0.1, longest_seconds=2.0)
"""Between two status requests: Athena throttles frequent callers."""


class Athena(dg.ConfigurableResource):
    """Athena in one AWS region and workgroup, over the tables of the Glue Data Catalog."""

    region: str = Field(description="AWS region of the workgroup.")
    workgroup: str = Field(
        "primary", description="Workgroup, which determines billing, limits and the location of results."
    )
    output_location: str | None = Field(
        None, description="s3:// folder of results, if the workgroup does not enforce one."
    )
    role_arn: str = Field(
        default="", description="IAM role to assume; if empty, the credentials of the environment apply."
    )
    catalog: str = Field("AwsDataCatalog", description="Name of the Glue Data Catalog in Athena.")
    deadline_seconds: int = Field(300, ge=1, description="A query that takes longer is cancelled.")

    def client(self) -> AthenaClient:
        """Return boto3's client, with time-outs."""
        # A repeated start carries the same token: Athena runs the statement once.
        return boto3_client("athena", self.region, self.role_arn, mode="standard", total_max_attempts=3)

    def query(self, statement: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run one statement and fetch all its rows.

        Returns:
            The column names, and the rows. Structs, arrays and maps are text, as in Athena's results.
        """
        athena = self.client()
        output = {"ResultConfiguration": {"OutputLocation": self.output_location}} if self.output_location else {}
        with self._translate_errors():
            id_ = athena.start_query_execution(
                QueryString=statement,
                QueryExecutionContext={"Catalog": self.catalog},
                WorkGroup=self.workgroup,
                **output,
            )["QueryExecutionId"]
            execution = self._wait_succeeded(athena, id_)
            pages = [
                page["ResultSet"] for page in athena.get_paginator("get_query_results").paginate(QueryExecutionId=id_)
            ]
        columns = pages[0]["ResultSetMetadata"]["ColumnInfo"]
        rows = [[datum.get("VarCharValue") for datum in row["Data"]] for page in pages for row in page["Rows"]]
        names = [column["Name"] for column in columns]
        # The first row of a query's first page is its header; SHOW and DESCRIBE have none.
        if execution["StatementType"] == "DML" and rows and rows[0] == names:
            rows = rows[1:]
        types = [column["Type"] for column in columns]
        return names, [tuple(map(parse_value, types, row)) for row in rows]

    def _wait_succeeded(self, athena: AthenaClient, id_: str) -> Any:
        """Wait for an execution to succeed and return it."""
        execution = poll(
            lambda: athena.get_query_execution(QueryExecutionId=id_)["QueryExecution"],
            until=lambda execution: execution["Status"]["State"] in ("SUCCEEDED", "FAILED", "CANCELLED"),
            pause=PAUSE,
            deadline_seconds=self.deadline_seconds,
        )
        match execution["Status"]["State"]:
            case "SUCCEEDED":
                return execution
            case "FAILED" | "CANCELLED" as state:
                reason = execution["Status"].get("StateChangeReason", "no reason given")
                raise LakehouseError(
                    f"Athena query {id_} ended as {state}: {reason}. No result was fetched. Correct the SQL"
                )
            case state:
                athena.stop_query_execution(QueryExecutionId=id_)
                raise LakehouseError(
                    f"Athena query {id_} was {state} after {self.deadline_seconds} s, and was cancelled. Query less "
                    f"data, or set a longer `deadline_seconds` for athena in lakehouse.yaml"
                )

    def _translate_errors(self) -> AbstractContextManager[None]:
        def refused(error: ClientError) -> LakehouseError:
            code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
            return LakehouseError(
                f"Athena in {self.region} refused workgroup {self.workgroup} ({code}: {message})",
                "No result was fetched",
                "Check the SQL, the workgroup, its output location, and the permissions on Athena, Glue and S3",
            )

        def unreachable(error: Exception) -> Unreachable:
            check = "AWS_ENDPOINT_URL, the AWS credentials and the region"
            return Unreachable("Athena", f"region {self.region}", check, error)

        return aws_errors(refused, unreachable)


def parse_value(type_: str, value: str | None) -> Any:
    """Parse the text of a value in Athena's results (Athena, Data types) to a Python value."""
    if value is None:
        return None
    match type_:
        case "tinyint" | "smallint" | "integer" | "bigint":
            return int(value)
        case "float" | "real" | "double":
            return float(value)
        case "decimal":
            return Decimal(value)
        case "boolean":
            return value == "true"
        case "varbinary":
            return bytes.fromhex(value)
        case "date" | "timestamp" | "timestamp with time zone":
            # Python has the years 1 to 9999 only. Other values stay text, as in lakehouse.core.tables.arrow_values.
            with suppress(ValueError):
                return _parse_time(type_, value)
    return value


def _parse_time(type_: str, value: str) -> dt.date | str:
    if type_ == "date":
        return dt.date.fromisoformat(value)
    text, _, zone = value.rpartition(" ") if type_ == "timestamp with time zone" else (value, "", "")
    # Python has microseconds, as in `2026-07-01 12:00:00.123456`, and Athena up to six digits more.
    text, more = text[:26], text[26:].rstrip("0")
    if zone.startswith(("+", "-")):  # An offset such as -07:00, which is not the name of a time zone.
        moment = dt.datetime.fromisoformat(text + zone)
    else:
        moment = dt.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone) if zone else None)
    if not more:
        return moment
    text = (moment.astimezone(dt.UTC) if zone else moment).isoformat(timespec="microseconds")
    return text[:26] + more.ljust(3 if len(more) <= 3 else 6, "0") + text[26:]
