"""The clouds of one schedule: their control planes in memory, by the clients that lakehouse/deploy uses.

The project's own clients run (`ApiClient`, `Secrets`, `connect`, …). What is replaced is what they call:
`requests.request`, the session of boto3, `snowflake.connector.connect`, the generation of RSA keys, and the clocks.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import boto3
import requests
import snowflake.connector
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

import lakehouse.deploy.confluent.account_key
import lakehouse.deploy.confluent.key_rotation
import lakehouse.deploy.snowflake.key_pair
import lakehouse.deploy.snowflake.key_pair_rotation
import resources.aws.secrets_manager
from lakehouse.config.deployment import Deployment
from lakehouse.config.model import Config
from lakehouse.deploy.aws.aws_service import Aws
from lakehouse.deploy.aws.foundation import DeploymentSecrets
from lakehouse.deploy.confluent.confluent_resources import confluent_resources, foundation
from lakehouse.deploy.names import Names
from lakehouse.deploy.resource import Resource
from lakehouse.deploy.snowflake.access import ServiceUserKey
from lakehouse.deploy.snowflake.key_pair_rotation import ServiceUser
from lakehouse.deploy.snowflake.snowflake_resources import service_users
from resources.aws.secrets_manager import Secrets
from resources.confluent.confluent_cloud import ConfluentCloud
from tests.simulation.choices import Choices
from tests.simulation.deployment import key_pairs
from tests.simulation.deployment.secrets_manager import MemorySecrets, MemorySecretsClient
from tests.simulation.deployment.snowflake import MemorySession, MemorySnowflake, log_in
from tests.simulation.world import Process, World, replaced
from tests.support.clouds.confluent.server import ADMIN, ControlPlane

T = TypeVar("T")
URL = "https://confluent"
ACCOUNT, NAME = "123456789012", "lake"
OURS, THEIRS = "us-east-1", "eu-west-1"
"""The regions of two deployments of one name, which share Confluent's organization and nothing else."""

CONFIG = Config.model_validate(
    {"namespace": "trading", "topics": {"orders": {"name": "orders"}}, "environments": {}, "root": Path(".")}
)


class CloudWorld(World):
    """A world whose calls are those to the clouds.

    Attributes:
        observe: Called after each effect with the name of the operation.
    """

    def __init__(self, choices: Choices):
        super().__init__(choices)
        self.observe: Callable[[str], None] = lambda operation: None
        self._keys: dict[str, str] = {}
        self._called: dict[Process, str] = {}

    @property
    def true_now(self) -> float:
        """The time in the clouds."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Pause the process that runs."""
        self.advance(seconds)
        if process := self.current:
            self._pass_on(process, self.switch_percent)

    def named(self, text: str) -> str:
        """Return a text with names for keys, which differ in each process."""
        return re.sub(
            r"SHA256:[\w+/=]+|'MI[\w+/=]{20,}'?",
            lambda match: self._keys.setdefault(match[0], f"<key {len(self._keys)}>"),
            super().named(text),
        )

    def calls_next(self, operation: str) -> bool:
        """Return whether a process is suspended in a call of an operation, or such a request is on its way."""
        return any(
            self._called.get(process, "").startswith(operation) or process.name.startswith(f"late {operation}")
            for process in self.processes
        )

    def call(self, operation: str, effect: Callable[[], T], error: Callable[[str], Exception]) -> T:
        """Perform a call, and observe its effect."""

        def observed() -> T:
            result = effect()
            self.observe(operation)
            return result

        if self.current:
            self._called[self.current] = operation
        return super().call(operation, observed, error)


@dataclass
class Clouds:
    """The state of all clouds."""

    confluent: ControlPlane = field(default_factory=lambda: ControlPlane(URL))
    secrets: dict[str, MemorySecrets] = field(default_factory=lambda: {OURS: MemorySecrets(), THEIRS: MemorySecrets()})
    """By region."""
    snowflake: MemorySnowflake = field(default_factory=MemorySnowflake)
    key_pair_count: int = 0
    """Number of generated key pairs."""

    def next_key_pair(self) -> int:
        """Return the number of the next key pair."""
        self.key_pair_count += 1
        return self.key_pair_count

    def names(self, region: str = OURS) -> Names:
        """Return the names of a deployment."""
        return Names(NAME, ACCOUNT, region)

    def resources(self, world: CloudWorld, region: str = OURS) -> list[Resource[Any]]:
        """Return the resources of a deployment, with clients for one process."""
        names = self.names(region)
        deployment = Deployment(name=NAME, account=ACCOUNT, region=region)
        cloud = _organization(self.confluent.admin_secret)
        secrets = Secrets(region, NAME)
        base = foundation(cloud, names, CONFIG, deployment)
        kept = DeploymentSecrets(Aws(boto3.Session(region_name=region), region), names)
        session = MemorySession(world, self.snowflake)
        users = service_users(session, secrets, names, CONFIG)
        user = users.user(users.service)
        service_user = ServiceUser(
            account=session.account,
            name=names.snowflake("USER"),
            role=names.snowflake("ROLE"),
            secret=names.snowflake_secret,
            secrets=secrets,
            session=session,
        )
        key = ServiceUserKey(address="snowflake/key", name=service_user.name, user=lambda: service_user, after=(user,))
        return [kept, *confluent_resources(base, secrets, None, None), user, key]


@lru_cache(maxsize=4)
def _organization(secret: str) -> ConfluentCloud:
    return ConfluentCloud(api_key=ADMIN, api_secret=secret, url=URL, deadline_seconds=120)


@dataclass(frozen=True)
class _Request:
    """As much of werkzeug's request as the handlers of the control plane use."""

    method: str
    path: str
    args: dict[str, str]
    json: Any
    authorization: SimpleNamespace
    environ: dict[str, Any] = field(default_factory=dict)


class _ErrorResponse(Exception):
    """A fault that is a response of the server, or of a proxy in front of it."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.response = _response(status, "application/json", text.encode())


def _response(status: int, content_type: str, content: bytes) -> requests.Response:
    response = requests.Response()
    response.status_code, response._content, response.headers["Content-Type"] = status, content, content_type
    # requests guesses the encoding of other media types for a tenth of a second.
    response.encoding = requests.utils.get_encoding_from_headers(response.headers) or "utf-8"
    return response


def _transport(world: CloudWorld, clouds: Clouds) -> Callable[..., requests.Response]:
    def request(
        method: str, url: str, params: Any = None, json: Any = None, auth: Any = None, **limits: Any
    ) -> requests.Response:
        path = url.removeprefix(URL)
        args = {name: str(value) for name, value in (params or {}).items()}
        authorization = SimpleNamespace(username=auth[0], password=auth[1])

        def effect() -> requests.Response:
            response = clouds.confluent.respond(_Request(method, path, args, json, authorization))
            return _response(response.status_code, response.content_type or "", response.get_data())

        def failed(reason: str) -> Exception:
            if world.choices.happens(30):
                return _ErrorResponse(500, _quoting(auth, json))
            return requests.ConnectionError(reason)

        try:
            return world.call(f"confluent {method} {_kind(path)}", effect, failed)
        except _ErrorResponse as fault:
            return fault.response

    return request


def _quoting(auth: tuple[str, str], body: Any) -> str:
    """Return an error that quotes the request, as proxies do."""
    return json.dumps({"errors": [{"detail": f"cannot pass on {auth[0]}:{auth[1]} {body}"}]})


@lru_cache(maxsize=1000)
def _kind(path: str) -> str:
    """Return the kind of object that a path names."""
    words = [word for word in path.split("/") if re.fullmatch("[a-z-]+", word) and word not in ("registry", "orders")]
    return words[-1]


class _Boto3Session:
    def __init__(self, world: CloudWorld, store: MemorySecrets):
        self._world, self._store = world, store

    def client(self, service: str, **settings: Any) -> MemorySecretsClient:
        assert service == "secretsmanager"
        return MemorySecretsClient(self._world, self._store)


@contextmanager
def simulated_clouds(world: CloudWorld, clouds: Clouds) -> Iterator[None]:
    """Let the project call the clouds of a schedule, and read its clocks."""

    class SimulatedDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(world.now(), tz or UTC)

    clouds.confluent.state.now = lambda: datetime.fromtimestamp(world.true_now, UTC)
    dated = (
        lakehouse.deploy.confluent.account_key,
        lakehouse.deploy.confluent.key_rotation,
        lakehouse.deploy.snowflake.key_pair,
        lakehouse.deploy.snowflake.key_pair_rotation,
        resources.aws.secrets_manager,
    )
    names: dict[Any, dict[str, Any]] = {
        requests: {"request": _transport(world, clouds)},
        boto3: {"Session": lambda *, region_name, **_: _Boto3Session(world, clouds.secrets[region_name])},
        snowflake.connector: {
            "connect": lambda user, private_key, **settings: log_in(world, clouds.snowflake, user, private_key)
        },
        serialization: {"load_pem_private_key": key_pairs.load_pem_private_key},
        rsa: {"generate_private_key": key_pairs.generator(clouds.next_key_pair)},
        **{module: {"datetime": SimulatedDatetime} for module in dated},
        time: {"monotonic": lambda: world.true_now, "sleep": world.sleep},
    }
    with replaced(names):
        yield
