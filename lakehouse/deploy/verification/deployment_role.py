"""The IAM roles of a deployment, and a probe of each permission in the order in which programs need them.

A probe is a call of the running lakehouse whose result shows whether a permission is granted.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal
from urllib.parse import urlsplit

from snowflake.connector.errors import Error as SnowflakeError

from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.aws.aws_service import DENIED, Aws, AwsError, Service
from lakehouse.deploy.aws.foundation import RESULTS, WAREHOUSE
from lakehouse.deploy.names import Names
from resources.aws.clients import boto3_session
from resources.confluent.api_client import Forbidden

Outcome = Literal["allowed", "denied", "failed", "unchecked"]

AUTHORIZED = frozenset({"NoSuchKey", "NoSuchUpload", "EntityNotFoundException", "AlreadyExistsException"})
"""Error codes of requests that were authorized: AWS decides on the permission before it looks at the object."""
REFUSED_BY_SNOWFLAKE = frozenset({2003, 3001})
"""Codes of Snowflake for an object that is not visible to the role, and for a missing privilege."""
_ACTION = re.compile(r"authorized to perform:? ([\w-]+:\w+)")
"""The action in a refusal (AWS IAM, "Troubleshoot access denied error messages")."""


@dataclass(frozen=True)
class Finding:
    """The result for one permission."""

    role: str
    """Name of the IAM role, of the principal if the deployment has no roles, or of an identity in another cloud."""
    permission: str
    """Action and resource: `s3:PutObject on s3://lake/warehouse/trading/`."""
    outcome: Outcome
    reason: str = ""
    """What is missing or why nothing was checked; empty if the permission is there."""


@dataclass(frozen=True)
class Probe:
    """A call that needs a permission."""

    role: str
    action: str
    """The IAM action, another cloud's role or privilege, or a phrase for a call that needs several permissions."""
    resource: str
    call: Callable[[], object]

    def run(self) -> Finding:
        """Make the call."""
        permission = f"{self.action} on {self.resource}"
        try:
            self.call()
        except LakehouseError as error:
            if isinstance(error, AwsError) and error.code in AUTHORIZED:
                return Finding(self.role, permission, "allowed")
            outcome, reason = self._refusal(error)
            return Finding(self.role, permission, outcome, reason)
        return Finding(self.role, permission, "allowed")

    def _refusal(self, error: LakehouseError) -> tuple[Outcome, str]:
        if any(isinstance(cause, Forbidden) or _is_refused_by_snowflake(cause) for cause in _causes(error)):
            return "denied", f"{self.role} lacks {self.action} ({error})"
        refused = next((cause for cause in _causes(error) if _ACTION.search(str(cause))), None)
        if refused is None and not (isinstance(error, AwsError) and error.code in DENIED):
            return "failed", str(error)
        # A call may need further permissions, such as that for the key of the bucket.
        named = _ACTION.search(str(refused)) if refused else None
        return "denied", f"{self.role} lacks {named[1] if named else self.action} ({error})"


@dataclass(frozen=True)
class Unchecked:
    """A permission for which no call is made."""

    role: str
    permission: str
    reason: str

    def run(self) -> Finding:
        """Return the reason."""
        return Finding(self.role, self.permission, "unchecked", self.reason)


def _is_refused_by_snowflake(error: BaseException) -> bool:
    return isinstance(error, SnowflakeError) and error.errno in REFUSED_BY_SNOWFLAKE


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


CANARY = "lakehouse_canary"
"""The table that a verification writes. A fixed name, so that an interrupted verification leaves nothing that the next
one does not remove."""
MARK = {"lakehouse.canary": "true"}
"""The property of the table by which it is recognized before it is removed."""
ABSENT = f"{CANARY}_absent"
"""A table that never exists: AWS authorizes a change of it, and then finds nothing to change."""
FILE = "permission"
"""The file, in the folder of the canary table, whose reading is probed."""

Step = Probe | Unchecked


@dataclass(frozen=True)
class DeploymentRole:
    """One IAM role of the deployment, and the services with its credentials."""

    names: Names
    namespace: str
    purpose: str
    has_role: bool
    """Whether the deployment has the role; if not, the credentials of the environment apply."""
    written: list[str]
    """The keys of the files that any role has written in this verification."""

    @property
    def name(self) -> str:
        """The name of the role, or of the credentials in its place."""
        return self.names.role(self.purpose) if self.has_role else "the environment's credentials"

    def service(self, name: str) -> Service:
        """Return a service in the deployment's region, with the role."""
        return self._aws.service(name)

    @cached_property
    def _aws(self) -> Aws:
        role_arn = self.names.role_arn(self.purpose) if self.has_role else ""
        return Aws(boto3_session(role_arn, self.names.region), self.names.region)

    @property
    def folder(self) -> str:
        """The folder of the canary table, with a slash at the end."""
        return f"{WAREHOUSE}/{self.namespace}/{CANARY}/"

    def secrets(self, names: tuple[str, ...]) -> Iterator[Step]:
        """Yield the calls that read the secrets of ingestion's clients."""
        for name in names:
            yield from self._secret(name, "DescribeSecret", "GetSecretValue")

    def writer(self) -> Iterator[Step]:
        """Yield the calls of ingestion on tables, after the canary table was written."""
        yield self._list(self.folder)
        yield from self._write_file()
        yield from self._read_tables(self.namespace, CANARY)
        # Both exist by now, unless their creation was refused.
        yield self._create_database()
        table = {"Name": CANARY, "Parameters": MARK}
        yield self._glue("CreateTable", f"{self.namespace}.{CANARY}", self.namespace, TableInput=table)
        yield self._update_table()
        yield Unchecked(
            self.name,
            f"glue:UpdateDatabase on {self.namespace}",
            "it would change the database. `lakehouse pause` makes the call",
        )

    def maintenance(self) -> Iterator[Step]:
        """Yield the calls of compaction, expiry and the removal of orphans."""
        yield self._list(self.folder)
        yield from self._write_file()
        yield self._probe("s3:DeleteObject", self._file, "delete_object", Key=self.folder + FILE)
        yield from self._read_tables(self.namespace, CANARY)
        yield self._update_table()
        yield self._glue("DeleteTable", f"{self.namespace}.{ABSENT}", self.namespace, Name=ABSENT)

    def reader(self) -> Iterator[Step]:
        """Yield the calls of DuckDB and Athena."""
        workgroup, results = self.names.workgroup, f"{RESULTS}/"
        bucket = f"s3://{self.names.bucket}"
        yield self._probe("s3:GetBucketLocation", bucket, "get_bucket_location")
        yield self._list(self.folder)
        yield self._read_file()
        yield from self._read_tables(self.namespace, CANARY)
        yield self._glue("GetDatabases", "the catalog")
        yield self._glue("GetDatabase", "default", Name="default")
        yield self._list(results)
        yield from self._uploads(results, "s3:PutObject")
        yield from self._queries(workgroup)

    def tableflow(self, database: str, table: str) -> Iterator[Step]:
        """Yield the calls that read a table of Confluent's Tableflow."""
        yield from self._read_tables(database, table)
        location = self._metadata_location(database, table)
        if location is None:
            reason = "Tableflow has published no table yet. Run `lakehouse deploy verify` again when it has"
            for action in ("s3:ListBucket", "s3:GetObject"):
                yield Unchecked(self.name, f"{action} on the files of {database}", reason)
            return
        parts = urlsplit(location)
        bucket, key = parts.netloc, parts.path.lstrip("/")
        yield self._list(f"{key.rpartition('/')[0]}/", bucket)
        call = partial(self.service("s3").call, "get_object", Bucket=bucket, Key=key)
        yield Probe(self.name, "s3:GetObject", location, call)

    def rotation(self, secrets: tuple[str, ...]) -> Iterator[Step]:
        """Yield the calls of `lakehouse deploy rotate` that change nothing.

        Args:
            secrets: Names of the secrets of all keys.
        """
        for name in secrets:
            yield from self._secret(name, "DescribeSecret", "GetSecretValue", "ListSecretVersionIds")
        for action in ("PutSecretValue", "UpdateSecretVersionStage"):
            reason = "it would replace a key. `lakehouse deploy rotate` makes the call"
            yield Unchecked(self.name, f"secretsmanager:{action} on the deployment's secrets", reason)

    def _secret(self, name: str, *actions: str) -> Iterator[Step]:
        for action in actions:
            call = partial(self.service("secretsmanager").call, _method(action), SecretId=name)
            yield Probe(self.name, f"secretsmanager:{action}", name, call)

    @property
    def _file(self) -> str:
        return f"s3://{self.names.bucket}/{self.folder}{FILE}"

    def _write_file(self) -> Iterator[Step]:
        target = {"Bucket": self.names.bucket, "Key": self.folder + FILE}

        def put() -> None:
            self.service("s3").call("put_object", **target, Body=b"")
            self.written.append(target["Key"])

        yield Probe(self.name, "s3:PutObject", self._file, put)
        yield self._read_file()
        yield from self._uploads(self.folder)

    def _read_file(self) -> Step:
        if not self.written:
            # Without s3:ListBucket on the whole bucket, S3 refuses to read a file that does not exist.
            return Unchecked(self.name, f"s3:GetObject on {self._file}", "no role could write the file")
        return self._probe("s3:GetObject", self._file, "get_object", Key=self.folder + FILE)

    def _probe(self, action: str, resource: str, method: str, **parameters: Any) -> Probe:
        call = partial(self.service("s3").call, method, Bucket=self.names.bucket, **parameters)
        return Probe(self.name, action, resource, call)

    def _list(self, prefix: str, bucket: str = "") -> Probe:
        bucket = bucket or self.names.bucket
        call = partial(self.service("s3").call, "list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1)
        return Probe(self.name, "s3:ListBucket", f"s3://{bucket}/{prefix}", call)

    def _uploads(self, folder: str, start: str = "") -> Iterator[Step]:
        """Yield the calls of an upload in parts, which leaves no file.

        Args:
            folder: Where it is, with a slash at the end.
            start: The action of its start, if that is probed, too.
        """
        s3, resource = self.service("s3"), f"s3://{self.names.bucket}/{folder}{FILE}"
        upload = {"Bucket": self.names.bucket, "Key": f"{folder}{FILE}"}
        started: list[str] = []

        def create() -> None:
            started.append(s3.call("create_multipart_upload", **upload)["UploadId"])

        creation = Probe(self.name, start or "s3:PutObject", resource, create)
        if start:
            yield creation
        else:
            creation.run()
        for action, method in (
            ("s3:ListMultipartUploadParts", "list_parts"),
            ("s3:AbortMultipartUpload", "abort_multipart_upload"),
        ):
            if started:
                yield Probe(self.name, action, resource, partial(s3.call, method, **upload, UploadId=started[0]))
            else:
                reason = f"it needs an upload, and {self.name} could not start one (s3:PutObject)"
                yield Unchecked(self.name, f"{action} on {resource}", reason)

    def _glue(self, operation: str, resource: str, database: str = "", **parameters: Any) -> Probe:
        if database:
            parameters["DatabaseName"] = database
        call = partial(self.service("glue").call, _method(operation), CatalogId=self.names.account, **parameters)
        return Probe(self.name, f"glue:{operation}", resource, call)

    def _read_tables(self, database: str, table: str) -> Iterator[Step]:
        yield self._glue("GetDatabase", database, Name=database)
        yield self._glue("GetTable", f"{database}.{table}", database, Name=table)
        yield self._glue("GetTables", f"{database}.*", database, MaxResults=1)

    def _update_table(self) -> Probe:
        return self._glue("UpdateTable", f"{self.namespace}.{ABSENT}", self.namespace, TableInput={"Name": ABSENT})

    def _create_database(self) -> Step:
        if self._has_no_database():
            reason = "it would create a database without the deployment's tag. `lakehouse deploy create` creates it"
            return Unchecked(self.name, f"glue:CreateDatabase on {self.namespace}", reason)
        return self._glue("CreateDatabase", self.namespace, DatabaseInput={"Name": self.namespace})

    def _has_no_database(self) -> bool:
        database = {"CatalogId": self.names.account, "Name": self.namespace}
        try:
            return self.service("glue").find("get_database", **database) is None
        except LakehouseError:
            # A refusal has a line of its own.
            return False

    def _queries(self, workgroup: str) -> Iterator[Step]:
        athena, ids = self.service("athena"), list[str]()

        def start() -> None:
            response = athena.call("start_query_execution", QueryString="SELECT 1", WorkGroup=workgroup)
            ids.append(response["QueryExecutionId"])

        group = partial(athena.call, "get_work_group", WorkGroup=workgroup)
        yield Probe(self.name, "athena:GetWorkGroup", workgroup, group)
        yield Probe(self.name, "athena:StartQueryExecution", workgroup, start)
        for action, method in (
            ("athena:GetQueryExecution", "get_query_execution"),
            ("athena:StopQueryExecution", "stop_query_execution"),
        ):
            if ids:
                yield Probe(self.name, action, workgroup, partial(athena.call, method, QueryExecutionId=ids[0]))
            else:
                yield Unchecked(self.name, f"{action} on {workgroup}", "it needs a query, and none could be started")
        reason = "only Athena's JDBC and ODBC drivers make the call"
        yield Unchecked(self.name, f"athena:GetQueryResultsStream on {workgroup}", reason)

    def _metadata_location(self, database: str, table: str) -> str | None:
        glue = self.service("glue")
        try:
            response = glue.call("get_table", CatalogId=self.names.account, DatabaseName=database, Name=table)
        except LakehouseError:
            # A refusal has a line of its own.
            return None
        location: str | None = response["Table"].get("Parameters", {}).get("metadata_location")
        return location


def _method(operation: str) -> str:
    """Return boto3's name of an operation: `get_table` for `GetTable`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in operation).lstrip("_")
