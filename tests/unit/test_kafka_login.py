"""Clients of Kafka that live longer than an API key: they log in again with the key that the secret has then."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from resources.kafka.kafka import Kafka
from resources.kafka.stream_group import StreamGroup
from tests.support.lone_member import LoneMember

SECONDS = 60
REGION, SECRET = "eu-west-1", "/lakehouse/kafka"
FIRST, SECOND = ({"sasl.username": name, "sasl.password": f"secret of {name}"} for name in ("first", "second"))


class Admin:
    """A client that records its logins."""

    logins: list[tuple[str, str]]

    def __init__(self, config: dict[str, Any], **_: object):
        Admin.logins = [(config["sasl.username"], config["sasl.password"])]

    def set_sasl_credentials(self, user: str, password: str) -> None:
        self.logins.append((user, password))

    def list_topics(self, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(topics={self.logins[-1][0]: None})


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of Secrets Manager, where the secret has the first key."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SECRETS_MANAGER", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"REGION": REGION, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", Admin)
    monkeypatch.setattr("resources.aws.secret_reader.MAX_AGE_SECONDS", -1)
    for module in ("connection", "stream_group"):
        monkeypatch.setattr(f"resources.kafka.{module}.LOGIN_SECONDS", 0.0)
    with mock_aws():
        client = boto3.client("secretsmanager", REGION)
        client.create_secret(Name=SECRET, SecretString=secret_with(FIRST))
        yield client


def secret_with(login: dict[str, str]) -> str:
    return json.dumps({"bootstrap.servers": "127.0.0.1:1", **login})


def client() -> Kafka:
    return Kafka(secret=SECRET, security_protocol="SASL_SSL", sasl_mechanism="PLAIN")


def test_admin_client_keeps_key_while_secret_is_unusable(secrets: Any):
    kafka = client()
    assert kafka.topics() == ["first"]
    secrets.put_secret_value(SecretId=SECRET, SecretString="{}")
    assert kafka.topics() == ["first"]
    secrets.put_secret_value(SecretId=SECRET, SecretString=secret_with(SECOND))
    assert kafka.topics() == ["second"]


def test_member_of_stream_group_uses_rotated_key(secrets: Any, monkeypatch: pytest.MonkeyPatch):
    renewed, leaving = threading.Event(), threading.Event()

    class Member(LoneMember):
        def set_sasl_credentials(self, user: str, password: str) -> None:
            if user == "second":
                renewed.set()

    monkeypatch.setattr("confluent_kafka.Consumer", lambda *_, **__: Member())
    group = StreamGroup(client(), lambda: "lakehouse.stream", ["trades"], lambda: None, lambda event: None)
    thread = threading.Thread(target=group.run, args=[leaving])
    thread.start()
    secrets.put_secret_value(SecretId=SECRET, SecretString=secret_with(SECOND))
    assert renewed.wait(SECONDS)
    leaving.set()
    thread.join(SECONDS)
    assert not thread.is_alive()
