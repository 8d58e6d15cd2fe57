"""An AWS of a test's own, the other systems' steps as far as AWS needs them, and what there is in it in the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import boto3
import requests
from aws_gaps import Gaps
from aws_proxy import Strict
from botocore.awsrequest import AWSResponse, HeadersDict
from moto.server import ThreadedMotoServer
from proxy import Proxy

from lakehouse.config.deployment import Deployment
from lakehouse.config.loader import Config
from lakehouse.core.polling import REAL, Clock
from lakehouse.deploy.aws.steps import aws_steps
from lakehouse.deploy.names import Names
from lakehouse.deploy.step import Found, Step
from resources.secrets_manager import SecretJson, Secrets

ACCOUNT, VENDOR, REGION = "123456789012", "211111111111", "eu-west-1"
READING = ("Get", "List", "Head", "Describe")
CANARY = "canary-3f1c"
"""The value of a secret, which may show nowhere."""


@dataclass(frozen=True)
class Given(Step):
    """A thing of another system, which is there."""

    name: str
    thing: Any

    @property
    def what(self) -> str:
        return self.name

    def find(self, found: Found) -> Any:
        return self.thing

    def create(self, found: Found) -> Any:
        raise AssertionError("it is there")

    def delete(self, found: Found, it: Any) -> None:
        """It is not AWS's."""


@dataclass(frozen=True)
class Stored(Step):
    """A key of another system, which is kept in a secret."""

    secrets: Secrets
    secret: str

    @property
    def name(self) -> str:
        return f"key{self.secret}"

    @property
    def what(self) -> str:
        return self.name

    def find(self, found: Found) -> Any:
        return self.secrets.read(self.secret)

    def create(self, found: Found) -> Any:
        self.secrets.create(self.secret, SecretJson({"api.key.secret": CANARY}), description="")
        return self.find(found)

    def delete(self, found: Found, it: Any) -> None:
        """The secret is for aws/secrets to delete."""


@dataclass
class World:
    """A moto server behind what it does not do. What is in `on_send` is done with the request of each changing call,
    before it is sent; what is in `on_answer`, when it was answered. `answers` are given in AWS's place."""

    strict: Strict
    gaps: Gaps
    session: boto3.Session
    on_send: list[Any] = field(default_factory=list)
    on_answer: list[Any] = field(default_factory=list)
    answers: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    called: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.session.events.register("before-send", self._send)
        self.session.events.register("response-received", self._answered)

    def reset(self) -> None:
        """Nothing is there but those whom the roles trust."""
        requests.post(f"{self.strict.address}/moto-api/reset", timeout=30)
        self.gaps.policies.clear()
        self.gaps.rights, self.gaps.secure = None, True
        for filled in (self.on_send, self.on_answer, self.called, self.answers):
            filled.clear()
        for user in ("confluent", "snowflake-volume", "snowflake-catalog"):
            self.strict.client("iam", account=VENDOR).create_user(UserName=user)
        self.strict.client("iam").create_user(UserName="spark")

    def names(self, deployment: str = "prod", region: str = REGION) -> Names:
        return Names(deployment, ACCOUNT, region)

    def steps(self, config: Config, deployment: str = "prod", clock: Clock = REAL, **changes: Any) -> list[Step]:
        """The steps of a whole deployment: AWS's own, and what they stand on."""
        names, principals = self.names(deployment), (f"arn:aws:iam::{ACCOUNT}:user/spark",)
        declared = {"name": deployment, "account": ACCOUNT, "region": REGION, "spark_principals": principals} | changes
        own = aws_steps(self.session, names, config, Deployment(**declared), clock)
        first = [step for step in own if not step.needs]
        return [*first, *self._others(names), *(step for step in own if step.needs)]

    def _others(self, names: Names) -> list[Step]:
        user = f"arn:aws:iam::{VENDOR}:user"
        organization = "1111-aaaa"
        secrets = Secrets(REGION, names.deployment)
        return [
            Given("confluent/environment", SimpleNamespace(id="env-1", organization_id=organization)),
            Given("confluent/cluster", SimpleNamespace(id="lkc-1")),
            Given(
                "confluent/provider_integration",
                SimpleNamespace(iam_role_arn=f"{user}/confluent", external_id="chosen-by-confluent"),
            ),
            Given("snowflake/volume", _snowflake(f"{user}/snowflake-volume", names.external_id("volume"))),
            Given("snowflake/integration", _snowflake(f"{user}/snowflake-catalog", names.external_id("catalog"))),
            Stored(secrets, f"{names.confluent_secrets}/flink"),
            Stored(secrets, f"{names.confluent_secrets}/kafka_cluster/spark"),
            Stored(secrets, names.snowflake_secret),
        ]

    def state(self) -> dict[str, Any]:
        """All there is in the account, as far as a deployment makes it, without times and ids."""
        s3, iam, glue, athena, secrets = (
            self.strict.client(name, region=REGION) for name in ("s3", "iam", "glue", "athena", "secretsmanager")
        )
        buckets = [each["Name"] for each in s3.list_buckets()["Buckets"]]
        return {
            "buckets": {
                name: (s3.get_bucket_versioning(Bucket=name).get("Status"), self.gaps.policies.get(name))
                for name in buckets
            },
            "roles": {
                role["RoleName"]: (
                    role["AssumeRolePolicyDocument"],
                    [
                        iam.get_role_policy(RoleName=role["RoleName"], PolicyName=name)["PolicyDocument"]
                        for name in iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]
                    ],
                )
                for role in iam.list_roles()["Roles"]
            },
            "databases": [(each["Name"], each.get("LocationUri")) for each in glue.get_databases()["DatabaseList"]],
            "workgroups": sorted(each["Name"] for each in athena.list_work_groups()["WorkGroups"]),
            "secrets": sorted(each["Name"] for each in secrets.list_secrets()["SecretList"]),
        }

    def write(self, names: Names, database: str) -> None:
        """A table with a file of two versions, and one that was deleted."""
        s3, glue = (self.session.client(name, region_name=names.region) for name in ("s3", "glue"))
        for key in ("warehouse/t/1", "warehouse/t/1", "warehouse/t/2"):
            s3.put_object(Bucket=names.bucket, Key=key, Body=b"rows")
        s3.delete_object(Bucket=names.bucket, Key="warehouse/t/2")
        glue.create_table(DatabaseName=database, TableInput={"Name": "t"})

    def _send(self, request: Any, event_name: str, **_: Any) -> AWSResponse | None:
        _, service, operation = event_name.split(".")
        self.called.append((service, operation))
        if not operation.startswith(READING):
            for do in tuple(self.on_send):
                do(request)
        if not self.answers.get(operation):
            return None
        status, body = self.answers[operation].pop(0)
        return AWSResponse(request.url, status, HeadersDict(), Raw(body.encode()))

    def _answered(self, event_name: str, **_: Any) -> None:
        if not event_name.rpartition(".")[2].startswith(READING):
            for do in tuple(self.on_answer):
                do(None)


class Raw(BytesIO):
    """An answer's body, as botocore reads it."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()


def _snowflake(user: str, external_id: str) -> SimpleNamespace:
    return SimpleNamespace(iam_user_arn=user, external_id=external_id)


@contextmanager
def world(monkeypatch: Any) -> Iterator[World]:
    """A world; os.environ leads to it."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    strict = Strict("http://{}:{}".format(*server.get_host_and_port()))
    gaps = Gaps(strict, ACCOUNT)
    with Proxy(strict.address, guard=gaps) as proxy:
        for variable, value in {
            "AWS_ENDPOINT_URL": proxy.address,
            "AWS_ACCESS_KEY_ID": "ours",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }.items():
            monkeypatch.setenv(variable, value)
        for variable in ("AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(variable, raising=False)
        yield World(strict, gaps, boto3.Session(region_name=REGION))
    server.stop()
