"""What AWS refuses, and what is said about it; and what is waited for."""

from types import SimpleNamespace

import boto3
import pytest
from aws_world import REGION, world
from sleepless import Sleepless

from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.aws.service import Aws
from lakehouse.deploy.planner import create, delete, plan

pytest_plugins = ["aws_fixtures"]
pytestmark = pytest.mark.stack

CONFIG = Config(namespace="trading", topics={"trades": Topic(name="trades")}, environments={})


@pytest.fixture(scope="module")
def shared():
    with pytest.MonkeyPatch.context() as patch:
        # botocore repeats calls, and looks again, without pauses.
        for module in ("endpoint", "waiter"):
            patch.setattr(f"botocore.{module}.time", SimpleNamespace(sleep=lambda seconds: None))
        with world(patch) as it:
            yield it


@pytest.fixture
def clock():
    return Sleepless()


@pytest.fixture
def steps(aws, clock):
    return {step.name: step for step in aws.steps(CONFIG, clock=clock.clock)}


def quiet(action):
    """Nobody is told."""


def xml(code, message=""):
    return f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"


def s3_xml(code):
    return f"<Error><Code>{code}</Code><Message>refused</Message></Error>"


@pytest.mark.parametrize(
    ("step", "operation", "answer", "permissions"),
    [
        ("aws/role/writer", "CreateRole", xml("AccessDenied"), "iam:CreateRole and iam:TagRole"),
        ("aws/bucket", "PutBucketEncryption", s3_xml("AccessDenied"), "s3:PutEncryptionConfiguration"),
        ("aws/glue_database", "CreateDatabase", '{"__type": "AccessDeniedException"}', "glue:CreateDatabase and glue"),
    ],
)
def test_a_permission_that_is_missing_is_named_and_then_it_goes_on(aws, steps, step, operation, answer, permissions):
    aws.answers[operation] = [(403, answer)]
    with pytest.raises(LakehouseError, match=f"refused {operation} in region {REGION}.*Grant {permissions}") as refused:
        create([steps[step]], quiet)
    assert refused.value.__notes__[-1].startswith(f"Step: {step} ")
    create([steps[step]], quiet)
    assert {action.verb for action in plan([steps[step]])} == {"keep"}


def test_a_bucket_that_another_account_has_is_not_asked_for_twice(aws, steps):
    aws.answers["GetBucketTagging"] = [(403, s3_xml("AccessDenied"))]
    with pytest.raises(LakehouseError) as refused:
        create([steps["aws/bucket"]], quiet)
    assert "is in another account" in refused.value.__notes__[0]
    assert not aws.state()["buckets"]


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidClientTokenId"])
def test_credentials_that_are_no_longer_valid(aws, steps, code):
    aws.answers["GetRole"] = [(403, xml(code))]
    with pytest.raises(LakehouseError, match=f"{code}.*Sign in again"):
        list(plan([steps["aws/role/writer"]]))


def test_no_credentials_at_all(monkeypatch, tmp_path):
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for variable in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(variable, str(tmp_path / "none"))
    with pytest.raises(LakehouseError, match="could not be asked .Unable to locate credentials.*get-caller-identity"):
        Aws(boto3.Session(region_name=REGION), REGION).service("iam").call("get_role", RoleName="r")


def test_what_is_too_busy_is_asked_again(aws, steps):
    aws.answers["CreateDatabase"] = [(400, '{"__type": "ThrottlingException"}')] * 2
    aws.answers["CreateRole"] = [(503, xml("ServiceUnavailable"))]
    create([steps["aws/glue_database"], steps["aws/role/writer"]], quiet)
    assert not any(aws.answers.values())


def test_a_role_that_is_not_to_be_seen_yet_is_waited_for(aws, steps):
    role = steps["aws/role/writer"]
    aws.answers["GetRole"] = [(404, xml("NoSuchEntity"))] * 4
    create([role], quiet)
    assert [operation for _, operation in aws.called].count("CreateRole") == 1
    assert {action.verb for action in plan([role])} == {"keep"}


def test_a_bucket_that_is_written_to_while_it_goes_is_emptied_again(aws, steps, clock):
    create([steps["aws/bucket"], steps["aws/glue_database"]], quiet)
    late = [1, 2]
    s3 = aws.strict.client("s3", region=REGION)

    def write(request):
        if request.method == "DELETE" and late:
            s3.put_object(Bucket=aws.names().bucket, Key=f"late/{late.pop()}", Body=b"rows")

    aws.on_send.append(write)
    delete([steps["aws/bucket"]], quiet, delete_data=True)
    assert not aws.state()["buckets"]
    assert clock.pauses == [2, 2]


def test_objects_that_s3_does_not_delete_stop_it(aws, steps):
    create([steps["aws/bucket"], steps["aws/glue_database"]], quiet)
    aws.write(aws.names(), "trading")
    refused = "<Error><Key>warehouse/t/1</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    aws.answers["DeleteObjects"] = [(200, f"<DeleteResult>{refused}</DeleteResult>")]
    with pytest.raises(LakehouseError, match=r"1 of 4 versions.*'warehouse/t/1' \(AccessDenied: no\).*DeleteObjectV"):
        delete([steps["aws/bucket"]], quiet, delete_data=True)
    delete([steps["aws/bucket"]], quiet, delete_data=True)
    assert not aws.state()["buckets"]
