"""The IAM evaluator, compared with the cases of AWS's documentation."""

import pytest

from tests.support.clouds.aws import iam

# AWS IAM, "Policy evaluation logic": example of identity-based and resource-based policies.
CARLOS = {
    "Version": "2012-10-17",
    "Statement": [
        {"Sid": "AllowS3ListRead", "Effect": "Allow", "Action": "s3:ListAllMyBuckets", "Resource": "arn:aws:s3:::*"},
        {
            "Sid": "AllowS3Self",
            "Effect": "Allow",
            "Action": "s3:*",
            "Resource": ["arn:aws:s3:::carlossalazar", "arn:aws:s3:::carlossalazar/*"],
        },
        {"Sid": "DenyS3Logs", "Effect": "Deny", "Action": "s3:*", "Resource": "arn:aws:s3:::*log*"},
    ],
}


@pytest.mark.parametrize(
    ("action", "resource", "decision"),
    [
        ("s3:ListAllMyBuckets", "arn:aws:s3:::*", "allowed"),
        ("s3:PutObject", "arn:aws:s3:::carlossalazar/notes.txt", "allowed"),
        ("s3:DeleteBucket", "arn:aws:s3:::carlossalazar", "allowed"),
        ("s3:GetObject", "arn:aws:s3:::carlossalazar/log/today", "explicitDeny"),
        ("s3:PutObject", "arn:aws:s3:::company-logs/x", "explicitDeny"),
        ("s3:GetObject", "arn:aws:s3:::another/notes.txt", "implicitDeny"),
        ("s3:GetObject", "arn:aws:s3:::carlossalazar2/notes.txt", "implicitDeny"),
        ("ec2:StopInstances", "arn:aws:s3:::carlossalazar", "implicitDeny"),
    ],
)
def test_decide_deny_precedes_allow_and_default_is_deny(action, resource, decision):
    assert iam.decide([CARLOS], action, resource) == decision


def test_decide_bucket_policy_grants_and_denies():
    bucket = "arn:aws:s3:::carlossalazar"
    mary = "arn:aws:iam::123456789012:user/MaryMajor"
    grant = policy("Allow", Principal={"AWS": mary}, Action="s3:GetObject", Resource=f"{bucket}/*")
    deny = policy("Deny", Principal="*", Action="s3:DeleteBucket", Resource=bucket)

    assert iam.decide([grant], "s3:GetObject", f"{bucket}/x", principal=mary) == "allowed"
    assert iam.decide([grant], "s3:GetObject", f"{bucket}/x", principal=mary + "2") == "implicitDeny"
    assert iam.decide([grant], "s3:GetObject", f"{bucket}/x") == "implicitDeny"
    assert iam.decide([CARLOS, deny], "s3:DeleteBucket", bucket) == "explicitDeny"


@pytest.mark.parametrize(
    ("pattern", "arn", "matches"),
    [
        # AWS IAM, "IAM JSON policy elements: Resource": wildcards in paths and in segments.
        ("arn:aws:s3:::amzn-s3-demo-bucket/*/test/*", "arn:aws:s3:::amzn-s3-demo-bucket/1/2/test/3/o.jpg", True),
        ("arn:aws:s3:::amzn-s3-demo-bucket/*/test/*", "arn:aws:s3:::amzn-s3-demo-bucket/1-test/object.jpg", False),
        ("arn:aws:iam::111122223333:user/?", "arn:aws:iam::111122223333:user/A", True),
        ("arn:aws:iam::111122223333:user/?", "arn:aws:iam::111122223333:user/AB", False),
        ("*", "arn:aws:s3:::anything/at:all", True),
        ("arn:aws:s3:::b/*", "arn:aws:s3:::b", False),
        ("arn:aws:s3:::b/[a]", "arn:aws:s3:::b/a", False),
        ("arn:aws:s3:::b/Key", "arn:aws:s3:::b/key", False),
        ("arn:aws:glue:*:111122223333:catalog", "arn:aws:glue:eu-west-1:111122223333:catalog", True),
        ("arn:aws:glue:*:catalog", "arn:aws:glue:eu-west-1:111122223333:catalog", False),
        ("arn:aws:logs:*", "arn:aws:logs:eu-west-1:111122223333:log-group:x", True),
    ],
)
def test_arn_like_wildcards(pattern, arn, matches):
    assert iam.arn_like(pattern, arn) is matches
    allow = policy("Allow", Action="s3:GetObject", Resource=pattern)
    assert iam.decide([allow], "s3:GetObject", arn) == ("allowed" if matches else "implicitDeny")


@pytest.mark.parametrize(
    ("pattern", "action", "matches"),
    [
        ("s3:Get*", "s3:GetObjectVersion", True),
        ("S3:getobject", "s3:GetObject", True),
        ("iam:*AccessKey*", "iam:CreateAccessKey", True),
        ("s3:GetObject", "s3:GetObjectVersion", False),
        ("s3:*", "s3tables:GetTable", False),
        ("*", "glue:GetTable", True),
    ],
)
def test_decide_action_wildcards_and_case(pattern, action, matches):
    allow = policy("Allow", Action=["sqs:SendMessage", pattern], Resource="*")
    assert iam.decide([allow], action, "arn:aws:s3:::b") == ("allowed" if matches else "implicitDeny")


# AWS IAM, "IAM JSON policy elements: Condition operators", "Conditions with multiple context keys or values".
HOME = {"StringLike": {"s3:prefix": ["", "home/", "home/David/*"]}}
TAGS = {"StringEquals": {"aws:PrincipalTag/department": ["finance", "hr"], "aws:PrincipalTag/role": "audit"}}
INSECURE = {"Bool": {"aws:SecureTransport": "false"}}
TOPIC = {"ArnLike": {"aws:SourceArn": "arn:aws:sns:*:123456789012:topic-*"}}


@pytest.mark.parametrize(
    ("condition", "context", "holds"),
    [
        (HOME, {"s3:prefix": "home/David/a/b"}, True),
        (HOME, {"s3:prefix": ""}, True),
        (HOME, {"s3:prefix": "home/Carlos/"}, False),
        (HOME, {}, False),
        (TAGS, {"aws:PrincipalTag/department": "hr", "aws:PrincipalTag/role": "audit"}, True),
        (TAGS, {"aws:PrincipalTag/department": "hr", "aws:PrincipalTag/role": "guest"}, False),
        (TAGS, {"aws:PrincipalTag/department": "hr"}, False),
        (TAGS, {"aws:PrincipalTag/department": "HR", "aws:PrincipalTag/role": "audit"}, False),
        ({"StringEquals": {"sts:ExternalId": "a*"}}, {"sts:ExternalId": "abc"}, False),
        ({"StringEquals": {"AWS:SOURCEIP": "x"}}, {"aws:SourceIp": "x"}, True),
        (INSECURE, {"aws:SecureTransport": "false"}, True),
        (INSECURE, {"aws:SecureTransport": "true"}, False),
        (INSECURE, {}, False),
        ({"Bool": {"aws:SecureTransport": False}}, {"aws:SecureTransport": "false"}, True),
        (TOPIC, {"aws:SourceArn": "arn:aws:sns:us-east-1:123456789012:topic-1"}, True),
        (TOPIC, {"aws:SourceArn": "arn:aws:sns:us-east-1:210987654321:topic-1"}, False),
        (HOME | INSECURE, {"s3:prefix": "home/", "aws:SecureTransport": "true"}, False),
    ],
)
def test_decide_conditions(condition, context, holds):
    allow = policy("Allow", Action="*", Resource="*", Condition=condition)
    assert iam.decide([allow], "s3:ListBucket", "arn:aws:s3:::b", context) == ("allowed" if holds else "implicitDeny")


ROLE = "arn:aws:iam::111122223333:role/example-role"


@pytest.mark.parametrize(
    ("element", "principal", "named"),
    [
        ({"AWS": ROLE}, ROLE, True),
        ({"AWS": ROLE}, "arn:aws:sts::111122223333:assumed-role/example-role/session", True),
        ({"AWS": ROLE}, "arn:aws:sts::111122223333:assumed-role/another-role/session", False),
        ({"AWS": ROLE}, "arn:aws:iam::111122223333:user/example-role", False),
        ({"AWS": "arn:aws:iam::111122223333:root"}, ROLE, True),
        ({"AWS": "111122223333"}, ROLE, True),
        ({"AWS": "444455556666"}, ROLE, False),
        ({"AWS": "*"}, ROLE, True),
        ({"Service": "glue.amazonaws.com"}, "glue.amazonaws.com", True),
        ({"Service": "glue.amazonaws.com"}, ROLE, False),
    ],
)
def test_decide_principals(element, principal, named):
    trust = policy("Allow", Principal=element, Action="sts:AssumeRole")
    decision = iam.decide([trust], "sts:AssumeRole", ROLE, principal=principal)
    assert decision == ("allowed" if named else "implicitDeny")


@pytest.mark.parametrize(
    "unknown",
    [
        {"Condition": {"DateLessThan": {"aws:CurrentTime": "2026-01-01T00:00:00Z"}}},
        {"Condition": {"StringLike": {"s3:prefix": "home/${aws:username}/*"}}},
        {"NotPrincipal": {"AWS": ROLE}},
        {"Principal": {"Federated": "cognito-identity.amazonaws.com"}},
    ],
)
def test_decide_unknown_element_raises(unknown):
    allow = policy("Allow", Action="*", Resource="*", **unknown)
    with pytest.raises(ValueError, match="not known"):
        iam.decide([allow], "s3:ListBucket", "arn:aws:s3:::b", {"s3:prefix": "home/x/"}, principal=ROLE)


def policy(effect, **elements):
    return {"Version": "2012-10-17", "Statement": {"Effect": effect, **elements}}
