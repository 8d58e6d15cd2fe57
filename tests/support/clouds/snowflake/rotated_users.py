"""Snowflake users whose keys are rotated, and a transport that fails at a chosen request."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import boto3
import snowflake.connector
from cryptography.hazmat.primitives import serialization
from snowflake.connector.errors import DatabaseError

from lakehouse.deploy.snowflake.key_pair_rotation import ServiceUser
from tests.support.clouds.snowflake.server import Server

LABELS = ("AWSCURRENT", "AWSPENDING", "AWSPREVIOUS")


class Killed(BaseException):
    """The simulated end of the process, which no handler of `Exception` catches."""


@dataclass
class Wire:
    """The transport of all requests of the process."""

    fault_at: int | None = None
    """Number of the request with the fault: the process ends there, or the response to this request is lost."""
    kills: bool = True
    arrives: bool = True
    """True if the request with the fault is executed; its response is never read."""
    sent: int = 0
    counts: Callable[[Any], Any] = lambda request: True
    """Returns whether a request is counted; other requests pass unless the process has ended."""
    dead: bool = False
    hit: Any = None
    """The request with the fault."""

    def through(self, send: Callable[..., Any], broken: Exception) -> Callable[..., Any]:
        def instead(*args: Any, **kwargs: Any) -> Any:
            if self.dead:
                raise Killed
            counted = bool(self.counts(args[1]))
            self.sent += counted
            hit = counted and self.sent == self.fault_at
            self.dead = hit and self.kills
            response = None if hit and not self.arrives else send(*args, **kwargs)
            if hit:
                self.hit = args[1]
                raise Killed if self.kills else broken
            return response

        return instead

    @contextlib.contextmanager
    def fault(self, at: int, *, kills: bool = True, arrives: bool = True) -> Iterator[None]:
        """Inject the fault at the n-th request within the block."""
        self.fault_at, self.kills, self.arrives, self.sent = at, kills, arrives, 0
        try:
            yield
        finally:
            self.fault_at, self.dead = None, False


@dataclass
class Case:
    """A user of one test, observed by plain boto3, the plain connector and the administrator."""

    server: Server
    user: ServiceUser
    opened: list[Any] = field(default_factory=list)

    def versions(self) -> dict[str, dict[str, str]]:
        """Return the values of the secret by each existing label."""
        versions = {}
        for label in LABELS:
            with contextlib.suppress(secrets_manager().exceptions.ResourceNotFoundException):
                response = secrets_manager().get_secret_value(SecretId=self.user.secret, VersionStage=label)
                versions[label] = json.loads(response["SecretString"])
        return versions

    def key(self, label: str = "AWSCURRENT") -> str:
        return self.versions()[label]["private_key"]

    def slots(self) -> dict[str, str | None]:
        """Return the label of the key in each slot, or None for an empty slot."""
        keys = {row[0]: row[1] for row in self.server.admin(f"desc user {self.user.name}")}
        labels = {public_key(version["private_key"]): label for label, version in reversed(self.versions().items())}
        return {slot: ({"null": None} | labels)[keys[slot]] for slot in ("RSA_PUBLIC_KEY", "RSA_PUBLIC_KEY_2")}

    def log_in(self, pem: str) -> Any:
        """Open a session with a private key."""
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
