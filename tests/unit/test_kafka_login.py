"""Clients of Kafka that live longer than an API key: they log in again with the key that the secret has then."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from lakehouse.core.errors import Unreachable
from resources.kafka.kafka import Kafka
from resources.kafka.stream_group import StreamGroup
from tests.support.lone_member import LoneMember

SECONDS = 60
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
def stored(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The fields of the secret."""
    fields = {"bootstrap.servers": "127.0.0.1:1", **FIRST}
    monkeypatch.setattr("resources.kafka.connection.read_secret_fields", lambda *_, **__: dict(fields))
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", Admin)
    for module in ("connection", "stream_group"):
        monkeypatch.setattr(f"resources.kafka.{module}.LOGIN_SECONDS", 0.0)
    return fields


def client() -> Kafka:
    return Kafka(secret="/lakehouse/kafka", security_protocol="SASL_SSL", sasl_mechanism="PLAIN")


def test_admin_client_keeps_key_while_secret_is_unreachable(stored: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    kafka = client()
    assert kafka.topics() == ["first"]

    def unreachable(*_: object, **__: object) -> None:
        raise Unreachable("AWS Secrets Manager", "region eu-west-1", "the network")

    monkeypatch.setattr("resources.kafka.connection.read_secret_fields", unreachable)
    assert kafka.topics() == ["first"]


def test_member_of_stream_group_uses_rotated_key(stored: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    renewed, leaving = threading.Event(), threading.Event()

    class Member(LoneMember):
        def set_sasl_credentials(self, user: str, password: str) -> None:
            if user == "second":
                renewed.set()

    monkeypatch.setattr(Kafka, "consumer", lambda *_, **__: Member())
    group = StreamGroup(client(), "lakehouse.stream", ["trades"], lambda: None, lambda event: None)
    thread = threading.Thread(target=group.run, args=[leaving])
    thread.start()
    stored |= SECOND
    assert renewed.wait(SECONDS)
    leaving.set()
    thread.join(SECONDS)
    assert not thread.is_alive()
