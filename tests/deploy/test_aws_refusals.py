"""Errors for refusals of AWS, and waiting for delayed changes."""

from types import SimpleNamespace

import boto3
import pytest

from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.aws.aws_service import Aws
from lakehouse.deploy.planner import apply, destroy, plan
from lakehouse.deploy.waiting import TimedOut
from resources.confluent.api_client import ConfluentError
from tests.support.clouds.aws.world import REGION, world
from tests.support.sleepless import Sleepless

pytestmark = pytest.mark.stack

CONFIG = Config(namespace="trading", topics={"trades": Topic(name="trades")}, environments={})


@pytest.fixture(scope="module")
def shared():
    with pytest.MonkeyPatch.context() as patch:
        # botocore repeats calls and polls without pauses.
        for module in ("endpoint", "waiter"):
            patch.setattr(f"botocore.{module}.time", SimpleNamespace(sleep=lambda seconds: None))
        with world(patch) as running:
            yield running


@pytest.fixture
def clock():
    return Sleepless()


@pytest.fixture
def resources(aws, clock):
    return {resource.address: resource for resource in aws.resources(CONFIG, clock=clock.clock)}


def quiet(change):
    """Ignore a reported change."""


def xml(code, message=""):
    return f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"


def s3_xml(code):
    return f"<Error><Code>{code}</Code><Message>refused</Message></Error>"


@pytest.mark.parametrize(
    ("resource", "operation", "response", "permissions"),
    [
        ("aws/role/writer", "CreateRole", xml("AccessDenied"), "iam:CreateRole and iam:TagRole"),
        ("aws/bucket", "PutBucketEncryption", s3_xml("AccessDenied"), "s3:PutEncryptionConfiguration"),
        ("aws/glue_database", "CreateDatabase", '{"__type": "AccessDeniedException"}', "glue:CreateDatabase and glue"),
    ],
)
def test_apply_missing_permission_is_reported_and_resumed(aws, resources, resource, operation, response, permissions):
    aws.responses[operation] = [(403, response)]
    with pytest.raises(LakehouseError, match=f"refused {operation} in region {REGION}.*Grant {permissions}") as refused:
        apply([resources[resource]], quiet)
    assert refused.value.__notes__[-1].startswith(f"Resource: {resource} ")
    apply([resources[resource]], quiet)
    assert {change.action for change in plan([resources[resource]])} == {"no-op"}


def test_apply_bucket_of_other_account_stops_at_once(aws, resources):
    aws.responses["GetBucketTagging"] = [(403, s3_xml("AccessDenied"))]
    with pytest.raises(LakehouseError) as refused:
        apply([resources["aws/bucket"]], quiet)
    assert "is in another account" in refused.value.__notes__[0]
    assert not aws.state()["buckets"]


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidClientTokenId"])
def test_plan_expired_credentials_stop(aws, resources, code):
    aws.responses["GetRole"] = [(403, xml(code))]
    with pytest.raises(LakehouseError, match=f"{code}.*Sign in again"):
        list(plan([resources["aws/role/writer"]]))


def test_call_without_credentials_stops(monkeypatch, tmp_path):
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for variable in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(variable, str(tmp_path / "none"))
    with pytest.raises(LakehouseError, match="cannot be called .Unable to locate credentials.*get-caller-identity"):
        Aws(boto3.Session(region_name=REGION), REGION).service("iam").call("get_role", RoleName="r")


def test_apply_throttled_call_is_repeated(aws, resources):
    aws.responses["CreateDatabase"] = [(400, '{"__type": "ThrottlingException"}')] * 2
    aws.responses["CreateRole"] = [(503, xml("ServiceUnavailable"))]
    apply([resources["aws/glue_database"], resources["aws/role/writer"]], quiet)
    assert not any(aws.responses.values())


def test_apply_role_not_visible_yet_waits(aws, resources):
    role = resources["aws/role/writer"]
    aws.responses["GetRole"] = [(404, xml("NoSuchEntity"))] * 4
    apply([role], quiet)
    assert [operation for _, operation in aws.called].count("CreateRole") == 1
    assert {change.action for change in plan([role])} == {"no-op"}


def test_destroy_bucket_written_until_deadline_times_out(aws, resources):
    apply([resources["aws/bucket"], resources["aws/glue_database"]], quiet)
    s3 = aws.strict.client("s3", region=REGION)

    def write(request):
        if request.method == "DELETE":
            s3.put_object(Bucket=aws.names().bucket, Key="late", Body=b"rows")

    aws.on_send.append(write)
    with pytest.raises(TimedOut, match="is not deleted after 120 seconds; last state: .*Run the command") as late:
        destroy([resources["aws/bucket"]], quiet, delete_data=True)
    assert not isinstance(late.value, ConfluentError)
    aws.on_send.clear()
    destroy([resources["aws/bucket"]], quiet, delete_data=True)
    assert not aws.state()["buckets"]


def test_destroy_objects_not_deleted_stops(aws, resources):
    apply([resources["aws/bucket"], resources["aws/glue_database"]], quiet)
    aws.write(aws.names(), "trading")
    refused = "<Error><Key>warehouse/t/1</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    aws.responses["DeleteObjects"] = [(200, f"<DeleteResult>{refused}</DeleteResult>")]
    with pytest.raises(LakehouseError, match=r"1 of 4 versions.*'warehouse/t/1' \(AccessDenied: no\).*DeleteObjectV"):
        destroy([resources["aws/bucket"]], quiet, delete_data=True)
    destroy([resources["aws/bucket"]], quiet, delete_data=True)
    assert not aws.state()["buckets"]
