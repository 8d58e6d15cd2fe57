"""Refusals of the AWS proxy through boto3, each compared with moto, which accepts the call."""

import json
import uuid
from contextlib import contextmanager

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

from lakehouse.deploy.aws import iam_policies
from tests.support.clouds.aws.proxy import Strict
from tests.support.servers.proxy import Proxy

OURS, THEIRS = "123456789012", "211111111111"


@pytest.fixture(scope="module")
def strict():
    """A guard in front of a separate moto server."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield Strict("http://{}:{}".format(*server.get_host_and_port()))
    server.stop()


@pytest.fixture(scope="module")
def aws(strict):
    """A function that returns boto3 clients through the proxy, by service and access key."""
    session = boto3.session.Session()
    with Proxy(strict.address, guard=strict) as proxy:

        def client(service, key=None):
            key = key or {"AccessKeyId": "ours", "SecretAccessKey": "secret"}
            return session.client(
                service,
                endpoint_url=proxy.address,
                region_name="eu-west-1",
                aws_access_key_id=key["AccessKeyId"],
                aws_secret_access_key=key["SecretAccessKey"],
                aws_session_token=key.get("SessionToken"),
                config=Config(proxies={}, retries={"total_max_attempts": 1}),
            )

        yield client


@pytest.fixture
def name():
    return f"n-{uuid.uuid4()}"


@pytest.fixture
def vendor(strict, name):
    """The ARN and access key of a user in another account."""
    iam = strict.client("iam", account=THEIRS)
    arn = iam.create_user(UserName=name)["User"]["Arn"]
    return arn, iam.create_access_key(UserName=name)["AccessKey"]


@contextmanager
def refused(code, status, match):
    with pytest.raises(ClientError, match=match) as raised:
        yield
    assert raised.value.response["Error"]["Code"] == code
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


ACCOUNT_TRUST = {
    "Version": "2012-10-17",
    "Statement": {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{OURS}:root"}, "Action": "sts:AssumeRole"},
}


def changed(**elements):
    statement = {**ACCOUNT_TRUST["Statement"], **elements}
    return json.dumps({**ACCOUNT_TRUST, "Statement": {key: value for key, value in statement.items() if value}})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "invalid Json"),
        ("[]", "Syntax errors"),
        ('{"Version": "2012-10-17"}', "Syntax errors"),
        (changed(Effect="Permit"), "Syntax errors"),
        (changed(Principal=None), "Missing required field Principal"),
        (changed(Action=None), "Missing required field Action"),
        (changed(Resource="*"), "prohibited field Resource"),
        (changed(Action="s3:GetObject"), "STS AssumeRole actions"),
        (changed(Principal={"AWS": "somebody"}), "Invalid principal"),
        (changed(Principal={"AWS": f"arn:aws:iam::{OURS}:role/nobody"}), "Invalid principal.*role/nobody"),
        (changed(Principal={"AWS": [f"arn:aws:iam::{THEIRS}:user/nobody"]}), "Invalid principal.*user/nobody"),
    ],
)
def test_create_role_invalid_trust_policy_is_refused(aws, strict, name, document, message):
    with refused("MalformedPolicyDocument", 400, message):
        aws("iam").create_role(RoleName=name, AssumeRolePolicyDocument=document)

    strict.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=document)

    with refused("MalformedPolicyDocument", 400, message):
        aws("iam").update_assume_role_policy(RoleName=name, PolicyDocument=document)


def test_trust_policy_principal_without_path_is_refused(aws, name, vendor):
    aws("iam").create_role(RoleName=name, Path="/jobs/", AssumeRolePolicyDocument=json.dumps(ACCOUNT_TRUST))
    for right, wrong in {
        f"arn:aws:iam::{OURS}:role/jobs/{name}": f"arn:aws:iam::{OURS}:role/{name}",
        vendor[0]: f"arn:aws:iam::{THEIRS}:user/jobs/{name}",
    }.items():
        with refused("MalformedPolicyDocument", 400, "Invalid principal"):
            aws("iam").update_assume_role_policy(RoleName=name, PolicyDocument=changed(Principal={"AWS": wrong}))
        aws("iam").update_assume_role_policy(RoleName=name, PolicyDocument=changed(Principal={"AWS": right}))


def test_create_role_trusting_itself_is_refused(aws, name):
    itself = changed(Principal={"AWS": f"arn:aws:iam::{OURS}:role/{name}"})
    with refused("MalformedPolicyDocument", 400, "Invalid principal"):
        aws("iam").create_role(RoleName=name, AssumeRolePolicyDocument=itself)

    aws("iam").create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(ACCOUNT_TRUST))
    aws("iam").update_assume_role_policy(RoleName=name, PolicyDocument=itself)

    assert aws("iam").get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"] == json.loads(itself)


def test_create_name_too_long_is_refused(aws, strict):
    trust, access = json.dumps(ACCOUNT_TRUST), json.dumps(iam_policies.bucket_policy(deployment()))
    with refused("ValidationError", 400, "roleName.*less than or equal to 64"):
        aws("iam").create_role(RoleName="r" * 65, AssumeRolePolicyDocument=trust)
    with refused("ValidationError", 400, "policyName.*less than or equal to 128"):
        aws("iam").create_policy(PolicyName="p" * 129, PolicyDocument=access)

    aws("iam").create_role(RoleName="r" * 64, AssumeRolePolicyDocument=trust)


def test_delete_policy_attached_or_versioned_is_refused(aws, name):
    client = aws("iam")
    document = json.dumps(iam_policies.snowflake_access(deployment(), iam_policies.Tables("trading", "warehouse")))
    client.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(ACCOUNT_TRUST))
    arn = client.create_policy(PolicyName=name, PolicyDocument=document)["Policy"]["Arn"]
    client.create_policy_version(PolicyArn=arn, PolicyDocument=document)
    client.attach_role_policy(RoleName=name, PolicyArn=arn)

    with refused("DeleteConflict", 409, "attached to entities"):
        client.delete_policy(PolicyArn=arn)
    client.detach_role_policy(RoleName=name, PolicyArn=arn)
    with refused("DeleteConflict", 409, "more than one version"):
        client.delete_policy(PolicyArn=arn)
    client.delete_policy_version(PolicyArn=arn, VersionId="v2")
    client.delete_policy(PolicyArn=arn)

    with pytest.raises(client.exceptions.NoSuchEntityException):
        client.delete_policy(PolicyArn=arn)


@pytest.mark.parametrize("external_id", [{}, {"ExternalId": "another"}, {"ExternalId": "CHOSEN"}])
def test_assume_role_without_external_id_is_refused(aws, strict, name, vendor, external_id):
    principal, key = vendor
    trust = iam_policies.snowflake_trust(principal, "chosen", principal, "chosen-too")
    role = aws("iam").create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]

    with refused("AccessDenied", 403, f"{principal} is not authorized to perform: sts:AssumeRole on resource: {role}"):
        aws("sts", key).assume_role(RoleArn=role, RoleSessionName="session", **external_id)
    with refused("AccessDenied", 403, "not authorized"):
        aws("sts").assume_role(RoleArn=role, RoleSessionName="session", ExternalId="chosen")

    strict.client("sts").assume_role(RoleArn=role, RoleSessionName="session", **external_id)
    session = aws("sts", key).assume_role(RoleArn=role, RoleSessionName="session", ExternalId="chosen")["Credentials"]
    assert f":assumed-role/{name}/session" in aws("sts", session).get_caller_identity()["Arn"]


def test_assume_role_tags_without_trust_are_refused(aws, name, vendor):
    principal, key = vendor
    tagged = {"ExternalId": "chosen", "Tags": [{"Key": "topic", "Value": "t"}]}
    for kind, trust in {
        "confluent": iam_policies.confluent_trust(principal, "chosen"),
        "snowflake": iam_policies.snowflake_trust(principal, "chosen", principal, "chosen-too"),
    }.items():
        aws("iam").create_role(RoleName=f"{kind}-{name}", AssumeRolePolicyDocument=json.dumps(trust))
    arn = f"arn:aws:iam::{OURS}:role"

    aws("sts", key).assume_role(RoleArn=f"{arn}/confluent-{name}", RoleSessionName="session", **tagged)
    with refused("AccessDenied", 403, "sts:TagSession"):
        aws("sts", key).assume_role(RoleArn=f"{arn}/snowflake-{name}", RoleSessionName="session", **tagged)


def test_assume_role_missing_role_is_refused(aws, strict, name):
    role = f"arn:aws:iam::{OURS}:role/{name}"
    with refused("AccessDenied", 403, "not authorized"):
        aws("sts").assume_role(RoleArn=role, RoleSessionName="session")

    strict.client("sts").assume_role(RoleArn=role, RoleSessionName="session")


def test_assume_role_unknown_condition_raises(aws, name):
    trust = changed(Condition={"DateLessThan": {"aws:CurrentTime": "2026-01-01T00:00:00Z"}})
    role = aws("iam").create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"]

    with refused("NotImplemented", 501, "DateLessThan is not known"):
        aws("sts").assume_role(RoleArn=role, RoleSessionName="session")


def test_put_secret_value_existing_version_is_refused(aws, strict, name):
    token = str(uuid.uuid4())
    pending = {"SecretId": name, "ClientRequestToken": token, "VersionStages": ["AWSPENDING"]}
    client = aws("secretsmanager")
    client.create_secret(Name=name, SecretString="first")
    client.put_secret_value(SecretString="second", **pending)
    client.put_secret_value(SecretString="second", **pending)

    with refused("ResourceExistsException", 400, "already in use for a version"):
        client.put_secret_value(SecretString="third", **pending)

    assert client.get_secret_value(SecretId=name, VersionId=token)["SecretString"] == "second"
    assert client.get_secret_value(SecretId=name)["SecretString"] == "first"
    strict.client("secretsmanager", region="eu-west-1").put_secret_value(SecretString="third", **pending)


def test_create_secret_scheduled_for_deletion_is_refused(aws, strict, name):
    client = aws("secretsmanager")
    client.create_secret(Name=name, SecretString="first")
    client.delete_secret(SecretId=name)

    with refused("InvalidRequestException", 400, "scheduled for deletion"):
        client.create_secret(Name=name, SecretString="second")
    with pytest.raises(ClientError, match="ResourceExistsException"):
        strict.client("secretsmanager", region="eu-west-1").create_secret(Name=name, SecretString="second")

    client.delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)
    client.create_secret(Name=name, SecretString="second")


def test_put_secret_value_refusal_has_no_secret(aws, name):
    token = str(uuid.uuid4())
    client = aws("secretsmanager")
    client.create_secret(Name=name, SecretString="first", ClientRequestToken=token)
    with pytest.raises(ClientError) as raised:
        client.put_secret_value(SecretId=name, SecretString="hunter2", ClientRequestToken=token)
    assert "hunter2" not in str(raised.value.response)


def deployment():
    return iam_policies.AwsPlace(OURS, "eu-west-1", "lake")
