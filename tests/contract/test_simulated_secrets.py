"""Secrets Manager in memory, of the simulation of the cloud set-up, behaves as moto does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from resources.aws.secrets_manager import CURRENT, PENDING, PREVIOUS
from tests.simulation.choices import Choices
from tests.simulation.deployment.clouds import CloudWorld
from tests.simulation.deployment.secrets_manager import MemorySecrets, MemorySecretsClient

NAME = "/lakehouse/contract"


@pytest.fixture(params=["memory", "moto"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of an account with one secret."""
    for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SECRETS_MANAGER", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    with mock_aws():
        if request.param == "memory":
            client: Any = MemorySecretsClient(CloudWorld(Choices(None)), MemorySecrets())
        else:
            client = boto3.client("secretsmanager", region_name="eu-west-1")
        client.create_secret(Name=NAME, SecretString='{"n": "1"}', Description="", Tags=[{"Key": "k", "Value": "v"}])
        yield client


def put(client: Any, text: str, label: str) -> str:
    version_id: str = client.put_secret_value(SecretId=NAME, SecretString=text, VersionStages=[label])["VersionId"]
    return version_id


def read(client: Any, label: str) -> str:
    text: str = client.get_secret_value(SecretId=NAME, VersionStage=label)["SecretString"]
    return text


def move(client: Any, label: str, to: str, off: str) -> None:
    client.update_secret_version_stage(SecretId=NAME, VersionStage=label, MoveToVersionId=to, RemoveFromVersionId=off)


def test_move_of_current_label_leaves_previous_behind(client: Any):
    first = client.get_secret_value(SecretId=NAME)["VersionId"]
    second = put(client, '{"n": "2"}', PENDING)
    assert (read(client, CURRENT), read(client, PENDING)) == ('{"n": "1"}', '{"n": "2"}')
    move(client, CURRENT, second, first)
    assert (read(client, CURRENT), read(client, PREVIOUS)) == ('{"n": "2"}', '{"n": "1"}')
    assert read(client, PENDING) == '{"n": "2"}', "the label stays on the version that became current"


@pytest.mark.parametrize("label", [CURRENT, PENDING])
def test_move_of_label_that_another_moved_is_refused(client: Any, label: str):
    holder = client.get_secret_value(SecretId=NAME)["VersionId"] if label == CURRENT else put(client, "{}", PENDING)
    second, third = put(client, '{"n": "2"}', "one"), put(client, '{"n": "3"}', "two")
    move(client, label, second, holder)
    with pytest.raises(client.exceptions.InvalidParameterException):
        move(client, label, third, holder)
    assert read(client, label) == '{"n": "2"}'


def test_written_version_takes_its_label_from_the_older_one(client: Any):
    first, second = put(client, '{"n": "2"}', PENDING), put(client, '{"n": "3"}', PENDING)
    assert read(client, PENDING) == '{"n": "3"}'
    ids = {
        version["VersionId"]
        for version in client.list_secret_version_ids(SecretId=NAME, IncludeDeprecated=True)["Versions"]
    }
    assert {first, second} <= ids
    assert client.get_secret_value(SecretId=NAME, VersionId=first)["SecretString"] == '{"n": "2"}'


def test_deleted_secret_refuses_requests_until_restored(client: Any):
    client.delete_secret(SecretId=NAME, RecoveryWindowInDays=7)
    assert "DeletedDate" in client.describe_secret(SecretId=NAME)
    with pytest.raises(client.exceptions.InvalidRequestException):
        read(client, CURRENT)
    client.restore_secret(SecretId=NAME)
    assert read(client, CURRENT) == '{"n": "1"}'
    assert "DeletedDate" not in client.describe_secret(SecretId=NAME)


def test_missing_label_and_secret_are_not_found(client: Any):
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        read(client, PENDING)
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.get_secret_value(SecretId="/lakehouse/other", VersionStage=CURRENT)
