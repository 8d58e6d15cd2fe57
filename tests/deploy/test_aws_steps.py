"""Creation, repair, refusal and deletion of AWS resources on a strict moto."""

import json
import logging
from dataclasses import replace

import pytest

from lakehouse.config.deployment import DEPLOYMENT_TAG
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.deploy.aws import iam_policies
from lakehouse.deploy.planner import apply, destroy, plan, plan_destroy
from tests.support.clouds.aws import iam
from tests.support.clouds.aws.world import ACCOUNT, CANARY, REGION, VENDOR, ForeignResource

OURS = [{"Key": DEPLOYMENT_TAG, "Value": "prod"}]


pytestmark = pytest.mark.stack


def config(namespace="trading", engine="tableflow"):
    topics = {"trades": Topic(name="trades", engine=engine)}
    return Config(namespace=namespace, topics=topics, environments={})


def quiet(change):
    """Ignore a reported change."""


def actions(changes):
    return {change.resource.address: change.action for change in changes if change.resource.address.startswith("aws/")}


def test_create_all_resources_leaves_no_changes(aws):
    resources = aws.resources(config())
    expected = ["secrets", "bucket", "tableflow_bucket", "glue_database", "workgroup"]
    expected += [
        f"role/{purpose}" for purpose in ("confluent", "snowflake", "writer", "maintenance", "reader", "rotation")
    ]
    assert actions(plan(resources)) == dict.fromkeys([f"aws/{name}" for name in sorted(expected)], "create")
    assert set(aws.state()["roles"]) == set()
    apply(resources, quiet)
    assert set(actions(plan(resources)).values()) == {"no-op"}
    before = aws.state()
    aws.called.clear()
    apply(resources, quiet)
    assert aws.state() == before
    assert all(operation.startswith(("Get", "List", "Head", "Describe")) for _, operation in aws.called)


def test_plan_reports_external_changes_and_create_repairs_them(aws, direct):
    resources = aws.resources(config(engine="spark"))
    apply(resources, quiet)
    before, names = aws.state(), aws.names()
    s3, iam, role = direct("s3"), direct("iam"), names.role("writer")
    s3.delete_public_access_block(Bucket=names.bucket)
    owner = {"Rules": [{"ObjectOwnership": "ObjectWriter"}]}
    s3.put_bucket_ownership_controls(Bucket=names.bucket, OwnershipControls=owner)
    s3.delete_bucket_encryption(Bucket=names.bucket)
    s3.put_bucket_versioning(Bucket=names.bucket, VersioningConfiguration={"Status": "Suspended"})
    aws.gaps.policies[names.bucket] = '{"Version": "2012-10-17", "Statement": []}'
    s3.delete_bucket_lifecycle(Bucket=names.bucket)
    trust = iam_policies.own_trust(f"arn:aws:iam::{VENDOR}:user/confluent")
    iam.update_assume_role_policy(RoleName=role, PolicyDocument=json.dumps(trust))
    access = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}
    iam.put_role_policy(RoleName=role, PolicyName="lakehouse", PolicyDocument=json.dumps(access))
    database = {"Name": "trading", "LocationUri": "s3://elsewhere", "Description": "ours"}
    direct("glue").update_database(Name="trading", DatabaseInput=database)
    elsewhere = {
        "EnforceWorkGroupConfiguration": False,
        "ResultConfigurationUpdates": {"OutputLocation": "s3://elsewhere/"},
    }
    athena = aws.session.client("athena")
    athena.update_work_group(WorkGroup=names.workgroup, State="DISABLED", ConfigurationUpdates=elsewhere)

    assert {change.resource.address: change.reason for change in plan(resources) if change.action == "update"} == {
        "aws/bucket": "public access is not blocked; objects may belong to others than the bucket's owner; objects are "
        "not encrypted; versioning is off; its policy does not demand TLS; old versions, incomplete uploads or query "
        "results never expire",
        "aws/role/writer": "its trust policy differs; its permissions differ",
        "aws/glue_database": f"its location is 's3://elsewhere', not s3://{names.bucket}/warehouse/trading",
        "aws/workgroup": "results go to 's3://elsewhere/'; queries may choose settings of their own; it is disabled",
    }

    apply(resources, quiet)

    assert set(actions(plan(resources)).values()) == {"no-op"}
    assert aws.state() == before
    assert direct("glue").get_database(Name="trading")["Database"]["Description"] == "ours"
    configuration = athena.get_work_group(WorkGroup=names.workgroup)["WorkGroup"]["Configuration"]
    results = configuration["ResultConfiguration"]
    assert results["OutputLocation"] == f"s3://{names.bucket}/athena/"
    assert results["EncryptionConfiguration"] == {"EncryptionOption": "SSE_S3"}


def test_create_bucket_is_private(aws, direct):
    apply(aws.resources(config()), quiet)
    s3, bucket = direct("s3"), aws.names().bucket
    rules = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rules[0]["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    assert set(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values()) == {True}
    [rule] = s3.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"]["Rules"]
    assert rule["ObjectOwnership"] == "BucketOwnerEnforced"
    assert s3.get_bucket_tagging(Bucket=bucket)["TagSet"] == OURS


def test_create_bucket_requires_tls(aws):
    apply(aws.resources(config()), quiet)
    names = aws.names()
    policy = json.loads(aws.session.client("s3").get_bucket_policy(Bucket=names.bucket)["Policy"])
    everything = {"Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}
    root = f"arn:aws:iam::{ACCOUNT}:root"
    for secure, decision in {"true": "allowed", "false": "explicitDeny"}.items():
        context = {"aws:SecureTransport": secure}
        file = f"arn:aws:s3:::{names.bucket}/t"
        assert iam.decide([policy, everything], "s3:PutObject", file, context, root) == decision
    aws.write(names, "trading")
    aws.gaps.secure = False
    with pytest.raises(Exception, match="AccessDenied"):
        aws.write(names, "trading")


def test_create_roles_have_their_policies_and_trust(aws, direct):
    apply(aws.resources(config()), quiet)
    names = aws.names()
    place = iam_policies.AwsPlace(ACCOUNT, REGION, names.bucket)
    tables = iam_policies.Tables("trading", "warehouse/trading")
    tableflow = iam_policies.tableflow_tables(names.tableflow_bucket, "1111-aaaa", "env-1", "lkc-1")
    vendor = f"arn:aws:iam::{VENDOR}:user"
    spark = iam_policies.own_trust(f"arn:aws:iam::{ACCOUNT}:user/spark")
    expected = {
        "writer": (spark, iam_policies.writer_access(place, tables, names.ingestion_secrets, tableflow)),
        "rotation": (
            iam_policies.own_trust(f"arn:aws:iam::{ACCOUNT}:user/rotation"),
            iam_policies.rotation_access(place, names.secrets),
        ),
        "maintenance": (spark, iam_policies.maintenance_access(place, tables)),
        "reader": (
            spark,
            iam_policies.reader_access(place, tables, tableflow, workgroup=names.workgroup, results="athena"),
        ),
        "confluent": (
            iam_policies.confluent_trust(f"{vendor}/confluent", "chosen-by-confluent"),
            iam_policies.confluent_access(place, tableflow),
        ),
        "snowflake": (
            iam_policies.snowflake_trust(
                f"{vendor}/snowflake-volume",
                "lakehouse-prod-123456789012-volume",
                f"{vendor}/snowflake-catalog",
                "lakehouse-prod-123456789012-catalog",
            ),
            iam_policies.snowflake_access(place, tables, tableflow),
        ),
    }
    roles = {names.role(purpose): (trust, [access]) for purpose, (trust, access) in expected.items()}
    assert aws.state()["roles"] == roles


def test_create_unneeded_roles_are_omitted(aws):
    apply(aws.resources(config(engine="spark"), spark_principals=(), rotation_principals=()), quiet)
    assert set(aws.state()["roles"]) == {"lakehouse-prod-snowflake"}


def test_delete_keeps_data_until_confirmed(aws, direct):
    empty = aws.state()
    resources = aws.resources(config())
    apply(resources, quiet)
    aws.write(aws.names(), "trading")
    role = aws.names().role("reader")
    arn = direct("iam").create_policy(
        PolicyName="theirs",
        PolicyDocument=json.dumps(iam_policies.bucket_policy(iam_policies.AwsPlace(ACCOUNT, REGION, "bucket"))),
    )["Policy"]["Arn"]
    direct("iam").attach_role_policy(RoleName=role, PolicyArn=arn)
    destroy(resources, quiet, delete_data=False)
    remaining = aws.state()
    assert (sorted(remaining["buckets"]), [name for name, _ in remaining["databases"]]) == (
        sorted([aws.names().bucket, aws.names().tableflow_bucket]),
        ["trading"],
    )
    assert {**remaining, "buckets": {}, "databases": []} == empty
    apply(resources, quiet)
    destroy(resources, quiet, delete_data=True)
    assert aws.state() == empty
    assert set(actions(plan_destroy(resources, delete_data=True)).values()) == {"absent"}
    destroy(resources, quiet, delete_data=True)


def test_delete_bucket_written_meanwhile_is_emptied_again(aws, sleepless):
    resources = {resource.address: resource for resource in aws.resources(config(), clock=sleepless.clock)}
    apply([resources["aws/bucket"]], quiet)
    late = [1, 2]
    s3 = aws.strict.client("s3", region=REGION)

    def write(request):
        if request.method == "DELETE" and late:
            s3.put_object(Bucket=aws.names().bucket, Key=f"late/{late.pop()}", Body=b"rows")

    aws.on_send.append(write)
    destroy([resources["aws/bucket"]], quiet, delete_data=True)
    assert not aws.state()["buckets"]
    assert sleepless.pauses == [2, 2]


def test_delete_roles_after_removal_of_trusted_resource(aws):
    empty, all_resources = aws.state(), aws.resources(config())
    others = [resource for resource in all_resources if isinstance(resource, ForeignResource)]
    roles = [resource for resource in all_resources if resource.address.startswith("aws/role/")]
    for removed in others:
        apply([*others, *roles], quiet)
        assert {"lakehouse-prod-confluent", "lakehouse-prod-snowflake"} <= set(aws.state()["roles"])
        remaining = [replace(resource, output=None) if resource is removed else resource for resource in others]
        destroy([*remaining, *roles], quiet, delete_data=True)
        assert aws.state() == empty, f"without {removed.address}"


def test_delete_secrets_last_without_recovery_window(aws, direct):
    resources = aws.resources(config())
    apply(resources, quiet)
    changes = plan_destroy(resources, delete_data=True)
    order = [change.resource.address for change in changes if change.action == "delete"]
    assert order[-1] == "aws/secrets"
    direct("secretsmanager").delete_secret(SecretId=aws.names().snowflake_secret)
    destroy([resource for resource in resources if resource.address == "aws/secrets"], quiet, delete_data=True)
    assert aws.state()["secrets"] == []
    apply(resources, quiet)


def foreign_bucket(direct, names):
    place = {"LocationConstraint": REGION}
    direct("s3").create_bucket(Bucket=names.bucket, CreateBucketConfiguration=place)


def foreign_database(direct, names):
    direct("glue").create_database(DatabaseInput={"Name": "trading"}, Tags={DEPLOYMENT_TAG: "another"})


def foreign_workgroup(direct, names):
    tags = [{"Key": "team", "Value": "theirs"}]
    direct("athena").create_work_group(Name=names.workgroup, Configuration={}, Tags=tags)


def foreign_role(direct, names):
    trust = json.dumps(iam_policies.own_trust(f"arn:aws:iam::{ACCOUNT}:user/spark"))
    direct("iam").create_role(RoleName=names.role("reader"), AssumeRolePolicyDocument=trust)


def foreign_secret(direct, names):
    direct("secretsmanager").create_secret(Name=f"{names.confluent_secrets}/theirs", SecretString=CANARY)


@pytest.mark.parametrize("foreign", [foreign_bucket, foreign_database, foreign_workgroup, foreign_role, foreign_secret])
def test_plan_and_destroy_untagged_resource_are_refused(aws, direct, foreign):
    foreign(direct, aws.names())
    before = aws.state()
    resources = aws.resources(config())
    for act in (
        lambda: list(plan(resources)),
        lambda: destroy(resources, quiet, delete_data=True),
    ):
        with pytest.raises(
            UnclearState, match="deployment 'prod' in eu-west-1. It was left unchanged.*run `aws "
        ) as refused:
            act()
        assert CANARY not in str(refused.value)
    assert aws.state() == before


def test_apply_and_destroy_leave_second_deployment_unchanged(aws):
    first, second = aws.resources(config()), aws.resources(config("billing"), "prod2")
    apply(second, quiet)
    alone = aws.state()
    apply(first, quiet)
    assert set(actions(plan(second)).values()) == {"no-op"}
    destroy(first, quiet, delete_data=True)
    assert aws.state() == alone


def test_create_role_of_another_region_is_left_untouched(aws, direct):
    apply(aws.resources(config()), quiet)
    before = aws.state()
    direct("iam").untag_role(RoleName=aws.names().role("reader"), TagKeys=["lakehouse:region"])
    direct("iam").tag_role(
        RoleName=aws.names().role("reader"), Tags=[{"Key": "lakehouse:region", "Value": "us-east-1"}]
    )
    with pytest.raises(UnclearState, match="lakehouse:region = us-east-1.* left unchanged"):
        list(plan(aws.resources(config())))
    assert aws.state() == before


def test_deploy_output_contains_no_secrets(aws, caplog):
    caplog.set_level(logging.DEBUG)
    resources, reported = aws.resources(config()), []
    apply(resources, reported.append)
    reported += [*plan(resources), *plan_destroy(resources, delete_data=True)]
    destroy(resources, reported.append, delete_data=True)
    assert CANARY not in caplog.text
    assert CANARY not in repr(reported)


def test_create_role_missing_principal_is_reported(aws):
    nobody = f"arn:aws:iam::{ACCOUNT}:user/nobody"
    with pytest.raises(LakehouseError, match="MalformedPolicyDocument.*user/nobody") as refused:
        apply(aws.resources(config(), spark_principals=(nobody,)), quiet)
    assert "Resource: aws/role/" in refused.value.__notes__[0]
