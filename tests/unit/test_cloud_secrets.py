"""Secrets and their labels, on moto in this process; and a key pair's way into a secret and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from moto import mock_aws

from lakehouse.core.errors import CommitConflict, UnclearState, Unreachable
from lakehouse.deploy.snowflake.key_pair import KeyPair
from resources.secrets_manager import PENDING, PREVIOUS, TAG, SecretJson, Secrets
from resources.snowflake_sql import KeySlot

NAME = "/lakehouse/test"
ONE, TWO, THREE = (SecretJson({"key": f"hidden {number}"}) for number in (1, 2, 3))


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Secrets]:
    for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SECRETS_MANAGER", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    with mock_aws():
        yield Secrets("eu-west-1", "test")


def plain() -> Any:
    return boto3.client("secretsmanager", region_name="eu-west-1")


def test_nothing_is_none(secrets: Secrets):
    assert secrets.read(NAME) is None
    secrets.create(NAME, ONE, description="")
    assert secrets.read(NAME, PENDING) is None


def test_what_is_there_is_not_made_again(secrets: Secrets):
    secrets.create(NAME, ONE, description="first")
    secrets.create(NAME, TWO, description="second")
    assert secrets.read(NAME).value == ONE
    described = plain().describe_secret(SecretId=NAME)
    assert (described["Description"], described["Tags"]) == ("first", [{"Key": TAG, "Value": "test"}])


def test_a_pending_version_is_read_by_nobody_until_it_is_promoted(secrets: Secrets):
    secrets.create(NAME, ONE, description="")
    current = secrets.read(NAME)
    pending = secrets.put_pending(NAME, TWO)
    assert secrets.read(NAME) == current
    assert secrets.read(NAME, PENDING).value == TWO
    secrets.promote(NAME, pending, over=current)
    assert (secrets.read(NAME).value, secrets.read(NAME, PREVIOUS).value) == (TWO, ONE)
    secrets.promote(NAME, pending, over=current)
    assert secrets.read(NAME).value == TWO, "as when the answer was lost and the call repeated"


def test_a_newer_pending_version_takes_the_label(secrets: Secrets):
    secrets.create(NAME, ONE, description="")
    secrets.put_pending(NAME, TWO)
    secrets.put_pending(NAME, THREE)
    assert secrets.read(NAME, PENDING).value == THREE


def test_of_two_who_promote_one_is_told(secrets: Secrets):
    secrets.create(NAME, ONE, description="")
    seen = secrets.read(NAME)
    mine, others = secrets.put_pending(NAME, TWO), secrets.put_pending(NAME, THREE)
    secrets.promote(NAME, others, over=seen)
    with pytest.raises(CommitConflict, match="changed the secret '/lakehouse/test'"):
        secrets.promote(NAME, mine, over=seen)
    assert secrets.read(NAME).value == THREE


@pytest.mark.parametrize("text", ["hidden", '["hidden"]', '{"key": {"hidden": 1}}', ""])
def test_a_secret_of_another_layout(secrets: Secrets, text: str):
    plain().create_secret(Name=NAME, SecretString=text or " ")
    with pytest.raises(UnclearState, match="not a JSON object of texts. It was left untouched") as refused:
        secrets.read(NAME)
    assert "hidden" not in str(refused.value)


def test_a_deleted_secret_reads_as_none_and_can_be_restored_by_hand(secrets: Secrets):
    secrets.create(NAME, ONE, description="")
    secrets.delete(NAME)
    secrets.delete(NAME)
    assert (secrets.read(NAME), secrets.read(NAME, PENDING)) == (None, None)
    window = plain().describe_secret(SecretId=NAME)["DeletedDate"] - datetime.now(UTC)
    assert timedelta(days=6) < window < timedelta(days=8)
    plain().restore_secret(SecretId=NAME)
    assert secrets.read(NAME).value == ONE


def test_the_name_of_a_deleted_secret_is_free_for_its_deployment(secrets: Secrets):
    secrets.create(NAME, ONE, description="")
    secrets.delete(NAME)
    secrets.create(NAME, TWO, description="")
    assert (secrets.read(NAME).value, secrets.read(NAME, PREVIOUS).value) == (TWO, ONE)


@pytest.mark.parametrize("tags", [[], [{"Key": TAG, "Value": "another"}]], ids=["untagged", "of another deployment"])
def test_a_deleted_secret_of_others_is_not_restored(secrets: Secrets, tags: list[dict[str, str]]):
    plain().create_secret(Name=NAME, SecretString=json.dumps(ONE.reveal()), Tags=tags)
    plain().delete_secret(SecretId=NAME)
    with pytest.raises(UnclearState, match="not of deployment 'test'.*left untouched"):
        secrets.create(NAME, TWO, description="")
    assert "DeletedDate" in plain().describe_secret(SecretId=NAME)


def test_deleting_what_is_not_there_is_no_error(secrets: Secrets):
    secrets.delete(NAME)
    assert secrets.read(NAME) is None


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch):
    for variable, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "hidden",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(Unreachable, match="AWS Secrets Manager does not answer at region eu-west-1"):
        Secrets("eu-west-1", "test").put_pending(NAME, ONE)


def test_values_do_not_show(secrets: Secrets):
    secrets.create(NAME, ONE, description="")
    for shown in (ONE, secrets.read(NAME), {"in": [ONE]}):
        assert "hidden" not in f"{shown} {shown!r}"


def test_a_key_pair_goes_into_a_secret_and_back():
    pair = KeyPair.generate(account="A", user="U", role="R", slot=KeySlot.SECOND)
    written = pair.written()
    again = KeyPair.read(written)
    assert (again.account, again.user, again.role, again.slot, again.created_at) == (
        ("A", "U", "R", KeySlot.SECOND, pair.created_at)
    )
    assert again.fingerprint == pair.fingerprint
    assert again.der == pair.der
    assert "PRIVATE" not in f"{pair!r} {written!r}"


@pytest.mark.parametrize(
    "change",
    [
        {"private_key": "hidden"},
        {"slot": "RSA_PUBLIC_KEY_3"},
        {"created_at": "hidden"},
        {"created_at": "2026-01-01T00:00:00"},
        {"role": None},
    ],
    ids=str,
)
def test_a_secret_that_is_no_key_pair(change: dict[str, str | None]):
    values = KeyPair.generate(account="A", user="U", role="R", slot=KeySlot.FIRST).written().reveal() | change
    values = {name: value for name, value in values.items() if value is not None}
    with pytest.raises(ValueError, match="not account, user, role") as refused:
        KeyPair.read(SecretJson(json.loads(json.dumps(values))))
    assert "hidden" not in str(refused.value)


def test_all_versions_are_told_also_those_without_a_label(secrets: Secrets):
    secrets.create(NAME, ONE, description="")
    for value in (TWO, THREE):
        secrets.promote(NAME, secrets.put_pending(NAME, value), over=secrets.read(NAME))
    found = secrets.versions(NAME)
    assert sorted(str(each.value.reveal()) for each in found) == [str(v.reveal()) for v in (ONE, TWO, THREE)]
    assert all(each.created_at for each in found)
