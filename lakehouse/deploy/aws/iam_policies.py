"""IAM policies of one deployment: what each role may do, and who may assume it.

Least privilege: every statement names the deployment's own bucket, databases and secrets. Only maintenance deletes
files. No role may delete a bucket or a version of an object: if the bucket keeps versions, a deleted or overwritten
file can be restored.

Glue requires a permission on a table, its database and the catalog (AWS Glue, Specifying
resource ARNs). Conditions on `s3:prefix` are in statements of ListBucket only, the one action here that has the key.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lakehouse.core.errors import ConfigError
from resources.spark.spark import AwsRight

Policy = dict[str, Any]
"""A policy document, as `json.dumps` takes it."""

READ_FILES = ("s3:GetObject",)
WRITE_FILES = ("s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts")
USE_KEY = ("kms:Decrypt", "kms:GenerateDataKey")
READ_TABLES = ("glue:GetDatabase", "glue:GetTable", "glue:GetTables")

_PLAIN = {
    "account": (r"\d{12}", "its twelve digits"),
    "region": (r"[a-z]{2}(-[a-z]+)+-\d", "us-east-1"),
    "bucket": (r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", "lower-case letters, digits and hyphens, without dots"),
    "Glue database": (r"[a-z0-9_-]{1,255}", "lower-case letters, digits, _ and -"),
    "prefix": (r"(\*/)?[\w.=-]+(/[\w.=-]+)*", "warehouse/trading, without a slash at either end"),
    "name of a secret": (r"/?[\w+=.@-]+(/[\w+=.@-]+)*", "/lakehouse/production/kafka"),
    "workgroup": (r"[\w.-]{1,128}", "letters, digits, dots, _ and -"),
    "principal": (r"arn:aws:iam::\d{12}:(user|role)/[\w+=,.@/-]+", "arn:aws:iam::123456789012:role/name"),
    "external id": (r"[\w+=,.@:/-]{2,1224}", "2 to 1224 letters, digits and +=,.@:/-"),
}
"""Pattern and description of each kind of value in policies, because a wildcard would include foreign resources."""


@dataclass(frozen=True)
class AwsPlace:
    """The account, region and bucket of a deployment. The name of the bucket has no dot, as Snowflake requires."""

    account: str
    region: str
    bucket: str
    kms_key: str = ""
    """ARN of the key that encrypts the bucket; empty for S3's own keys."""
    vpc_endpoint: str = ""
    """Id of the endpoint through which ingestion and maintenance reach the bucket; empty for any way."""

    def __post_init__(self) -> None:
        _plain("account", self.account)
        _plain("region", self.region)
        _plain("bucket", self.bucket)

    @property
    def bucket_arn(self) -> str:
        """The bucket, without its objects."""
        return f"arn:aws:s3:::{self.bucket}"


@dataclass(frozen=True)
class Tables:
    """The tables of one Glue database, and the prefix of their files (without a slash at either end)."""

    database: str
    prefix: str
    bucket: str = ""
    """The bucket, if it is another one than the deployment's."""

    def __post_init__(self) -> None:
        _plain("Glue database", self.database)
        _plain("prefix", self.prefix)
        if self.bucket:
            _plain("bucket", self.bucket)


def tableflow_tables(bucket: str, organization: str, environment: str, cluster: str) -> Tables:
    """Return the tables that Tableflow creates in a bucket for the topics of a cluster, identified by Confluent's ids.

    Tableflow puts a hash before the ids in the prefix. It is unknown until the first table exists.
    """
    return Tables(database=cluster, prefix=f"*/{organization}/{environment}/{cluster}/v1", bucket=bucket)


def confluent_access(deployment: AwsPlace, tables: Tables) -> Policy:
    """Tableflow: write files, and publish its tables in Glue.

    It may drop what it publishes, in its own database; it deletes no file.

    Actions: Confluent, "Integrate Tableflow with the AWS Glue Catalog" and "Tableflow Quick Start Using Your Storage"
    (the permission policy of the provider integration).
    """
    functions = f"arn:aws:glue:{deployment.region}:{deployment.account}:userDefinedFunction/{tables.database}/*"
    return _document(
        *_encrypted(deployment, *USE_KEY),
        # Confluent documents no prefix for its listings.
        _allow(_buckets(deployment, tables), "s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads"),
        _allow(_files(deployment, tables), *READ_FILES, *WRITE_FILES, "s3:PutObjectTagging"),
        _allow(
            # Who drops a database has to have the right on all that is in it.
            [*_glue(deployment, tables), functions],
            *READ_TABLES,
            "glue:GetDatabases",
            "glue:GetTableVersion",
            "glue:GetTableVersions",
            *(f"glue:{verb}{what}" for verb in ("Create", "Update", "Delete") for what in ("Database", "Table")),
        ),
    )


def confluent_trust(principal: str, external_id: str) -> Policy:
    """Return a trust policy by which Confluent's role may assume this one and tag its session.

    Source: Confluent, "Manage AWS provider integrations".

    Args:
        principal: Value `config.iam_role_arn` of the provider integration.
        external_id: Value `config.external_id` of the provider integration.
    """
    assume = _trust(principal, external_id)
    # The key sts:ExternalId is AssumeRole's alone; and TagSession gives nothing without AssumeRole.
    tag = {"Effect": "Allow", "Principal": assume["Principal"], "Action": "sts:TagSession"}
    return _document(assume, tag)


def snowflake_access(deployment: AwsPlace, *tables: Tables) -> Policy:
    """Snowflake: read files and their registrations, nothing else.

    Actions: Snowflake, "Configure an external volume for Amazon S3" (those for ALLOW_WRITES = FALSE) and "Configure a
    catalog integration for AWS Glue Iceberg REST" (the read-only policy).
    """
    return _document(
        *_encrypted(deployment, "kms:Decrypt"),
        *_reading(deployment, tables, "s3:GetObject", "s3:GetObjectVersion"),
        _allow(_glue(deployment, *tables), *READ_TABLES, "glue:GetCatalog", "glue:GetDatabases"),
    )


def snowflake_trust(
    storage_principal: str, storage_external_id: str, catalog_principal: str, catalog_external_id: str
) -> Policy:
    """Return a trust policy by which Snowflake's two users may assume the role, each with its external id.

    The deployment chooses the external ids, so that the trust remains valid after either object is recreated.
    Source: Snowflake, the same two pages, "Grant the IAM user permissions".

    Args:
        storage_principal: User of the volume, from DESC EXTERNAL VOLUME.
        storage_external_id: Value of STORAGE_AWS_EXTERNAL_ID.
        catalog_principal: User of the integration, from DESCRIBE CATALOG INTEGRATION.
        catalog_external_id: Value of SIGV4_EXTERNAL_ID.
    """
    return _document(
        _trust(storage_principal, storage_external_id),
        _trust(catalog_principal, catalog_external_id),
    )


def writer_access(
    deployment: AwsPlace,
    tables: Tables,
    secrets: Iterable[str],
    tableflow: Tables | None = None,
    sessions: Iterable[AwsRight] = (),
) -> Policy:
    """Allow ingestion: write files, create and update tables, read its clients' secrets and Tableflow's tables.

    What an aborted write leaves stays until maintenance removes it as an orphan.

    Args:
        deployment: Where the deployment is.
        tables: Spark's tables.
        secrets: Names of the secrets.
        tableflow: Tableflow's tables, if it creates any.
        sessions: What opening a session of Spark requires.
    """
    # Actions: those that org.apache.iceberg.aws.glue.GlueCatalog, pyiceberg.catalog.glue and resources.aws.glue call;
    # AWS Secrets Manager, "Identity-based policies".
    document = _document(
        *_encrypted(deployment, *USE_KEY),
        _list(deployment, tables, *_optional(tableflow)),
        _allow(_files(deployment, tables), *READ_FILES, *WRITE_FILES),
        *(_allow(_files(deployment, table), *READ_FILES) for table in _optional(tableflow)),
        _allow(
            _glue(deployment, tables),
            *READ_TABLES,
            *(f"glue:{verb}{what}" for verb in ("Create", "Update") for what in ("Database", "Table")),
        ),
        *(_allow(_glue(deployment, table), *READ_TABLES) for table in _optional(tableflow)),
        _allow(_secrets(deployment, secrets), "secretsmanager:GetSecretValue", "secretsmanager:DescribeSecret"),
        *(_allow(right.resources, *right.actions) for right in sessions),
    )
    return _through_endpoint(deployment, document)


def rotation_access(deployment: AwsPlace, secrets: Iterable[str]) -> Policy:
    """Allow rotation: read and replace the deployment's secrets."""
    # Actions: those that resources.aws.secrets_manager calls.
    actions = ("GetSecretValue", "DescribeSecret", "ListSecretVersionIds", "PutSecretValue", "UpdateSecretVersionStage")
    return _document(_allow(_secrets(deployment, secrets), *(f"secretsmanager:{action}" for action in actions)))


def maintenance_access(deployment: AwsPlace, tables: Tables) -> Policy:
    """Compaction, expiry and removal of orphans: rewrite tables that are there, and delete files.

    Actions: as `writer_access`; Iceberg, "Spark procedures".
    """
    document = _document(
        *_encrypted(deployment, *USE_KEY),
        _list(deployment, tables),
        _allow(_files(deployment, tables), *READ_FILES, *WRITE_FILES, "s3:DeleteObject"),
        # A dry run drops the table that it created.
        _allow(_glue(deployment, tables), *READ_TABLES, "glue:UpdateTable", "glue:DeleteTable"),
    )
    return _through_endpoint(deployment, document)


def reader_access(deployment: AwsPlace, *tables: Tables, workgroup: str, results: str) -> Policy:
    """Return the rights of DuckDB and Athena: read files and registrations, and run queries in one workgroup.

    The workgroup stores results at the prefix `results`.

    Actions: Amazon Athena, "Use IAM policies to control workgroup access", "Control access to Amazon S3 from Athena"
    and "Configure access to databases and tables in the AWS Glue Data Catalog" (which requires the database `default`).
    """
    if any(f"{a}/".startswith(f"{b}/") for t in tables for a, b in ((t.prefix, results), (results, t.prefix))):
        raise ConfigError(
            f"The prefix of query results '{results}' overlaps the prefix of tables. No policy was written. Use "
            f"another prefix, such as athena"
        )
    group = f"arn:aws:athena:{deployment.region}:{deployment.account}:workgroup/{_plain('workgroup', workgroup)}"
    files = f"{deployment.bucket_arn}/{_plain('prefix', results)}/*"
    catalog = f"arn:aws:glue:{deployment.region}:{deployment.account}"
    return _document(
        *_encrypted(deployment, *USE_KEY),
        *_reading(deployment, tables, *READ_FILES),
        _list_prefixes([deployment.bucket_arn], [f"{results}/*"]),
        _allow([files], *READ_FILES, *WRITE_FILES),
        _allow(_glue(deployment, *tables), *READ_TABLES, "glue:GetDatabases"),
        _allow([f"{catalog}:catalog", f"{catalog}:database/default"], "glue:GetDatabase", "glue:GetDatabases"),
        _allow(
            [group],
            "athena:GetWorkGroup",
            "athena:StartQueryExecution",
            "athena:StopQueryExecution",
            "athena:GetQueryExecution",
            "athena:GetQueryResults",
            "athena:GetQueryResultsStream",
        ),
    )


def own_trust(*principals: str) -> Policy:
    """Return a trust policy by which roles or users may assume a role of the deployment (writer, maintenance, reader).

    Source: AWS IAM, "Roles terms and concepts". External ids are for third parties (the same, "The confused deputy
    problem").
    """
    if not principals:
        raise ConfigError(
            "The deployment names no principal that may assume its roles. No policy was written. Set "
            "`spark_principals` to the ARNs of IAM roles or users"
        )
    named = [_plain("principal", principal) for principal in principals]
    return _document({"Effect": "Allow", "Principal": {"AWS": named}, "Action": "sts:AssumeRole"})


def bucket_policy(deployment: AwsPlace) -> Policy:
    """Return the policy that denies requests to the bucket without TLS.

    Source: Amazon S3, "Security best practices": enforce encryption of data in transit.
    """
    return _document(
        {
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:*",
            "Resource": [deployment.bucket_arn, f"{deployment.bucket_arn}/*"],
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }
    )


def _encrypted(deployment: AwsPlace, *actions: str) -> tuple[Policy, ...]:
    """Allow the use of the bucket's key, if it has one (Amazon S3, "Using server-side encryption with AWS KMS")."""
    return (_allow([deployment.kms_key], *actions),) if deployment.kms_key else ()


def _through_endpoint(deployment: AwsPlace, document: Policy) -> Policy:
    """Restrict access to the bucket to the VPC endpoint, if one is declared (Amazon S3, "Controlling access from VPC
    endpoints")."""
    if not deployment.vpc_endpoint:
        return document
    through = {"StringEquals": {"aws:SourceVpce": deployment.vpc_endpoint}}
    restricted = [
        {**statement, "Condition": {**statement.get("Condition", {}), **through}}
        if statement["Action"][0].startswith("s3:")
        else statement
        for statement in document["Statement"]
    ]
    return {**document, "Statement": restricted}


def _document(*statements: Policy) -> Policy:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _allow(resources: Iterable[str], *actions: str) -> Policy:
    return {"Effect": "Allow", "Action": list(actions), "Resource": list(resources)}


def _optional(tables: Tables | None) -> tuple[Tables, ...]:
    return (tables,) if tables else ()


def _secrets(deployment: AwsPlace, names: Iterable[str]) -> list[str]:
    """Return the ARNs of secrets; AWS adds a hyphen and six characters to each name."""
    secret = f"arn:aws:secretsmanager:{deployment.region}:{deployment.account}:secret:"
    return [f"{secret}{_plain('name of a secret', name)}-??????" for name in names]


def _reading(deployment: AwsPlace, tables: Iterable[Tables], *actions: str) -> tuple[Policy, ...]:
    """Find the tables' files, and do this to them."""
    tables = tuple(tables)
    return (
        _allow(_buckets(deployment, *tables), "s3:GetBucketLocation"),
        _list(deployment, *tables),
        _allow(_files(deployment, *tables), *actions),
    )


def _list(deployment: AwsPlace, *tables: Tables) -> Policy:
    return _list_prefixes(_buckets(deployment, *tables), [f"{table.prefix}/*" for table in tables])


def _list_prefixes(buckets: list[str], prefixes: list[str]) -> Policy:
    return {**_allow(buckets, "s3:ListBucket"), "Condition": {"StringLike": {"s3:prefix": prefixes}}}


def _files(deployment: AwsPlace, *tables: Tables) -> list[str]:
    return [f"{_bucket(deployment, table)}/{table.prefix}/*" for table in tables]


def _buckets(deployment: AwsPlace, *tables: Tables) -> list[str]:
    return list(dict.fromkeys(_bucket(deployment, table) for table in tables))


def _bucket(deployment: AwsPlace, tables: Tables) -> str:
    """Return the ARN of the bucket of some tables."""
    return f"arn:aws:s3:::{tables.bucket}" if tables.bucket else deployment.bucket_arn


def _glue(deployment: AwsPlace, *tables: Tables) -> list[str]:
    catalog = f"arn:aws:glue:{deployment.region}:{deployment.account}"
    owned = [
        f"{catalog}:{kind}" for table in tables for kind in (f"database/{table.database}", f"table/{table.database}/*")
    ]
    return [f"{catalog}:catalog", *owned]


def _trust(principal: str, external_id: str) -> Policy:
    return {
        "Effect": "Allow",
        "Principal": {"AWS": _plain("principal", principal)},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"sts:ExternalId": _plain("external id", external_id)}},
    }


def _plain(what: str, value: str) -> str:
    pattern, example = _PLAIN[what]
    if not re.fullmatch(pattern, value, re.ASCII):
        raise ConfigError(f"A policy cannot name '{value}' as {what}. No policy was written. Write {example}")
    return value


def same(one: Policy | None, other: Policy | None) -> bool:
    """Return whether two documents mean the same: IAM reorders lists, and returns a list of one as a value.

    Source: AWS IAM, "Grammar of the IAM JSON policy language".
    """
    return bool(_normalized(one) == _normalized(other))


def _normalized(element: Any) -> Any:
    if isinstance(element, dict):
        return {key: _normalized(value) for key, value in element.items()}
    if isinstance(element, list):
        plain = sorted((_normalized(value) for value in element), key=repr)
        return plain[0] if len(plain) == 1 else plain
    return element
