"""What was changed in AWS behind the deployment's back: plan names it, create repairs it."""

import json

import pytest
from aws_world import VENDOR

from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.deploy.aws import policies
from lakehouse.deploy.planner import create, plan

pytest_plugins = ["aws_fixtures"]
pytestmark = pytest.mark.stack


def config():
    return Config(namespace="trading", topics={"trades": Topic(name="trades")}, environments={})


def quiet(action):
    """Nobody is told."""


def verbs(actions):
    return {action.step.name: action.verb for action in actions if action.step.name.startswith("aws/")}


def undo_versioning(direct, bucket):
    direct("s3").put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})


def undo_encryption(direct, bucket):
    rules = [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}]
    direct("s3").put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": rules})


def undo_block(direct, bucket):
    direct("s3").delete_public_access_block(Bucket=bucket)


def undo_ownership(direct, bucket):
    rules = {"Rules": [{"ObjectOwnership": "ObjectWriter"}]}
    direct("s3").put_bucket_ownership_controls(Bucket=bucket, OwnershipControls=rules)


@pytest.mark.parametrize(
    ("undo", "difference"),
    [
        (undo_versioning, "versioning is off"),
        (undo_encryption, "objects are not encrypted with S3's own keys"),
        (undo_block, "public access is not blocked"),
        (undo_ownership, "objects may belong to others than the bucket's owner"),
    ],
)
def test_what_was_changed_in_the_bucket_is_named_and_repaired(aws, direct, undo, difference):
    steps = [step for step in aws.steps(config()) if step.name == "aws/bucket"]
    create(steps, quiet)
    before = aws.state()
    undo(direct, aws.names().bucket)
    [action] = plan(steps)
    assert (action.verb, action.why) == ("change", difference)
    create(steps, quiet)
    assert verbs(plan(steps)) == {"aws/bucket": "keep"}
    assert aws.state() == before


def test_a_bucket_without_its_policy_gets_it_back(aws):
    steps = [step for step in aws.steps(config()) if step.name == "aws/bucket"]
    create(steps, quiet)
    before = aws.state()
    aws.gaps.policies[aws.names().bucket] = '{"Version": "2012-10-17", "Statement": []}'
    [action] = plan(steps)
    assert (action.verb, action.why) == ("change", "its policy is not the one that demands TLS")
    create(steps, quiet)
    assert aws.state() == before


def test_trust_and_rights_that_were_changed_are_named_and_repaired(aws, direct):
    steps = aws.steps(config())
    create(steps, quiet)
    before, role = aws.state(), aws.names().role("writer")
    trust = json.dumps(policies.own_trust(f"arn:aws:iam::{VENDOR}:user/confluent"))
    direct("iam").update_assume_role_policy(RoleName=role, PolicyDocument=trust)
    direct("iam").put_role_policy(
        RoleName=role,
        PolicyName="lakehouse",
        PolicyDocument=json.dumps(
            {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}
        ),
    )
    [action] = [action for action in plan(steps) if action.verb == "change"]
    assert action.step.name == "aws/role/writer"
    assert action.why == "it trusts others than it should; its rights are others than they should be"
    create(steps, quiet)
    assert aws.state() == before


def test_a_document_that_aws_writes_in_its_own_way_is_no_difference(aws, direct):
    steps = aws.steps(config())
    create(steps, quiet)
    role = aws.names().role("writer")
    [trust], [access] = ([each] if isinstance(each, dict) else each for each in aws.state()["roles"][role])
    trust["Statement"][0]["Principal"]["AWS"] = trust["Statement"][0]["Principal"]["AWS"][0]
    for statement in access["Statement"]:
        statement["Action"] = statement["Action"][::-1]
    direct("iam").update_assume_role_policy(RoleName=role, PolicyDocument=json.dumps(trust))
    direct("iam").put_role_policy(RoleName=role, PolicyName="lakehouse", PolicyDocument=json.dumps(access))
    assert set(verbs(plan(steps)).values()) == {"keep"}


def test_database_and_workgroup_are_repaired_too(aws, direct):
    steps = aws.steps(config())
    create(steps, quiet)
    before, names = aws.state(), aws.names()
    database = {"Name": "trading", "LocationUri": "s3://elsewhere", "Description": "ours"}
    direct("glue").update_database(Name="trading", DatabaseInput=database)
    aws.session.client("athena").update_work_group(
        WorkGroup=names.workgroup,
        State="DISABLED",
        ConfigurationUpdates={
            "EnforceWorkGroupConfiguration": False,
            "ResultConfigurationUpdates": {"OutputLocation": "s3://elsewhere/"},
        },
    )
    said = {action.step.name: action.why for action in plan(steps) if action.verb == "change"}
    location = f"s3://{names.bucket}/warehouse/trading"
    assert said == {
        "aws/glue_database": f"its location is 's3://elsewhere', not {location}",
        "aws/workgroup": "results go to 's3://elsewhere/'; queries may choose settings of their own; it is disabled",
    }
    create(steps, quiet)
    assert aws.state() == before
    assert set(verbs(plan(steps)).values()) == {"keep"}
    assert direct("glue").get_database(Name="trading")["Database"]["Description"] == "ours"
    configuration = direct("athena").get_work_group(WorkGroup=names.workgroup)["WorkGroup"]["Configuration"]
    results = configuration["ResultConfiguration"]
    assert results["OutputLocation"] == f"s3://{names.bucket}/athena/"
    assert results["EncryptionConfiguration"] == {"EncryptionOption": "SSE_S3"}


def test_policies_that_others_gave_a_role_are_named_and_left(aws, direct):
    steps = [step for step in aws.steps(config()) if step.name in ("aws/bucket", "aws/role/writer")]
    create(steps, quiet)
    role, iam = aws.names().role("writer"), direct("iam")
    document = json.dumps({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}})
    iam.put_role_policy(RoleName=role, PolicyName="mine", PolicyDocument=document)
    arn = iam.create_policy(PolicyName="wide", PolicyDocument=document)["Policy"]["Arn"]
    iam.attach_role_policy(RoleName=role, PolicyArn=arn)
    create(steps, quiet)

    [action] = [action for action in plan(steps) if action.step.name == "aws/role/writer"]

    assert action.verb == "keep"
    assert f"`aws iam delete-role-policy --role-name {role} --policy-name mine`" in action.why
    assert f"`aws iam detach-role-policy --role-name {role} --policy-arn {arn}`" in action.why
    iam.put_role_policy(RoleName=role, PolicyName="lakehouse", PolicyDocument=document)
    [action] = [action for action in plan(steps) if action.step.name == "aws/role/writer"]
    assert action.verb == "change" and "--policy-name mine" in action.why
    assert iam.list_role_policies(RoleName=role)["PolicyNames"] == ["lakehouse", "mine"]
    iam.delete_role_policy(RoleName=role, PolicyName="mine")
    iam.detach_role_policy(RoleName=role, PolicyArn=arn)
    iam.delete_policy(PolicyArn=arn)
