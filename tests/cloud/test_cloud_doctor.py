"""What is found before a deployment is made: on a strict moto, the stand-in of Confluent Cloud, a local Snowflake."""

import base64
import json
import logging
import threading
import time

import boto3
import pytest
import snowflake.connector
import uvicorn
from aws_world import ACCOUNT, REGION
from confluent_server import ADMIN
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lakehouse.config.deployment import Deployment
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.deploy.aws.actions import actions, needed
from lakehouse.deploy.credentials import Access
from lakehouse.deploy.doctor import examine
from lakehouse.deploy.planner import create, delete
from lakehouse.local.snowflake.iceberg import Lake
from lakehouse.local.snowflake.server import application

pytest_plugins = ["aws_fixtures", "confluent_fixtures"]
pytestmark = pytest.mark.stack

CONFIG = Config(namespace="trading", topics={"trades": Topic(name="trades", engine="tableflow")}, environments={})
SECRET = "/snowflake_admin_credentials"
EVERYTHING = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}


@pytest.fixture
def aws(shared, monkeypatch):
    """AWS, entered as a user of the account."""
    shared.reset()
    iam = shared.strict.client("iam")
    iam.create_user(UserName="administrator")
    key = iam.create_access_key(UserName="administrator")["AccessKey"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    shared.gaps.rights = [EVERYTHING]
    return shared


@pytest.fixture
def access(aws, vendor):
    deployment = Deployment(name="prod", account=ACCOUNT, region=REGION)
    return Access(deployment, confluent_key=ADMIN, confluent_secret=vendor.admin_secret, confluent_url=vendor.url)


def found(access):
    return {finding.subject: finding for finding in examine(access, CONFIG)}


def test_aws_and_confluent_are_entered(access):
    findings = found(access)
    assert findings["AWS region"].found == REGION
    assert findings["AWS credentials"].found == f"arn:aws:iam::{ACCOUNT}:user/administrator"
    assert findings["AWS permissions"].found == "all that a deployment needs"
    assert findings["Confluent Cloud"].found == f"the key {ADMIN} sees 0 environments"
    assert [finding.subject for finding in findings.values() if not finding.ok] == ["Snowflake"]


def test_a_permission_that_is_missing_is_named(access, aws):
    no_roles = {"Effect": "Deny", "Action": ["iam:CreateRole", "iam:TagRole"], "Resource": "*"}
    aws.gaps.rights = [EVERYTHING, {"Version": "2012-10-17", "Statement": no_roles}]
    finding = found(access)["AWS permissions"]
    assert not finding.ok
    assert "iam:CreateRole, iam:TagRole on arn:aws:iam::123456789012:role/lakehouse-prod-confluent" in finding.found
    assert finding.remedy == f"Allow these to arn:aws:iam::{ACCOUNT}:user/administrator"


def test_permissions_that_cannot_be_simulated_are_no_fault(access, aws, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    aws.gaps.rights = None
    finding = found(access)["AWS permissions"]
    assert finding.ok
    assert finding.found.startswith("could not be simulated: AWS iam does not answer")


def test_everything_that_is_called_is_among_what_is_needed(aws):
    steps = aws.steps(CONFIG)
    create(steps, lambda action: None)
    aws.write(aws.names(), "trading")
    aws.called.clear()
    delete(steps, lambda action: None, delete_data=True)
    create(steps, lambda action: None)
    wanted = {action for allowed in needed(aws.names(), "trading").values() for action in allowed}
    prefixes = {"secrets-manager": "secretsmanager"}
    called = {(prefixes.get(service, service), operation) for service, operation in aws.called}
    assert {action for service, operation in called for action in actions(service, operation)} <= wanted


def test_another_account_another_region_and_no_keys(access, aws):
    deployment = Deployment(name="prod", account="999999999999", region="xx-nowhere-1")
    findings = found(Access(deployment))
    assert [finding.subject for finding in findings.values() if finding.ok] == []
    assert findings["AWS region"].found == "xx-nowhere-1 has no s3, glue, athena, secretsmanager"
    assert "the deployment is of account 999999999999" in findings["AWS credentials"].found
    assert findings["Confluent Cloud"].found == "no Cloud API key was given"


def test_a_wrong_key_of_confluent_is_told_without_its_secret(access):
    wrong = Access(
        access.deployment, confluent_key=ADMIN, confluent_secret="hunter2", confluent_url=access.confluent_url
    )
    finding = found(wrong)["Confluent Cloud"]
    assert not finding.ok
    assert ADMIN in finding.found
    assert "hunter2" not in repr(finding)


def test_no_aws_at_all(access, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    findings = found(access)
    assert "AWS sts does not answer" in findings["AWS credentials"].found


@pytest.fixture
def account(tmp_path, aws, monkeypatch):
    """A Snowflake account on this machine; its administrator's key is in the secret."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    lake = Lake.from_environment(
        dict(AWS_ENDPOINT_URL="http://127.0.0.1:1", AWS_REGION=REGION, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
    )
    app = application(account="LOCAL", admin_password="hunter2", lake=lake, folder=tmp_path / "data")
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.05)
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


def test_snowflake_is_entered_as_the_administrator(access, account, caplog):
    caplog.set_level(logging.DEBUG)
    finding = found(access)["Snowflake"]
    access.administrator.close()
    assert finding.ok, finding
    assert finding.found == "administrator ADMIN with role ACCOUNTADMIN in account LOCAL"
    assert account.splitlines()[1] not in caplog.text
