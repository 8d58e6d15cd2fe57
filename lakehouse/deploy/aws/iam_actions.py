"""IAM actions and resources that the calls of a deployment require.

Source: AWS, "Service Authorization Reference". Most actions have the names of their operations; the others are listed.
"""

from collections.abc import Iterable

from lakehouse.deploy.names import Names

OTHER_ACTIONS = {
    "s3:CreateBucket": ("s3:CreateBucket", "s3:TagResource"),
    "s3:HeadBucket": ("s3:ListBucket",),
    "s3:GetBucketEncryption": ("s3:GetEncryptionConfiguration",),
    "s3:PutBucketEncryption": ("s3:PutEncryptionConfiguration",),
    "s3:GetBucketLifecycleConfiguration": ("s3:GetLifecycleConfiguration",),
    "s3:PutBucketLifecycleConfiguration": ("s3:PutLifecycleConfiguration",),
    "s3:GetPublicAccessBlock": ("s3:GetBucketPublicAccessBlock",),
    "s3:PutPublicAccessBlock": ("s3:PutBucketPublicAccessBlock",),
    "s3:ListObjectsV2": ("s3:ListBucket",),
    "s3:ListObjectVersions": ("s3:ListBucketVersions",),
    "s3:DeleteObjects": ("s3:DeleteObject", "s3:DeleteObjectVersion"),
    "iam:CreateRole": ("iam:CreateRole", "iam:TagRole"),
    "glue:CreateDatabase": ("glue:CreateDatabase", "glue:TagResource"),
    "athena:CreateWorkGroup": ("athena:CreateWorkGroup", "athena:TagResource"),
    "secretsmanager:CreateSecret": ("secretsmanager:CreateSecret", "secretsmanager:TagResource"),
}

BUCKET = (
    *("CreateBucket", "HeadBucket", "GetBucketTagging", "ListObjectVersions", "DeleteBucket"),
    *(f"{verb}{what}" for verb in ("Get", "Put") for what in ("BucketVersioning", "BucketEncryption", "BucketPolicy")),
    *(f"{verb}{what}" for verb in ("Get", "Put") for what in ("BucketOwnershipControls", "PublicAccessBlock")),
    *("GetBucketLifecycleConfiguration", "PutBucketLifecycleConfiguration"),
)
EXISTING_BUCKET, EXISTING_TABLEFLOW_BUCKET = ("GetBucketLocation",), ("GetBucketLocation", "ListObjectsV2")
ROLE = (
    *("CreateRole", "GetRole", "UpdateAssumeRolePolicy", "GetRolePolicy", "PutRolePolicy", "ListRolePolicies"),
    *("DeleteRolePolicy", "ListAttachedRolePolicies", "DetachRolePolicy", "DeleteRole"),
)
EXISTING_DATABASE = ("GetDatabase", "GetTable")
DATABASE = (
    *EXISTING_DATABASE,
    *("CreateDatabase", "UpdateDatabase", "DeleteDatabase", "GetTables", "DeleteTable", "GetTags"),
)
WORKGROUP = (
    *("CreateWorkGroup", "GetWorkGroup", "UpdateWorkGroup", "DeleteWorkGroup"),
    *("ListTagsForResource", "ListNamedQueries"),
)
SECRET = (
    *("CreateSecret", "DescribeSecret", "GetSecretValue", "PutSecretValue", "UpdateSecretVersionStage"),
    *("DeleteSecret", "RestoreSecret", "ListSecretVersionIds"),
)


def actions(service: str, operation: str) -> tuple[str, ...]:
    """Return the IAM actions that an operation such as `CreateBucket` requires."""
    return OTHER_ACTIONS.get(f"{service}:{operation}", (f"{service}:{operation}",))


def needed(
    names: Names, database: str, roles: Iterable[str], tableflow: bool, secrets: Iterable[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Return the actions that create, change and delete a deployment, by the ARN of their resources.

    Existing objects are only read.

    Args:
        names: Names of the deployment.
        database: Glue database of the deployment.
        roles: Purposes of the IAM roles that the deployment has.
        tableflow: Whether Tableflow creates tables in the account.
        secrets: Names of secrets of others, which are read.
    """
    at = f"{names.region}:{names.account}"
    arn = f"arn:aws:secretsmanager:{at}:secret:"
    existing = names.existing
    tables = ("GetTable",) if existing.glue_database else ("GetTable", "GetTables", "DeleteTable", "DeleteDatabase")
    glue = _all("glue", EXISTING_DATABASE if existing.glue_database else DATABASE)
    return {
        **_bucket(names.bucket, EXISTING_BUCKET if existing.bucket else ()),
        **(_tableflow(names, at) if tableflow else {}),
        **{names.role_arn(purpose): _all("iam", ROLE) for purpose in roles},
        f"arn:aws:glue:{at}:catalog": glue,
        f"arn:aws:glue:{at}:database/{database}": glue,
        f"arn:aws:glue:{at}:table/{database}/*": _all("glue", tables),
        f"arn:aws:athena:{at}:workgroup/{names.workgroup}": _all("athena", WORKGROUP),
        f"{arn}{names.confluent_secrets}/*": _all("secretsmanager", SECRET),
        f"{arn}{names.snowflake_secret}-*": _all("secretsmanager", SECRET),
        f"{arn}{names.snowflake_secret}/*": _all("secretsmanager", SECRET),
        **{f"{arn}{name}-*": ("secretsmanager:GetSecretValue",) for name in secrets},
        "*": ("secretsmanager:ListSecrets",),
    }


def _tableflow(names: Names, at: str) -> dict[str, tuple[str, ...]]:
    """Return the actions on Tableflow's bucket, and on its tables, whose database has the id of the Kafka cluster."""
    database = names.existing.confluent_cluster or "lkc-*"
    return {
        **_bucket(names.tableflow_bucket, EXISTING_TABLEFLOW_BUCKET if names.existing.tableflow_bucket else ()),
        f"arn:aws:glue:{at}:database/{database}": ("glue:GetTable",),
        f"arn:aws:glue:{at}:table/{database}/*": ("glue:GetTable",),
    }


def _bucket(bucket: str, existing: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the actions on a bucket: these if it existed before."""
    arn = f"arn:aws:s3:::{bucket}"
    if existing:
        return {arn: _all("s3", existing)}
    return {arn: _all("s3", BUCKET), f"{arn}/*": _all("s3", ("DeleteObjects",))}


def _all(service: str, operations: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(action for operation in operations for action in actions(service, operation)))
