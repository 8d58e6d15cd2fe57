"""Snowflake users whose keys are rotated, seen from outside; and a wire that breaks at a chosen request."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import boto3
import botocore.httpsession
import pytest
import snowflake.connector
from botocore.exceptions import ConnectionClosedError
from cryptography.hazmat.primitives import serialization
from snowflake.connector.errors import DatabaseError
from snowflake.connector.vendored import requests
from snowflake_fixtures import Server

from lakehouse.deploy.snowflake.keys import ServiceUser
from resources.secrets_manager import Secrets

LABELS = ("AWSCURRENT", "AWSPENDING", "AWSPREVIOUS")


class Killed(BaseException):
    """Nothing catches it, as nothing catches kill -9."""


@dataclass
class Wire:
    """Everything that the process sends."""

    fault_at: int | None = None
    """The n-th request has the fault: the process is dead from there on, or that request's answer alone is lost."""
    kills: bool = True
    arrives: bool = True
    """Whether that request is carried out, its answer unread."""
    sent: int = 0
    counts: Callable[[Any], Any] = lambda request: True
    """Which requests are counted; the others pass, unless the process is dead."""
    dead: bool = False
    hit: Any = None
    """The request that had the fault."""

    def through(self, send: Callable[..., Any], broken: Exception) -> Callable[..., Any]:
        def instead(*args: Any, **kwargs: Any) -> Any:
            if self.dead:
                raise Killed
            counted = bool(self.counts(args[1]))
            self.sent += counted
            hit = counted and self.sent == self.fault_at
            self.dead = hit and self.kills
            answer = None if hit and not self.arrives else send(*args, **kwargs)
            if hit:
                self.hit = args[1]
                raise Killed if self.kills else broken
            return answer

        return instead

    @contextlib.contextmanager
    def fault(self, at: int, *, kills: bool = True, arrives: bool = True) -> Iterator[None]:
        """Whoever works within meets the fault at the n-th request from here."""
        self.fault_at, self.kills, self.arrives, self.sent = at, kills, arrives, 0
        try:
            yield
        finally:
            self.fault_at, self.dead = None, False


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    wire = Wire()
    aws, connector = botocore.httpsession.URLLib3Session, requests.Session
    monkeypatch.setattr(aws, "send", wire.through(aws.send, ConnectionClosedError(endpoint_url="http://aws")))
    monkeypatch.setattr(connector, "send", wire.through(connector.send, requests.exceptions.ConnectionError("lost")))
    return wire


@dataclass
class Case:
    """A user of one test, looked at from outside: by plain boto3, plain connector and the administrator."""

    server: Server
    user: ServiceUser
    opened: list[Any] = field(default_factory=list)

    def versions(self) -> dict[str, dict[str, str]]:
        """Of each label that is there, the secret's values."""
        found = {}
        for label in LABELS:
            with contextlib.suppress(secrets_manager().exceptions.ResourceNotFoundException):
                answer = secrets_manager().get_secret_value(SecretId=self.user.secret, VersionStage=label)
                found[label] = json.loads(answer["SecretString"])
        return found

    def key(self, label: str = "AWSCURRENT") -> str:
        return self.versions()[label]["private_key"]

    def slots(self) -> dict[str, str | None]:
        """Of each slot the label whose key it has, or None when it is empty."""
        shown = {row[0]: row[1] for row in self.server.admin(f"desc user {self.user.name}")}
        known = {public_key(version["private_key"]): label for label, version in reversed(self.versions().items())}
        return {slot: ({"null": None} | known)[shown[slot]] for slot in ("RSA_PUBLIC_KEY", "RSA_PUBLIC_KEY_2")}

    def log_in(self, pem: str) -> Any:
        """A session opened with a private key."""
        key = serialization.load_pem_private_key(pem.encode(), password=None)
        der = key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        session = snowflake.connector.connect(
            account="LOCAL",
            user=self.user.name,
            role="LOADER_ROLE",
            private_key=der,
            login_timeout=10,
            platform_detection_timeout_seconds=0,
            **self.user.address,
        )
        self.opened.append(session)
        return session

    def logs_in(self, pem: str) -> bool:
        try:
            self.log_in(pem)
        except DatabaseError:
            return False
        return True


@cache
def secrets_manager() -> Any:
    return boto3.client("secretsmanager", region_name=os.environ["AWS_REGION"])


def public_key(pem: str) -> str:
    key = serialization.load_pem_private_key(pem.encode(), password=None)
    return base64.b64encode(
        key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    ).decode()


@pytest.fixture
def new_case(server: Server) -> Iterator[Callable[[], Case]]:
    """Makes users that have a role and no key yet."""
    with contextlib.ExitStack() as sessions:

        def new() -> Case:
            name = f"ROTATED_{uuid.uuid4().hex[:8].upper()}"
            server.admin(
                f"create user {name} type = service default_role = LOADER_ROLE",
                f"grant role LOADER_ROLE to user {name}",
            )
            user = ServiceUser(
                account="LOCAL",
                name=name,
                role="LOADER_ROLE",
                secret=f"/lakehouse/snowflake/{name}",
                secrets=Secrets(os.environ["AWS_REGION"], "rotated"),
                administrator=sessions.enter_context(contextlib.closing(server.administrator())),
                address={"host": "127.0.0.1", "port": server.port, "protocol": "http"},
            )
            case = Case(server, user)
            sessions.callback(lambda: [session.close() for session in case.opened])
            return case

        yield new
