"""Findings before a deployment, on a strict moto, the simulated Confluent Cloud and a local Snowflake."""

import base64
import json
import logging
import threading
from dataclasses import replace
from fnmatch import fnmatchcase

import boto3
import pytest
import snowflake.connector
import uvicorn
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lakehouse.config.deployment import Deployment, ExistingObjects, OpenCatalog, TableflowStorage
from lakehouse.config.model import Config, Topic
from lakehouse.core.polling import poll
from lakehouse.deploy.aws import iam_policies
from lakehouse.deploy.aws.iam_actions import actions, needed
from lakehouse.deploy.cloud_doctor import examine
from lakehouse.deploy.credentials import CloudCredentials
from lakehouse.deploy.planner import apply, destroy
from lakehouse.local.snowflake.account import Account
from lakehouse.local.snowflake.iceberg import Lake
from lakehouse.local.snowflake.server import application
from tests.support.clouds.aws.world import ACCOUNT, REGION
from tests.support.clouds.confluent.server import ADMIN

pytestmark = pytest.mark.stack

CONFIG = Config(namespace="trading", topics={"trades": Topic(name="trades", engine="tableflow")}, environments={})
ROLES = ("confluent", "snowflake", "writer", "maintenance", "reader", "rotation")
PRINCIPAL = f"arn:aws:iam::{ACCOUNT}:role/programs"
MANAGED = TableflowStorage(storage="confluent")
OPEN = OpenCatalog(endpoint="https://catalog.example", warehouse="lake", secret="/catalogs/open")
IN_CLUSTER = ExistingObjects(confluent_environment="env-7", confluent_cluster="lkc-7")
SECRET = "/snowflake_admin_credentials"
EVERYTHING = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}


@pytest.fixture
def aws(shared, monkeypatch):
    """AWS with the credentials of a user of the account."""
    shared.reset()
    iam = shared.strict.client("iam")
    iam.create_user(UserName="administrator")
    key = iam.create_access_key(UserName="administrator")["AccessKey"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    shared.gaps.rights = [EVERYTHING]
    return shared


@pytest.fixture
def credentials(aws, vendor):
    deployment = Deployment(name="prod", account=ACCOUNT, region=REGION)
    return CloudCredentials(
        deployment, confluent_key=ADMIN, confluent_secret=vendor.admin_secret, confluent_url=vendor.url
    )


def findings_of(credentials):
    return {finding.subject: finding for finding in examine(credentials, CONFIG)}


def test_examine_valid_credentials_pass(credentials):
    findings = findings_of(credentials)
    assert findings["AWS region"].observation == REGION
    assert findings["AWS credentials"].observation == f"arn:aws:iam::{ACCOUNT}:user/administrator"
    assert findings["AWS permissions"].observation == "all that a deployment needs"
    assert (
        findings["Confluent Cloud"].observation
        == f"the key {ADMIN} has access to 0 environments; the roles of its account are not checked"
    )
    assert [finding.subject for finding in findings.values() if not finding.ok] == ["Snowflake"]


def test_examine_missing_permission_is_reported(credentials, aws):
    no_roles = {"Effect": "Deny", "Action": ["iam:CreateRole", "iam:TagRole"], "Resource": "*"}
    aws.gaps.rights = [EVERYTHING, {"Version": "2012-10-17", "Statement": no_roles}]
    finding = findings_of(credentials)["AWS permissions"]
    assert not finding.ok
    assert (
        "iam:CreateRole, iam:TagRole on arn:aws:iam::123456789012:role/lakehouse-prod-confluent" in finding.observation
    )
    assert finding.remedy == f"Allow these to arn:aws:iam::{ACCOUNT}:user/administrator"


def test_examine_missing_permission_to_find_tables_is_reported(credentials, aws):
    no_tables = {"Effect": "Deny", "Action": ["glue:GetTable"], "Resource": "*"}
    aws.gaps.rights = [EVERYTHING, {"Version": "2012-10-17", "Statement": no_tables}]
    finding = findings_of(credentials)["AWS permissions"]
    assert not finding.ok
    assert f"glue:GetTable on arn:aws:glue:{REGION}:{ACCOUNT}:table/trading/*" in finding.observation


def test_examine_existing_objects_need_only_be_read(credentials, aws):
    existing = ExistingObjects(bucket="theirs", tableflow_bucket="theirs-too", glue_database="trading")
    changes = {
        "Effect": "Deny",
        "Action": ["s3:Create*", "s3:Delete*", "s3:Put*", "glue:Create*", "glue:Update*", "glue:Delete*"],
        "Resource": "*",
    }
    aws.gaps.rights = [EVERYTHING, {"Version": "2012-10-17", "Statement": changes}]
    deployment = credentials.deployment.model_copy(update={"existing": existing})
    finding = findings_of(replace(credentials, deployment=deployment))["AWS permissions"]
    assert finding.ok, finding.observation


@pytest.mark.parametrize(
    ("denied", "declared", "is_needed"),
    [
        ("arn:aws:iam::*:role/lakehouse-prod-writer", {}, False),
        ("arn:aws:iam::*:role/lakehouse-prod-writer", {"spark_principals": (PRINCIPAL,)}, True),
        ("arn:aws:iam::*:role/lakehouse-prod-rotation", {"spark_principals": (PRINCIPAL,)}, False),
        ("arn:aws:iam::*:role/lakehouse-prod-rotation", {"rotation_principals": (PRINCIPAL,)}, True),
        ("arn:aws:iam::*:role/lakehouse-prod-snowflake", {}, True),
        ("arn:aws:iam::*:role/lakehouse-prod-confluent", {}, True),
        ("arn:aws:iam::*:role/lakehouse-prod-confluent", {"tableflow": MANAGED}, False),
        ("arn:aws:s3:::tableflow-*", {}, True),
        ("arn:aws:s3:::tableflow-*", {"tableflow": MANAGED}, False),
        ("arn:aws:glue:*:*:table/lkc-*/*", {}, True),
        ("arn:aws:glue:*:*:table/lkc-*/*", {"tableflow": MANAGED}, False),
        ("arn:aws:glue:*:*:table/lkc-7/*", {"existing": IN_CLUSTER}, True),
        ("arn:aws:glue:*:*:table/lkc-8/*", {"existing": IN_CLUSTER}, False),
        ("arn:aws:secretsmanager:*:*:secret:/catalogs/open-*", {}, False),
        (
            "arn:aws:secretsmanager:*:*:secret:/catalogs/open-*",
            {"tableflow": TableflowStorage(open_catalog=OPEN)},
            True,
        ),
    ],
)
def test_examine_permissions_are_those_of_declared_resources(credentials, aws, denied, declared, is_needed):
    deny = {"Effect": "Deny", "Action": "*", "Resource": denied}
    aws.gaps.rights = [EVERYTHING, {"Version": "2012-10-17", "Statement": deny}]
    deployment = credentials.deployment.model_copy(update=declared)
    finding = findings_of(replace(credentials, deployment=deployment))["AWS permissions"]
    assert finding.ok is not is_needed, finding.observation


def test_examine_permissions_not_simulated_pass(credentials, aws, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    aws.gaps.rights = None
    finding = findings_of(credentials)["AWS permissions"]
    assert finding.ok
    assert finding.observation.startswith("could not be simulated: AWS iam does not answer")


def test_required_permissions_cover_all_calls(aws):
    resources = aws.resources(CONFIG)
    apply(resources, lambda change: None)
    aws.write(aws.names(), "trading")
    aws.called.clear()
    destroy(resources, lambda change: None, delete_data=True)
    apply(resources, lambda change: None)
    wanted = {action for allowed in needed(aws.names(), "trading", ROLES, True).values() for action in allowed}
    prefixes = {"secrets-manager": "secretsmanager"}
    called = {(prefixes.get(service, service), operation) for service, operation in aws.called}
    assert {action for service, operation in called for action in actions(service, operation)} <= wanted


def test_required_permissions_cover_all_calls_on_existing_objects(aws):
    existing = ExistingObjects(bucket="theirs", tableflow_bucket="theirs-too", glue_database="trading")
    names = aws.names(existing=existing)
    for bucket in (names.bucket, names.tableflow_bucket):
        aws.strict.client("s3", region=REGION).create_bucket(
            Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": names.region}
        )
    aws.strict.client("glue", region=REGION).create_database(
        DatabaseInput={"Name": "trading", "LocationUri": "s3://theirs/warehouse/trading"}
    )
    apply(aws.resources(CONFIG, existing=existing), lambda change: None)
    wanted = {action for allowed in needed(names, "trading", ROLES, True).values() for action in allowed}
    called = {action for service, operation in aws.called for action in actions(service, operation)}
    assert {action for action in called if action.startswith(("s3:", "glue:"))} <= wanted


def test_required_permissions_cover_all_secrets_and_their_calls(aws):
    """The calls of `lakehouse deploy rotate`, which `create --day-count` makes as the administrator."""
    names, at = aws.names(), f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:"
    allowed = needed(names, "trading", ROLES, True)
    [rotation] = iam_policies.rotation_access(iam_policies.AwsPlace(ACCOUNT, REGION, "lake"), names.secrets)[
        "Statement"
    ]
    for name in names.secrets:
        granted = {action for arn, of in allowed.items() if fnmatchcase(f"{at}{name}-AbCdEf", arn) for action in of}
        assert set(rotation["Action"]) <= granted, name


def test_examine_other_account_region_and_no_keys_fail(credentials, aws):
    deployment = Deployment(name="prod", account="999999999999", region="xx-nowhere-1")
    findings = findings_of(CloudCredentials(deployment))
    assert [finding.subject for finding in findings.values() if finding.ok] == []
    assert findings["AWS region"].observation == "xx-nowhere-1 has no s3, glue, athena, secretsmanager"
    assert "the deployment is of account 999999999999" in findings["AWS credentials"].observation
    assert findings["Confluent Cloud"].observation == "no Cloud API key was given"


def test_examine_wrong_confluent_key_hides_secret(credentials):
    wrong = CloudCredentials(
        credentials.deployment, confluent_key=ADMIN, confluent_secret="hunter2", confluent_url=credentials.confluent_url
    )
    finding = findings_of(wrong)["Confluent Cloud"]
    assert not finding.ok
    assert ADMIN in finding.observation
    assert "hunter2" not in repr(finding)


def test_examine_without_aws_credentials_fails(credentials, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    findings = findings_of(credentials)
    assert "AWS sts does not answer" in findings["AWS credentials"].observation


def test_examine_missing_aws_profile_is_one_failure_of_aws(credentials, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "missing")
    findings = examine(credentials, CONFIG)
    [aws] = [finding for finding in findings if finding.subject.startswith("AWS")]
    assert not aws.ok
    assert "profile (missing) could not be found" in aws.observation
    others = {finding.subject: finding.ok for finding in findings if finding is not aws}
    assert others == {"Confluent Cloud": True, "Snowflake": False}, "the secret of Snowflake's administrator is in AWS"


@pytest.fixture
def account(tmp_path, aws, monkeypatch):
    """A local Snowflake account, with the administrator's key in the secret."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    lake = Lake.from_environment(
        dict(AWS_ENDPOINT_URL="http://127.0.0.1:1", AWS_REGION=REGION, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
    )
    app = application(account=Account("LOCAL"), admin_password="hunter2", lake=lake, folder=tmp_path / "data")
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert poll(lambda: server.started, pause=0.05, deadline_seconds=30)
    port = server.servers[0].sockets[0].getsockname()[1]
    for variable, value in {"HOST": "127.0.0.1", "PORT": str(port), "PROTOCOL": "http"}.items():
        monkeypatch.setenv(f"SNOWFLAKE_{variable}", value)
    with snowflake.connector.connect(
        account="LOCAL",
        host="127.0.0.1",
        port=port,
        protocol="http",
        user="ADMIN",
        password="hunter2",
        platform_detection_timeout_seconds=0,
    ) as session:
        public = key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        session.cursor().execute(f"ALTER USER ADMIN SET RSA_PUBLIC_KEY = '{base64.b64encode(public).decode()}'")
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    value = {
        "snowflake_account_identifier": "LOCAL",
        "admin_service_user": "ADMIN",
        "active_key_number": "1",
        "snowflake_rsa_private_key_1_pem": base64.b64encode(pem).decode(),
    }
    boto3.client("secretsmanager", region_name=REGION).create_secret(Name=SECRET, SecretString=json.dumps(value))
    yield pem.decode()
    server.should_exit = True
    thread.join(10)


def test_examine_snowflake_logs_in_as_administrator(credentials, account, caplog):
    caplog.set_level(logging.DEBUG)
    finding = findings_of(credentials)["Snowflake"]
    credentials.snowflake.close()
    assert finding.ok, finding
    assert finding.observation == "administrator ADMIN with role ACCOUNTADMIN in account LOCAL"
    assert account.splitlines()[1] not in caplog.text
