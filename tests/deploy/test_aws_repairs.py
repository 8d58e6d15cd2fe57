"""External changes in AWS and existing objects, which create keeps or completes."""

import json
import re

import pytest

from lakehouse.config.deployment import ExistingObjects
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.planner import apply, destroy, plan, plan_destroy

pytestmark = pytest.mark.stack

KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def config(engine="spark"):
    return Config(namespace="trading", topics={"trades": Topic(name="trades", engine=engine)}, environments={})


def quiet(change):
    """Ignore a reported change."""


def actions(changes):
    return {change.resource.address: change.action for change in changes if change.resource.address.startswith("aws/")}


def test_create_bucket_with_stricter_settings_keeps_them(aws, direct):
    resources = [resource for resource in aws.resources(config()) if resource.address == "aws/bucket"]
    apply(resources, quiet)
    s3, bucket = direct("s3"), aws.names().bucket
    rules = [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY}}]
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": rules})
    lifecycle = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    versions = next(rule for rule in lifecycle if "NoncurrentVersionExpiration" in rule)
    versions |= {"ID": "theirs", "NoncurrentVersionExpiration": {"NoncurrentDays": 3650}}
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": lifecycle})
    policy = json.loads(aws.gaps.policies[bucket])
    deny = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:DeleteObjectVersion",
        "Resource": f"arn:aws:s3:::{bucket}/*",
    }
    aws.gaps.policies[bucket] = json.dumps({**policy, "Statement": [deny]})
    [change] = plan(resources)
    assert (change.action, change.reason) == ("update", "its policy does not demand TLS")

    apply(resources, quiet)

    kept = json.loads(aws.gaps.policies[bucket])["Statement"]
    assert deny in kept and [statement for statement in policy["Statement"] if statement in kept]
    assert s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"] == lifecycle
    encryption = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"][0]
    assert encryption["ApplyServerSideEncryptionByDefault"]["KMSMasterKeyID"] == KEY
    assert actions(plan(resources)) == {"aws/bucket": "no-op"}


EVERYWHERE = {"Prefix": ""}
ARCHIVE = {"Prefix": "archive/"}


def versions(days, filter_):
    return {"NoncurrentVersionExpiration": {"NoncurrentDays": days}, "Filter": filter_}


@pytest.mark.parametrize(
    ("manual", "added"),
    [
        ([versions(9, EVERYWHERE)], None),
        ([versions(9, {})], None),
        ([versions(9, ARCHIVE)], {"NoncurrentDays": 30}),
        ([versions(9, {"Tag": {"Key": "a", "Value": "b"}})], {"NoncurrentDays": 30}),
        # S3 applies the shortest of several periods: the added rule must not shorten theirs.
        ([versions(3650, ARCHIVE), versions(9, ARCHIVE)], {"NoncurrentDays": 3650}),
    ],
)
def test_apply_versions_of_whole_bucket_expire(aws, direct, manual, added):
    resources = [resource for resource in aws.resources(config()) if resource.address == "aws/bucket"]
    apply(resources, quiet)
    s3, bucket = direct("s3"), aws.names().bucket
    rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    others = [rule for rule in rules if "NoncurrentVersionExpiration" not in rule]
    manual = [{"ID": f"theirs-{n}", "Status": "Enabled", **rule} for n, rule in enumerate(manual)]
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [*others, *manual]})
    apply(resources, quiet)
    rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    kept = {rule["ID"] for rule in [*others, *manual]}
    assert kept <= {rule["ID"] for rule in rules}
    new = [rule for rule in rules if rule["ID"] not in kept]
    assert [(rule["Filter"], rule["NoncurrentVersionExpiration"]) for rule in new] == (
        [(EVERYWHERE, added)] if added else []
    )
    assert actions(plan(resources)) == {"aws/bucket": "no-op"}


@pytest.mark.parametrize(
    ("filter_", "added"),
    [
        ("<Prefix>archive/</Prefix>", "<NewerNoncurrentVersions>5</NewerNoncurrentVersions>"),
        ("<ObjectSizeGreaterThan>9</ObjectSizeGreaterThan>", "<NewerNoncurrentVersions>5</NewerNoncurrentVersions>"),
        ("<And><Prefix>a/</Prefix><Tag><Key>b</Key><Value>c</Value></Tag></And>", "<NoncurrentDays>30</"),
        ("", None),
    ],
)
def test_apply_kept_number_of_versions_is_not_reduced(aws, filter_, added):
    """moto stores neither the number of versions nor the size of objects."""
    resources = [resource for resource in aws.resources(config()) if resource.address == "aws/bucket"]
    apply(resources, quiet)
    rule = (
        f"<Rule><ID>theirs</ID><Status>Enabled</Status><Filter>{filter_}</Filter><NoncurrentVersionExpiration>"
        "<NoncurrentDays>9</NoncurrentDays><NewerNoncurrentVersions>5</NewerNoncurrentVersions>"
        "</NoncurrentVersionExpiration></Rule>"
    )
    body, sent = f"<LifecycleConfiguration>{rule}</LifecycleConfiguration>", []
    aws.responses["GetBucketLifecycleConfiguration"] = [(200, body)] * 2
    aws.on_send.append(lambda request: sent.append(request.body.decode()))
    apply(resources, quiet)
    [rules] = sent
    [new] = re.findall("<Rule><ID>lakehouse-noncurrent-versions</ID>.*?</Rule>", rules) or [None]
    assert "<ID>theirs</ID>" in rules
    assert new is None if added is None else added in new


@pytest.mark.parametrize("change", [{"Status": "Disabled"}, {"Filter": ARCHIVE}])
def test_apply_changed_lifecycle_rule_is_restored_once(aws, direct, change):
    resources = [resource for resource in aws.resources(config()) if resource.address == "aws/bucket"]
    apply(resources, quiet)
    s3, bucket = direct("s3"), aws.names().bucket
    rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    changed = [{**rules[0], **change}, *rules[1:]]
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": changed})
    apply(resources, quiet)
    restored = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert sorted(restored, key=str) == sorted(rules, key=str), "S3 accepts each id once"


def test_create_bucket_keeps_rule_with_several_actions(aws, direct):
    resources = [resource for resource in aws.resources(config()) if resource.address == "aws/bucket"]
    apply(resources, quiet)
    s3, bucket = direct("s3"), aws.names().bucket
    rule = versions(3650, EVERYWHERE) | {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 90}}
    rule |= {"ID": "theirs", "Status": "Enabled", "Expiration": {"ExpiredObjectDeleteMarker": True}}
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
    apply(resources, quiet)
    rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert [rule["ID"] for rule in rules] == ["theirs", "lakehouse-query-results"]


def test_create_kms_key_and_vpc_endpoint_are_declared(aws, direct):
    resources = aws.resources(config(), kms_key=KEY, vpc_endpoint="vpce-0a1b")
    apply(resources, quiet)
    names = aws.names()
    [rule] = direct("s3").get_bucket_encryption(Bucket=names.bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"]["KMSMasterKeyID"] == KEY
    access = aws.state()["roles"][names.role("writer")][1][0]["Statement"]
    assert [statement["Action"] for statement in access if statement["Resource"] == [KEY]] == [
        ["kms:Decrypt", "kms:GenerateDataKey"]
    ]
    conditions = [statement["Condition"] for statement in access if statement["Action"][0].startswith("s3:")]
    assert conditions and all(condition["StringEquals"] == {"aws:SourceVpce": "vpce-0a1b"} for condition in conditions)
    assert set(actions(plan(resources)).values()) == {"no-op"}


def test_delete_existing_bucket_and_database_stay(aws, direct):
    existing = ExistingObjects(bucket="theirs", glue_database="trading")
    place = {"LocationConstraint": aws.names().region}
    direct("s3").create_bucket(Bucket="theirs", CreateBucketConfiguration=place)
    database = {"Name": "trading", "LocationUri": "s3://theirs/warehouse/trading"}
    direct("glue").create_database(DatabaseInput=database)
    before = aws.state()
    resources = aws.resources(config(), existing=existing)
    apply(resources, quiet)
    access = json.dumps(aws.state()["roles"][aws.names().role("writer")])
    assert "arn:aws:s3:::theirs/warehouse/trading/*" in access
    destroy(resources, quiet, delete_data=True)
    assert aws.state() == before
    direct("glue").update_database(Name="trading", DatabaseInput={"Name": "trading", "LocationUri": "s3://other/"})
    with pytest.raises(LakehouseError, match="'s3://other/', where the deployment's roles may not write. It was left"):
        list(plan(resources))


def test_delete_workgroup_with_saved_queries_is_kept(aws, direct):
    resources = aws.resources(config())
    apply(resources, quiet)
    group = aws.names().workgroup
    query = {"Name": "daily", "Database": "trading", "QueryString": "SELECT 1", "WorkGroup": group}
    direct("athena").create_named_query(**query)
    reasons = {change.resource.address: change.reason for change in plan_destroy(resources, delete_data=False)}
    assert reasons["aws/workgroup"] == "has saved queries, which would be deleted with it"
    destroy(resources, quiet, delete_data=False)
    assert direct("athena").get_work_group(WorkGroup=group)["WorkGroup"]["Name"] == group


def test_existing_bucket_may_have_the_former_name_of_its_region(aws, direct):
    direct("s3").create_bucket(Bucket="theirs", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    location = '<LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/">EU</LocationConstraint>'
    aws.responses["GetBucketLocation"] = [(200, location)]
    changes = plan(aws.resources(config(), existing=ExistingObjects(bucket="theirs")))
    assert actions(changes)["aws/bucket"] == "no-op"


def test_delete_existing_tableflow_bucket_stays(aws, direct):
    existing = ExistingObjects(tableflow_bucket="theirs")
    direct("s3").create_bucket(Bucket="theirs", CreateBucketConfiguration={"LocationConstraint": aws.names().region})
    before = aws.state()
    resources = aws.resources(config("tableflow"), existing=existing)
    apply(resources, quiet)
    access = json.dumps(aws.state()["roles"][aws.names().role("confluent")])
    assert "arn:aws:s3:::theirs/*/1111-aaaa/env-1/lkc-1/v1/*" in access and aws.names().bucket not in access
    destroy(resources, quiet, delete_data=True)
    assert aws.state() == before


def test_create_tableflow_bucket_protects_it_without_query_results(aws, direct):
    apply(aws.resources(config("tableflow")), quiet)
    s3, bucket = direct("s3"), aws.names().tableflow_bucket
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    assert set(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values()) == {True}
    rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert [rule["ID"] for rule in rules] == ["lakehouse-noncurrent-versions", "lakehouse-incomplete-uploads"]
    assert "aws:SecureTransport" in json.dumps(aws.gaps.policies[bucket])


def test_delete_tableflow_bucket_only_with_data(aws, direct):
    resources = aws.resources(config("tableflow"))
    apply(resources, quiet)
    bucket = aws.names().tableflow_bucket
    direct("s3").put_object(Bucket=bucket, Key="10011010/11101100/t/data", Body=b"rows")
    destroy(resources, quiet, delete_data=False)
    assert bucket in aws.state()["buckets"]
    apply(resources, quiet)
    destroy(resources, quiet, delete_data=True)
    assert bucket not in aws.state()["buckets"]


def test_plan_policy_normalized_by_aws_is_unchanged(aws, direct):
    resources = aws.resources(config())
    apply(resources, quiet)
    role = aws.names().role("writer")
    [trust], [access] = (
        [document] if isinstance(document, dict) else document for document in aws.state()["roles"][role]
    )
    trust["Statement"][0]["Principal"]["AWS"] = trust["Statement"][0]["Principal"]["AWS"][0]
    for statement in access["Statement"]:
        statement["Action"] = statement["Action"][::-1]
    direct("iam").update_assume_role_policy(RoleName=role, PolicyDocument=json.dumps(trust))
    direct("iam").put_role_policy(RoleName=role, PolicyName="lakehouse", PolicyDocument=json.dumps(access))
    assert set(actions(plan(resources)).values()) == {"no-op"}


def test_plan_foreign_role_policies_are_reported_and_kept(aws, direct):
    resources = [
        resource for resource in aws.resources(config()) if resource.address in ("aws/bucket", "aws/role/writer")
    ]
    apply(resources, quiet)
    role, iam = aws.names().role("writer"), direct("iam")
    document = json.dumps({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}})
    iam.put_role_policy(RoleName=role, PolicyName="mine", PolicyDocument=document)
    arn = iam.create_policy(PolicyName="wide", PolicyDocument=document)["Policy"]["Arn"]
    iam.attach_role_policy(RoleName=role, PolicyArn=arn)
    apply(resources, quiet)

    [change] = [change for change in plan(resources) if change.resource.address == "aws/role/writer"]

    assert change.action == "no-op"
    assert f"`aws iam delete-role-policy --role-name {role} --policy-name mine`" in change.reason
    assert f"`aws iam detach-role-policy --role-name {role} --policy-arn {arn}`" in change.reason
    iam.put_role_policy(RoleName=role, PolicyName="lakehouse", PolicyDocument=document)
    [change] = [change for change in plan(resources) if change.resource.address == "aws/role/writer"]
    assert change.action == "update" and "--policy-name mine" in change.reason
    assert iam.list_role_policies(RoleName=role)["PolicyNames"] == ["lakehouse", "mine"]
    iam.delete_role_policy(RoleName=role, PolicyName="mine")
    iam.detach_role_policy(RoleName=role, PolicyArn=arn)
    iam.delete_policy(PolicyArn=arn)
