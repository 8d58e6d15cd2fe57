"""Each refusal of aws_proxy, through boto3; and that moto alone accepts the call, so that the refusal is needed."""

import json
import uuid
from contextlib import contextmanager

import boto3
import pytest
from aws_proxy import Strict
from botocore.config import Config
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer
from proxy import Proxy

from lakehouse.deploy.aws import policies

OURS, THEIRS = "123456789012", "211111111111"


@pytest.fixture(scope="module")
def strict():
    """The guard of a moto server of its own."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield Strict("http://{}:{}".format(*server.get_host_and_port()))
    server.stop()


@pytest.fixture(scope="module")
def aws(strict):
    """boto3's clients through the proxy, by service and, if not ours, whose access key it is."""
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
    """A user in another account: ARN and access key."""
    theirs = strict.client("iam", account=THEIRS)
    arn = theirs.create_user(UserName=name)["User"]["Arn"]
    return arn, theirs.create_access_key(UserName=name)["AccessKey"]


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
    ("document", "said"),
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
def test_a_trust_policy_that_is_none_or_trusts_nobody(aws, strict, name, document, said):
    with refused("MalformedPolicyDocument", 400, said):
        aws("iam").create_role(RoleName=name, AssumeRolePolicyDocument=document)

    strict.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=document)

    with refused("MalformedPolicyDocument", 400, said):
        aws("iam").update_assume_role_policy(RoleName=name, PolicyDocument=document)


def test_the_path_is_part_of_who_is_trusted(aws, name, vendor):
    aws("iam").create_role(RoleName=name, Path="/jobs/", AssumeRolePolicyDocument=json.dumps(ACCOUNT_TRUST))
    for right, wrong in {
        f"arn:aws:iam::{OURS}:role/jobs/{name}": f"arn:aws:iam::{OURS}:role/{name}",
        vendor[0]: f"arn:aws:iam::{THEIRS}:user/jobs/{name}",
    }.items():
        with refused("MalformedPolicyDocument", 400, "Invalid principal"):
            aws("iam").update_assume_role_policy(RoleName=name, PolicyDocument=changed(Principal={"AWS": wrong}))
        aws("iam").update_assume_role_policy(RoleName=name, PolicyDocument=changed(Principal={"AWS": right}))


def test_a_role_cannot_trust_itself_before_it_exists(aws, name):
    itself = changed(Principal={"AWS": f"arn:aws:iam::{OURS}:role/{name}"})
    with refused("MalformedPolicyDocument", 400, "Invalid principal"):
        aws("iam").create_role(RoleName=name, AssumeRolePolicyDocument=itself)

    aws("iam").create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(ACCOUNT_TRUST))
    aws("iam").update_assume_role_policy(RoleName=name, PolicyDocument=itself)

    assert aws("iam").get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"] == json.loads(itself)


def test_names_that_are_too_long(aws, strict):
    trust, access = json.dumps(ACCOUNT_TRUST), json.dumps(policies.bucket_policy(deployment()))
    with refused("ValidationError", 400, "roleName.*less than or equal to 64"):
        aws("iam").create_role(RoleName="r" * 65, AssumeRolePolicyDocument=trust)
    with refused("ValidationError", 400, "policyName.*less than or equal to 128"):
        aws("iam").create_policy(PolicyName="p" * 129, PolicyDocument=access)

    aws("iam").create_role(RoleName="r" * 64, AssumeRolePolicyDocument=trust)


def test_a_policy_that_is_attached_or_has_versions_is_not_deleted(aws, name):
    client = aws("iam")
    document = json.dumps(policies.snowflake_access(deployment(), policies.Tables("trading", "warehouse")))
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
def test_a_role_is_not_assumed_without_its_external_id(aws, strict, name, vendor, external_id):
    principal, key = vendor
    trust = policies.snowflake_trust(principal, "chosen", principal, "chosen-too")
    role = aws("iam").create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]

    with refused("AccessDenied", 403, f"{principal} is not authorized to perform: sts:AssumeRole on resource: {role}"):
        aws("sts", key).assume_role(RoleArn=role, RoleSessionName="session", **external_id)
    with refused("AccessDenied", 403, "not authorized"):
        aws("sts").assume_role(RoleArn=role, RoleSessionName="session", ExternalId="chosen")

    strict.client("sts").assume_role(RoleArn=role, RoleSessionName="session", **external_id)
    session = aws("sts", key).assume_role(RoleArn=role, RoleSessionName="session", ExternalId="chosen")["Credentials"]
    assert f":assumed-role/{name}/session" in aws("sts", session).get_caller_identity()["Arn"]


def test_a_session_is_tagged_only_where_the_trust_allows_it(aws, name, vendor):
    principal, key = vendor
    tagged = {"ExternalId": "chosen", "Tags": [{"Key": "topic", "Value": "t"}]}
    for kind, trust in {
        "confluent": policies.confluent_trust(principal, "chosen"),
        "snowflake": policies.snowflake_trust(principal, "chosen", principal, "chosen-too"),
    }.items():
        aws("iam").create_role(RoleName=f"{kind}-{name}", AssumeRolePolicyDocument=json.dumps(trust))
    arn = f"arn:aws:iam::{OURS}:role"

    aws("sts", key).assume_role(RoleArn=f"{arn}/confluent-{name}", RoleSessionName="session", **tagged)
    with refused("AccessDenied", 403, "sts:TagSession"):
        aws("sts", key).assume_role(RoleArn=f"{arn}/snowflake-{name}", RoleSessionName="session", **tagged)


def test_a_role_that_does_not_exist_is_not_assumed(aws, strict, name):
    role = f"arn:aws:iam::{OURS}:role/{name}"
    with refused("AccessDenied", 403, "not authorized"):
        aws("sts").assume_role(RoleArn=role, RoleSessionName="session")

    strict.client("sts").assume_role(RoleArn=role, RoleSessionName="session")


def test_a_trust_policy_that_the_evaluator_does_not_know_is_named(aws, name):
    trust = changed(Condition={"DateLessThan": {"aws:CurrentTime": "2026-01-01T00:00:00Z"}})
    role = aws("iam").create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"]

    with refused("NotImplemented", 501, "DateLessThan is not known"):
        aws("sts").assume_role(RoleArn=role, RoleSessionName="session")


def test_a_version_of_a_secret_is_not_overwritten(aws, strict, name):
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


def test_a_name_that_is_scheduled_for_deletion_is_taken(aws, strict, name):
    client = aws("secretsmanager")
    client.create_secret(Name=name, SecretString="first")
    client.delete_secret(SecretId=name)

    with refused("InvalidRequestException", 400, "scheduled for deletion"):
        client.create_secret(Name=name, SecretString="second")
    with pytest.raises(ClientError, match="ResourceExistsException"):
        strict.client("secretsmanager", region="eu-west-1").create_secret(Name=name, SecretString="second")

    client.delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)
    client.create_secret(Name=name, SecretString="second")


def test_a_secret_is_not_in_what_is_refused(aws, name):
    token = str(uuid.uuid4())
    client = aws("secretsmanager")
    client.create_secret(Name=name, SecretString="first", ClientRequestToken=token)
    with pytest.raises(ClientError) as raised:
        client.put_secret_value(SecretId=name, SecretString="hunter2", ClientRequestToken=token)
    assert "hunter2" not in str(raised.value.response)


def deployment():
    return policies.Deployment(OURS, "eu-west-1", "lake")
