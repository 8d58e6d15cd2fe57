"""The steps of AWS on a strict moto: what they make, repair, refuse and take away."""

import json
import logging
from dataclasses import replace

import iam
import pytest
from aws_world import ACCOUNT, CANARY, REGION, VENDOR, Given

from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.deploy.aws import policies
from lakehouse.deploy.planner import create, delete, plan, plan_deletion
from resources.secrets_manager import TAG

OURS = [{"Key": TAG, "Value": "prod"}]


pytest_plugins = ["aws_fixtures"]
pytestmark = pytest.mark.stack


def config(namespace="trading", engine="tableflow"):
    topics = {"trades": Topic(name="trades", engine=engine)}
    return Config(namespace=namespace, topics=topics, environments={})


def quiet(action):
    """Nobody is told."""


def verbs(actions):
    return {action.step.name: action.verb for action in actions if action.step.name.startswith("aws/")}


def test_create_makes_all_of_it_and_then_nothing_is_left_to_do(aws):
    steps = aws.steps(config())
    expected = ["secrets", "bucket", "glue_database", "workgroup"]
    expected += [f"role/{purpose}" for purpose in ("writer", "maintenance", "reader", "confluent", "snowflake")]
    assert verbs(plan(steps)) == dict.fromkeys([f"aws/{name}" for name in sorted(expected)], "create")
    assert set(aws.state()["roles"]) == set()
    create(steps, quiet)
    assert set(verbs(plan(steps)).values()) == {"keep"}
    before = aws.state()
    aws.called.clear()
    create(steps, quiet)
    assert aws.state() == before
    assert all(operation.startswith(("Get", "List", "Head", "Describe")) for _, operation in aws.called)


def test_the_bucket_is_closed(aws, direct):
    create(aws.steps(config()), quiet)
    s3, bucket = direct("s3"), aws.names().bucket
    rules = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rules[0]["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    assert set(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values()) == {True}
    [rule] = s3.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"]["Rules"]
    assert rule["ObjectOwnership"] == "BucketOwnerEnforced"
    assert s3.get_bucket_tagging(Bucket=bucket)["TagSet"] == OURS


def test_the_bucket_is_reached_through_tls_only(aws):
    create(aws.steps(config()), quiet)
    names = aws.names()
    policy = json.loads(aws.session.client("s3").get_bucket_policy(Bucket=names.bucket)["Policy"])
    everything = {"Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}
    root = f"arn:aws:iam::{ACCOUNT}:root"
    for secure, decision in {"true": "allowed", "false": "explicitDeny"}.items():
        said = {"aws:SecureTransport": secure}
        file = f"arn:aws:s3:::{names.bucket}/t"
        assert iam.decide([policy, everything], "s3:PutObject", file, said, root) == decision
    aws.write(names, "trading")
    aws.gaps.secure = False
    with pytest.raises(Exception, match="AccessDenied"):
        aws.write(names, "trading")


def test_roles_may_do_what_policies_say_and_trust_whom_they_are_for(aws, direct):
    create(aws.steps(config()), quiet)
    names = aws.names()
    place = policies.Deployment(ACCOUNT, REGION, names.bucket)
    own = policies.Tables("trading", "warehouse/trading")
    tableflow = policies.tableflow_tables("1111-aaaa", "env-1", "lkc-1")
    vendor = f"arn:aws:iam::{VENDOR}:user"
    spark = policies.own_trust(f"arn:aws:iam::{ACCOUNT}:user/spark")
    expected = {
        "writer": (spark, policies.writer_access(place, own, names.confluent_secrets)),
        "maintenance": (spark, policies.maintenance_access(place, own)),
        "reader": (
            spark,
            policies.reader_access(place, own, tableflow, workgroup=names.workgroup, results="athena"),
        ),
        "confluent": (
            policies.confluent_trust(f"{vendor}/confluent", "chosen-by-confluent"),
            policies.confluent_access(place, tableflow),
        ),
        "snowflake": (
            policies.snowflake_trust(
                f"{vendor}/snowflake-volume",
                "lakehouse-prod-123456789012-volume",
                f"{vendor}/snowflake-catalog",
                "lakehouse-prod-123456789012-catalog",
            ),
            policies.snowflake_access(place, own, tableflow),
        ),
    }
    roles = {names.role(purpose): (trust, [access]) for purpose, (trust, access) in expected.items()}
    assert aws.state()["roles"] == roles


def test_roles_that_nobody_needs_are_not_made(aws):
    create(aws.steps(config(engine="spark"), spark_principals=()), quiet)
    assert set(aws.state()["roles"]) == {"lakehouse-prod-snowflake"}


def test_delete_leaves_nothing_but_data_and_then_nothing(aws, direct):
    empty = aws.state()
    steps = aws.steps(config())
    create(steps, quiet)
    aws.write(aws.names(), "trading")
    role = aws.names().role("reader")
    arn = direct("iam").create_policy(
        PolicyName="theirs",
        PolicyDocument=json.dumps(policies.bucket_policy(policies.Deployment(ACCOUNT, REGION, "bucket"))),
    )["Policy"]["Arn"]
    direct("iam").attach_role_policy(RoleName=role, PolicyArn=arn)
    delete(steps, quiet, delete_data=False)
    left = aws.state()
    assert (list(left["buckets"]), [name for name, _ in left["databases"]]) == ([aws.names().bucket], ["trading"])
    assert {**left, "buckets": {}, "databases": []} == empty
    create(steps, quiet)
    delete(steps, quiet, delete_data=True)
    assert aws.state() == empty
    assert set(verbs(plan_deletion(steps, delete_data=True)).values()) == {"absent"}
    delete(steps, quiet, delete_data=True)


def test_roles_go_though_what_they_trusted_was_removed_by_hand(aws):
    empty, all_steps = aws.state(), aws.steps(config())
    others = [step for step in all_steps if isinstance(step, Given)]
    roles = [step for step in all_steps if step.name.startswith("aws/role/")]
    for removed in others:
        create([*others, *roles], quiet)
        assert {"lakehouse-prod-confluent", "lakehouse-prod-snowflake"} <= set(aws.state()["roles"])
        left = [replace(step, thing=None) if step is removed else step for step in others]
        delete([*left, *roles], quiet, delete_data=True)
        assert aws.state() == empty, f"without {removed.name}"


def test_secrets_are_deleted_last_and_their_names_are_free_at_once(aws, direct):
    steps = aws.steps(config())
    create(steps, quiet)
    order = [action.step.name for action in plan_deletion(steps, delete_data=True) if action.verb == "delete"]
    assert order[-1] == "aws/secrets"
    direct("secretsmanager").delete_secret(SecretId=aws.names().snowflake_secret)
    delete([step for step in steps if step.name == "aws/secrets"], quiet, delete_data=True)
    assert aws.state()["secrets"] == []
    create(steps, quiet)


def foreign_bucket(direct, names):
    place = {"LocationConstraint": REGION}
    direct("s3").create_bucket(Bucket=names.bucket, CreateBucketConfiguration=place)


def foreign_database(direct, names):
    direct("glue").create_database(DatabaseInput={"Name": "trading"}, Tags={TAG: "another"})


def foreign_workgroup(direct, names):
    tags = [{"Key": "team", "Value": "theirs"}]
    direct("athena").create_work_group(Name=names.workgroup, Configuration={}, Tags=tags)


def foreign_role(direct, names):
    trust = json.dumps(policies.own_trust(f"arn:aws:iam::{ACCOUNT}:user/spark"))
    direct("iam").create_role(RoleName=names.role("reader"), AssumeRolePolicyDocument=trust)


def foreign_secret(direct, names):
    direct("secretsmanager").create_secret(Name=f"{names.confluent_secrets}/theirs", SecretString=CANARY)


@pytest.mark.parametrize("foreign", [foreign_bucket, foreign_database, foreign_workgroup, foreign_role, foreign_secret])
def test_what_has_our_name_but_not_our_tag_is_refused_and_left(aws, direct, foreign):
    foreign(direct, aws.names())
    before = aws.state()
    steps = aws.steps(config())
    for act in (
        lambda: list(plan(steps)),
        lambda: delete(steps, quiet, delete_data=True),
    ):
        with pytest.raises(UnclearState, match="not of deployment 'prod'. It was left untouched.*run `aws ") as refused:
            act()
        assert CANARY not in str(refused.value)
    assert aws.state() == before


def test_two_deployments_side_by_side_do_not_touch_each_other(aws):
    ours, theirs = aws.steps(config()), aws.steps(config("billing"), "prod2")
    create(theirs, quiet)
    alone = aws.state()
    create(ours, quiet)
    assert set(verbs(plan(theirs)).values()) == {"keep"}
    delete(ours, quiet, delete_data=True)
    assert aws.state() == alone


def test_secrets_show_nowhere(aws, caplog):
    caplog.set_level(logging.DEBUG)
    steps, told = aws.steps(config()), []
    create(steps, told.append)
    told += [*plan(steps), *plan_deletion(steps, delete_data=True)]
    delete(steps, told.append, delete_data=True)
    assert CANARY not in caplog.text
    assert CANARY not in repr(told)


def test_who_is_trusted_but_does_not_exist_is_named(aws):
    nobody = f"arn:aws:iam::{ACCOUNT}:user/nobody"
    with pytest.raises(LakehouseError, match="MalformedPolicyDocument.*user/nobody") as refused:
        create(aws.steps(config(), spark_principals=(nobody,)), quiet)
    assert "Step: aws/role/writer" in refused.value.__notes__[0]
