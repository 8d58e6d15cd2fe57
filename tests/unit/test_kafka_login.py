"""Clients of Kafka that live longer than an API key: they log in again with the key that the secret has then."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from confluent_kafka import KafkaError, KafkaException
from moto import mock_aws

from lakehouse.core.errors import TransientError
from resources.kafka.errors import to_error
from resources.kafka.kafka import Kafka
from resources.kafka.stream_group import StreamGroup
from tests.support.lone_member import LoneMember
from tests.support.servers.loopback_server import LoopbackServer

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


class Silent(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_server_with_another_protocol_is_not_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    message = "refused a connection with `security_protocol: SSL`: .*wrong version number"
    monkeypatch.setattr("resources.kafka.kafka.TIMEOUT_SECONDS", 2)
    with LoopbackServer(Silent).listening() as server:
        kafka = Kafka(bootstrap_servers=f"127.0.0.1:{server.server_port}", security_protocol="SSL")
        with pytest.raises(TransientError, match=message) as raised:
            kafka.topics()
    assert "security_protocol" in raised.value.remedy


@pytest.mark.parametrize(
    ("reported", "problem", "remedy"),
    [
        (
            "sasl_plaintext://b:9092/bootstrap: SASL PLAIN mechanism handshake failed: Broker: Request not valid in "
            "current SASL state (after 4ms in state AUTH_HANDSHAKE)",
            "Kafka at b:9092 refused a connection with `security_protocol: SASL_PLAINTEXT`: SASL PLAIN mechanism "
            "handshake failed: Broker: Request not valid in current SASL state",
            "Set `security_protocol` and `sasl_mechanism` of the environment to those of this port",
        ),
        (
            "ssl://b:9092/1: error:0A00010B:SSL routines::wrong version number (after 1ms in state SSL_HANDSHAKE)",
            "Kafka at b:9092 refused a connection with `security_protocol: SASL_PLAINTEXT`: error:0A00010B:SSL "
            "routines::wrong version number",
            "Set `security_protocol` and `sasl_mechanism` of the environment to those of this port",
        ),
        (
            "ssl://b:9092/1: error:0A000126:SSL routines::unexpected eof while reading (after 3ms in state UP)",
            "Kafka does not answer at b:9092: error:0A000126:SSL routines::unexpected eof while reading",
            "Check that the broker is up (`lakehouse status`), the address, and the API key",
        ),
        (
            "sasl_ssl://b:9092/1: SASL authentication error: Authentication failed (after 200ms in state AUTH_REQ)",
            "Kafka at b:9092 refused the login: SASL authentication error: Authentication failed",
            "Correct the API key or user, and its secret",
        ),
        (
            'Failed to acquire SASL OAUTHBEARER token: {"error": "invalid_client", "request": "client_secret=canary"}',
            "Kafka at b:9092 needs a token, and its provider issued none: Failed to acquire SASL OAUTHBEARER token: "
            "invalid_client",
            "Correct the settings `sasl.oauthbearer.…` of `kafka`, or the AWS credentials of AWS_MSK_IAM",
        ),
        (
            "b:8081/bootstrap: Receive failed: Invalid response size 1213486160 (0..100000000): increase "
            "receive.message.max.bytes (after 1ms in state APIVERSION_QUERY)",
            "b:9092 is no Kafka broker, or its port expects TLS (Receive failed: Invalid response size 1213486160 "
            "(0..100000000): increase receive.message.max.bytes)",
            "Correct the address, or `security_protocol`",
        ),
        (
            "b:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)",
            "Kafka does not answer at b:9092: Connect to ipv4#10.0.0.1:9092 failed: Connection refused",
            "Check that the broker is up (`lakehouse status`), the address, and the API key",
        ),
    ],
)
def test_lost_connection_has_the_reason_that_the_client_reported(reported: str, problem: str, remedy: str) -> None:
    failed = KafkaException(KafkaError(KafkaError._TRANSPORT))
    error = to_error(failed, "b:9092", "SASL_PLAINTEXT", reported)
    assert error is not None and (error.problem, error.remedy) == (problem, remedy)
