"""Allowed and denied actions of each role of a deployment, by an evaluator of IAM's rules."""

import json

import pytest

from lakehouse.deploy.aws import iam_policies
from lakehouse.deploy.aws.iam_policies import AwsPlace, Tables
from tests.support.clouds.aws import iam

ACCOUNT, REGION, BUCKET = "123456789012", "us-east-1", "lake-production"
TABLEFLOW_BUCKET = "tableflow-production"
DEPLOYMENT = AwsPlace(ACCOUNT, REGION, BUCKET)
BUCKET_POLICIES = [
    iam_policies.bucket_policy(AwsPlace(ACCOUNT, REGION, bucket)) for bucket in (BUCKET, TABLEFLOW_BUCKET)
]
OURS = Tables(database="trading", prefix="warehouse")
ORGANIZATION, ENVIRONMENT, CLUSTER = "1111-aaaa", "env-abc123", "lkc-abc123"
TABLEFLOW = iam_policies.tableflow_tables(TABLEFLOW_BUCKET, ORGANIZATION, ENVIRONMENT, CLUSTER)

RUNNER = f"arn:aws:iam::{ACCOUNT}:role/runner"

SECRETS = ("/lakehouse/production/kafka", "/snowflake/production")

ACCESS = {
    "confluent": iam_policies.confluent_access(DEPLOYMENT, TABLEFLOW),
    "snowflake": iam_policies.snowflake_access(DEPLOYMENT, OURS, TABLEFLOW),
    "writer": iam_policies.writer_access(DEPLOYMENT, OURS, SECRETS, TABLEFLOW),
    "rotation": iam_policies.rotation_access(DEPLOYMENT, (*SECRETS, "/lakehouse/production/manager")),
    "maintenance": iam_policies.maintenance_access(DEPLOYMENT, OURS),
    "reader": iam_policies.reader_access(DEPLOYMENT, OURS, TABLEFLOW, workgroup="lakehouse", results="athena"),
}
ROLES = list(ACCESS)


def s3(key=None, bucket=BUCKET):
    return f"arn:aws:s3:::{bucket}" + (f"/{key}" if key else "")


def glue(resource, account=ACCOUNT, region=REGION):
    return f"arn:aws:glue:{region}:{account}:{resource}"


def secret(name, account=ACCOUNT):
    return f"arn:aws:secretsmanager:{REGION}:{account}:secret:{name}-AbCdEf"


def workgroup(name):
    return f"arn:aws:athena:{REGION}:{ACCOUNT}:workgroup/{name}"


def needed(resource):
    """Return a resource and its containers, for which Glue requires the same right (Specifying resource ARNs)."""
    prefix, _, path = resource.rpartition(":")
    kind, _, name = path.partition("/")
    if not prefix.startswith("arn:aws:glue") or kind == "catalog":
        return [resource]
    within = [f"{prefix}:database/{name.partition('/')[0]}"] if kind == "table" else []
    return [resource, *within, f"{prefix}:catalog"]


def may(role, action, resource, context=None):
    """Return whether a role may do an action over TLS, with the bucket policies of the deployment."""
    policies_ = [ACCESS[role], *BUCKET_POLICIES]
    context = {"aws:SecureTransport": "true"} | (context or {})
    return all(iam.decide(policies_, action, arn, context) == "allowed" for arn in needed(resource))


FILE, THEIRS = (
    s3("warehouse/trading/t/data/1.parquet"),
    s3(f"10110010/01101001/1111-aaaa/{ENVIRONMENT}/{CLUSTER}/v1/t", TABLEFLOW_BUCKET),
)
TABLE, TABLEFLOW_TABLE, STRANGER = glue("table/trading/t"), glue(f"table/{CLUSTER}/t"), glue("table/billing/t")
OUR_SECRET = secret("/lakehouse/production/kafka")


def listing(prefix):
    return {"s3:prefix": prefix}


ALLOWED = [
    ("confluent", "s3:PutObject", THEIRS),
    ("confluent", "s3:PutObject", s3(f"/10110010/1111-aaaa/{ENVIRONMENT}/{CLUSTER}/v1/t", TABLEFLOW_BUCKET)),
    ("confluent", "s3:GetObject", THEIRS),
    ("confluent", "s3:AbortMultipartUpload", THEIRS),
    ("confluent", "s3:ListBucket", s3(bucket=TABLEFLOW_BUCKET)),
    ("confluent", "s3:GetBucketLocation", s3(bucket=TABLEFLOW_BUCKET)),
    ("confluent", "s3:ListBucketMultipartUploads", s3(bucket=TABLEFLOW_BUCKET)),
    ("confluent", "glue:CreateDatabase", glue(f"database/{CLUSTER}")),
    ("confluent", "glue:DeleteDatabase", glue(f"userDefinedFunction/{CLUSTER}/f")),
    ("confluent", "glue:CreateTable", TABLEFLOW_TABLE),
    ("confluent", "glue:UpdateTable", TABLEFLOW_TABLE),
    ("confluent", "glue:DeleteTable", TABLEFLOW_TABLE),
    ("snowflake", "s3:GetObject", FILE),
    ("snowflake", "s3:GetObject", THEIRS),
    ("snowflake", "s3:GetObjectVersion", FILE),
    ("snowflake", "s3:GetBucketLocation", s3()),
    ("snowflake", "s3:GetBucketLocation", s3(bucket=TABLEFLOW_BUCKET)),
    ("snowflake", "glue:GetCatalog", glue("catalog")),
    ("snowflake", "glue:GetTable", TABLE),
    ("snowflake", "glue:GetTables", TABLEFLOW_TABLE),
    ("snowflake", "glue:GetDatabases", glue("database/trading")),
    ("writer", "s3:PutObject", FILE),
    ("writer", "s3:GetObject", FILE),
    ("writer", "s3:ListMultipartUploadParts", FILE),
    ("writer", "s3:GetObject", THEIRS),
    ("writer", "glue:GetTable", TABLEFLOW_TABLE),
    ("writer", "secretsmanager:GetSecretValue", secret("/snowflake/production")),
    ("rotation", "secretsmanager:PutSecretValue", OUR_SECRET),
    ("rotation", "secretsmanager:UpdateSecretVersionStage", secret("/lakehouse/production/manager")),
    ("maintenance", "glue:DeleteTable", TABLE),
    ("writer", "glue:CreateDatabase", glue("database/trading")),
    ("writer", "glue:CreateTable", TABLE),
    ("writer", "glue:UpdateTable", TABLE),
    ("writer", "glue:GetTable", TABLE),
    ("writer", "secretsmanager:GetSecretValue", OUR_SECRET),
    ("maintenance", "s3:PutObject", FILE),
    ("maintenance", "s3:DeleteObject", FILE),
    ("maintenance", "glue:UpdateTable", TABLE),
    ("reader", "s3:GetObject", FILE),
    ("reader", "s3:GetObject", THEIRS),
    ("reader", "s3:PutObject", s3("athena/result.csv")),
    ("reader", "s3:GetObject", s3("athena/result.csv")),
    ("reader", "s3:GetBucketLocation", s3()),
    ("reader", "glue:GetTable", TABLE),
    ("reader", "glue:GetDatabase", glue("database/default")),
    ("reader", "athena:StartQueryExecution", workgroup("lakehouse")),
    ("reader", "athena:GetQueryResults", workgroup("lakehouse")),
]

REFUSED = [
    ("confluent", "s3:PutObject", FILE),
    ("confluent", "s3:PutObject", s3(f"a/b/1111-aaaa/{ENVIRONMENT}/lkc-another/v1/t", TABLEFLOW_BUCKET)),
    ("confluent", "s3:PutObject", s3(f"a/b/1111-aaaa/{ENVIRONMENT}/{CLUSTER}2/v1/t", TABLEFLOW_BUCKET)),
    ("confluent", "s3:DeleteObject", THEIRS),
    ("confluent", "s3:ListBucket", s3()),
    ("confluent", "s3:GetBucketLocation", s3()),
    ("confluent", "s3:PutObject", s3(f"10110010/01101001/1111-aaaa/{ENVIRONMENT}/{CLUSTER}/v1/t")),
    ("snowflake", "s3:GetObject", s3("warehouse/trading/t", TABLEFLOW_BUCKET)),
    ("writer", "s3:PutObject", s3("warehouse/trading/t", TABLEFLOW_BUCKET)),
    ("maintenance", "s3:ListBucket", s3(bucket=TABLEFLOW_BUCKET)),
    ("confluent", "glue:UpdateTable", TABLE),
    ("confluent", "glue:DeleteDatabase", glue("database/trading")),
    ("confluent", "secretsmanager:GetSecretValue", OUR_SECRET),
    ("snowflake", "s3:PutObject", FILE),
    ("snowflake", "s3:PutObject", THEIRS),
    ("snowflake", "s3:DeleteObject", FILE),
    ("snowflake", "s3:GetObject", s3("athena/result.csv")),
    ("snowflake", "glue:UpdateTable", TABLE),
    ("snowflake", "glue:CreateTable", TABLE),
    ("snowflake", "secretsmanager:GetSecretValue", OUR_SECRET),
    ("writer", "s3:DeleteObject", FILE),
    ("writer", "s3:PutObject", THEIRS),
    ("writer", "s3:PutObject", s3("warehouse2/t")),
    ("writer", "glue:DeleteTable", TABLE),
    ("writer", "glue:DeleteDatabase", glue("database/trading")),
    ("writer", "glue:UpdateTable", TABLEFLOW_TABLE),
    ("writer", "glue:CreateDatabase", glue("database/trading2")),
    ("writer", "glue:UpdateTable", glue("table/trading2/t")),
    ("writer", "glue:UpdateTable", glue("table/trading/t", account="999999999999")),
    ("writer", "glue:UpdateTable", glue("table/trading/t", region="eu-west-1")),
    ("writer", "secretsmanager:GetSecretValue", secret("/lakehouse/staging/kafka")),
    ("writer", "secretsmanager:GetSecretValue", secret("/lakehouse/production2/kafka")),
    ("writer", "secretsmanager:GetSecretValue", secret("/lakehouse/production/kafka", account="999999999999")),
    ("writer", "secretsmanager:PutSecretValue", OUR_SECRET),
    ("writer", "secretsmanager:GetSecretValue", secret("/lakehouse/production/manager")),
    ("rotation", "secretsmanager:GetSecretValue", secret("/lakehouse/staging/kafka")),
    ("rotation", "s3:GetObject", FILE),
    ("writer", "athena:StartQueryExecution", workgroup("lakehouse")),
    ("maintenance", "s3:DeleteObject", THEIRS),
    ("maintenance", "s3:DeleteObject", s3("athena/result.csv")),
    ("maintenance", "glue:CreateTable", TABLE),
    ("maintenance", "secretsmanager:GetSecretValue", OUR_SECRET),
    ("reader", "s3:PutObject", FILE),
    ("reader", "s3:PutObject", THEIRS),
    ("reader", "s3:DeleteObject", s3("athena/result.csv")),
    ("reader", "glue:UpdateTable", TABLE),
    ("reader", "glue:CreateDatabase", glue("database/default")),
    ("reader", "glue:GetTable", glue("table/default/t")),
    ("reader", "athena:StartQueryExecution", workgroup("primary")),
    ("reader", "athena:UpdateWorkGroup", workgroup("lakehouse")),
    ("reader", "secretsmanager:GetSecretValue", OUR_SECRET),
]

NOBODY = [
    ("s3:DeleteBucket", s3()),
    ("s3:PutBucketPolicy", s3()),
    ("s3:DeleteBucketPolicy", s3()),
    ("s3:PutBucketVersioning", s3()),
    ("s3:PutLifecycleConfiguration", s3()),
    ("s3:DeleteObjectVersion", FILE),
    ("s3:BypassGovernanceRetention", FILE),
    ("s3:PutObjectAcl", FILE),
    ("s3:GetObject", s3("warehouse/trading/t", bucket="another-bucket")),
    ("s3:GetObject", s3("warehouse/trading/t", bucket=BUCKET + "2")),
    ("glue:GetTable", STRANGER),
    ("glue:UpdateTable", STRANGER),
    ("glue:DeleteTable", STRANGER),
    ("glue:PutResourcePolicy", glue("catalog")),
    ("secretsmanager:DeleteSecret", OUR_SECRET),
    ("iam:PassRole", RUNNER),
    ("iam:CreatePolicyVersion", f"arn:aws:iam::{ACCOUNT}:policy/lakehouse"),
    ("sts:AssumeRole", RUNNER),
]


@pytest.mark.parametrize(("role", "action", "resource"), ALLOWED)
def test_role_may_do_its_work(role, action, resource):
    assert may(role, action, resource)


@pytest.mark.parametrize(("role", "action", "resource"), REFUSED)
def test_role_may_do_nothing_else(role, action, resource):
    assert not may(role, action, resource)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("action", "resource"), NOBODY)
def test_role_is_denied_forbidden_actions(role, action, resource):
    assert not may(role, action, resource)


@pytest.mark.parametrize("role", ROLES)
def test_role_foreign_table_is_denied_by_itself(role):
    assert iam.decide([ACCESS[role]], "glue:GetTable", STRANGER) == "implicitDeny"


@pytest.mark.parametrize("role", ["snowflake", "writer", "maintenance", "reader"])
def test_role_lists_only_table_prefixes(role):
    assert may(role, "s3:ListBucket", s3(), listing("warehouse/trading/t/"))
    assert not may(role, "s3:ListBucket", s3(), listing("warehouse2/"))
    assert not may(role, "s3:ListBucket", s3(), listing(""))
    assert not may(role, "s3:ListBucket", s3())
    assert may(role, "s3:ListBucket", s3(), listing("athena/")) is (role == "reader")


@pytest.mark.parametrize("role", ROLES)
def test_prefix_conditions_only_for_list_bucket(role):
    conditional = [statement for statement in ACCESS[role]["Statement"] if "Condition" in statement]
    assert all(statement["Action"] == ["s3:ListBucket"] for statement in conditional)


@pytest.mark.parametrize(("role", "action", "resource"), [row for row in ALLOWED if row[1].startswith("s3:")])
def test_role_without_tls_is_denied(role, action, resource):
    context = {"aws:SecureTransport": "false", "s3:prefix": "warehouse/"}
    decision = iam.decide([ACCESS[role], *BUCKET_POLICIES], action, resource, context)
    assert decision == "explicitDeny"


def test_bucket_policy_grants_nothing():
    decided = iam.decide(
        [iam_policies.bucket_policy(DEPLOYMENT)], "s3:GetObject", FILE, {"aws:SecureTransport": "true"}
    )
    assert decided == "implicitDeny"


@pytest.mark.parametrize("document", ACCESS.values())
def test_policy_fits_managed_policy_quota(document):
    # AWS IAM, "IAM and AWS STS quotas": characters, white space not counted.
    assert len(json.dumps(document, separators=(",", ":"))) <= 6_144


@pytest.mark.filterwarnings("ignore:pkg_resources is deprecated")
@pytest.mark.parametrize("document", [*ACCESS.values(), iam_policies.bucket_policy(DEPLOYMENT)])
def test_policy_linter_has_no_findings(document):
    import parliament

    findings = parliament.analyze_policy_string(json.dumps(document)).findings

    assert not findings, findings


@pytest.mark.filterwarnings("ignore:pkg_resources is deprecated")
def test_linter_reports_condition_key_of_wrong_action():
    import parliament

    statement = {"Effect": "Allow", "Action": "s3:GetBucketLocation", "Resource": s3()}
    wrong = {"Version": "2012-10-17", "Statement": {**statement, "Condition": {"StringLike": {"s3:prefix": "a/*"}}}}

    findings = parliament.analyze_policy_string(json.dumps(wrong)).findings
    assert [finding.issue for finding in findings] == ["UNKNOWN_CONDITION_FOR_ACTION"]
