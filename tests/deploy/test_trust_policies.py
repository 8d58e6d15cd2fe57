"""Principals that may assume the roles of a deployment, and values that policies refuse."""

import json

import pytest

from lakehouse.core.errors import ConfigError
from lakehouse.deploy.aws import iam_policies
from lakehouse.deploy.aws.iam_policies import AwsPlace, Tables
from tests.support.clouds.aws import iam

ACCOUNT, REGION, BUCKET = "123456789012", "us-east-1", "lake-production"
DEPLOYMENT = AwsPlace(ACCOUNT, REGION, BUCKET)
OURS = Tables(database="trading", prefix="warehouse")
CONFLUENT = "arn:aws:iam::211111111111:role/confluent"
STORAGE, CATALOG = "arn:aws:iam::311111111111:user/storage", "arn:aws:iam::311111111111:user/catalog"
RUNNER = f"arn:aws:iam::{ACCOUNT}:role/runner"

TRUST = {
    "confluent": iam_policies.confluent_trust(CONFLUENT, "their-id"),
    "snowflake": iam_policies.snowflake_trust(STORAGE, "storage-id", CATALOG, "catalog-id"),
    "own": iam_policies.own_trust(RUNNER),
}


@pytest.mark.parametrize(
    ("role", "principal", "external_id", "assumed"),
    [
        ("confluent", CONFLUENT, "their-id", True),
        ("confluent", "arn:aws:sts::211111111111:assumed-role/confluent/tableflow", "their-id", True),
        ("confluent", CONFLUENT, "THEIR-ID", False),
        ("confluent", CONFLUENT, "another", False),
        ("confluent", CONFLUENT, None, False),
        ("confluent", STORAGE, "their-id", False),
        ("confluent", "arn:aws:iam::211111111111:role/another", "their-id", False),
        ("confluent", "glue.amazonaws.com", None, False),
        ("snowflake", STORAGE, "storage-id", True),
        ("snowflake", CATALOG, "catalog-id", True),
        ("snowflake", STORAGE, "catalog-id", False),
        ("snowflake", CATALOG, "storage-id", False),
        ("snowflake", STORAGE, None, False),
        ("snowflake", CONFLUENT, "storage-id", False),
        ("snowflake", RUNNER, "storage-id", False),
        ("snowflake", "glue.amazonaws.com", None, False),
        ("own", RUNNER, None, True),
        ("own", CONFLUENT, None, False),
        ("own", f"arn:aws:iam::{ACCOUNT}:role/another", None, False),
    ],
)
def test_trust_policy_allows_only_its_principal(role, principal, external_id, assumed):
    context = {} if external_id is None else {"sts:ExternalId": external_id}
    decision = iam.decide([TRUST[role]], "sts:AssumeRole", RUNNER, context, principal)
    assert decision == ("allowed" if assumed else "implicitDeny")


@pytest.mark.parametrize(("role", "principal", "tags"), [("confluent", CONFLUENT, True), ("snowflake", STORAGE, False)])
def test_trust_policy_allows_tags_only_for_confluent(role, principal, tags):
    decision = iam.decide([TRUST[role]], "sts:TagSession", RUNNER, principal=principal)
    assert decision == ("allowed" if tags else "implicitDeny")


@pytest.mark.parametrize(
    "make",
    [
        lambda: AwsPlace("*", REGION, BUCKET),
        lambda: AwsPlace(ACCOUNT, "*", BUCKET),
        lambda: AwsPlace(ACCOUNT, REGION, "*"),
        lambda: AwsPlace(ACCOUNT, REGION, "with.dots"),
        lambda: Tables("*", "warehouse"),
        lambda: Tables("trading", "*"),
        lambda: Tables("trading", ""),
        lambda: Tables("trading", "warehouse/"),
        lambda: Tables("trading\n", "warehouse"),
        lambda: iam_policies.tableflow_tables("bucket", "*", "env-abc123", "lkc-abc123"),
        lambda: iam_policies.writer_access(DEPLOYMENT, OURS, ["*"]),
        lambda: iam_policies.writer_access(DEPLOYMENT, OURS, [""]),
        lambda: iam_policies.reader_access(DEPLOYMENT, OURS, workgroup="*", results="athena"),
        lambda: iam_policies.reader_access(DEPLOYMENT, OURS, workgroup="lakehouse", results="*"),
        lambda: iam_policies.reader_access(DEPLOYMENT, OURS, workgroup="lakehouse", results="warehouse"),
        lambda: iam_policies.reader_access(DEPLOYMENT, OURS, workgroup="lakehouse", results="warehouse/results"),
        lambda: iam_policies.confluent_trust("*", "their-id"),
        lambda: iam_policies.confluent_trust("arn:aws:iam::211111111111:root", "their-id"),
        lambda: iam_policies.confluent_trust("arn:aws:iam::*:role/confluent", "their-id"),
        lambda: iam_policies.confluent_trust(CONFLUENT, ""),
        lambda: iam_policies.snowflake_trust(STORAGE, "storage-id", CATALOG, "*"),
        lambda: iam_policies.own_trust(),
        lambda: iam_policies.own_trust("arn:aws:iam::123456789012:root"),
    ],
)
def test_policy_value_that_would_widen_it_is_refused(make):
    with pytest.raises(ConfigError):
        make()


@pytest.mark.parametrize("document", TRUST.values())
def test_trust_policy_fits_its_quota(document):
    # AWS IAM, "IAM and AWS STS quotas": characters, white space not counted.
    assert len(json.dumps(document, separators=(",", ":"))) <= 2_048
