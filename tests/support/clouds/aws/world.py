"""An AWS account for a test, the resources of other systems that AWS depends on, and an inventory of the account."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import boto3
import requests
from botocore.awsrequest import AWSResponse, HeadersDict
from moto.server import ThreadedMotoServer

from lakehouse.config.deployment import Deployment, ExistingObjects
from lakehouse.config.model import Config
from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.aws.aws_resources import TableflowReferences, aws_resources
from lakehouse.deploy.aws.foundation import TableflowCluster
from lakehouse.deploy.names import Names
from lakehouse.deploy.resource import Outputs, Resource
from resources.aws.secrets_manager import SecretJson, Secrets
from tests.support.clouds.aws.gaps import Gaps
from tests.support.clouds.aws.proxy import Strict
from tests.support.servers.proxy import Proxy, Request, Response

ACCOUNT, VENDOR, REGION = "123456789012", "211111111111", "eu-west-1"
READING = ("Get", "List", "Head", "Describe")
CANARY = "canary-3f1c"
"""The value of a secret, which no output may contain."""


@dataclass(frozen=True)
class ForeignResource(Resource):
    """An existing resource of another system."""

    address: str
    output: Any

    @property
    def label(self) -> str:
        return self.address

    def read(self, outputs: Outputs) -> Any:
        return self.output

    def create(self, outputs: Outputs) -> Any:
        raise AssertionError("the resource exists")

    def delete(self, outputs: Outputs, current: Any) -> None:
        """Delete nothing: the resource belongs to another system."""


@dataclass(frozen=True)
class Stored(Resource):
    """A key of another system, which a secret stores."""

    secrets: Secrets
    secret: str

    @property
    def address(self) -> str:
        return f"key{self.secret}"

    @property
    def label(self) -> str:
        return self.address

    def read(self, outputs: Outputs) -> Any:
        return self.secrets.read(self.secret)

    def create(self, outputs: Outputs) -> Any:
        self.secrets.create(self.secret, SecretJson({"api.key.secret": CANARY}), description="")
        return self.read(outputs)

    def delete(self, outputs: Outputs, current: Any) -> None:
        """Delete nothing: aws/secrets deletes the secret."""


@dataclass
class World:
    """A moto server behind its guards.

    The functions of `on_send` are called with the request of each changing call before it is sent, and those of
    `on_response` after its response. `responses` replace those of AWS, by operation.
    """

    strict: Strict
    gaps: Gaps
    session: boto3.Session
    guard: Callable[[Request], Response | None]
    """Responds to requests before moto does."""
    on_send: list[Any] = field(default_factory=list)
    on_response: list[Any] = field(default_factory=list)
    responses: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    called: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.session.events.register("before-send", self._send)
        self.session.events.register("response-received", self._call_after_response)

    def reset(self) -> None:
        """Delete everything except the users that the roles trust."""
        requests.post(f"{self.strict.address}/moto-api/reset", timeout=30)
        self.gaps.policies.clear()
        self.gaps.rights, self.gaps.secure = None, True
        for filled in (self.on_send, self.on_response, self.called, self.responses):
            filled.clear()
        for user in ("confluent", "snowflake-volume", "snowflake-catalog"):
            self.strict.client("iam", account=VENDOR).create_user(UserName=user)
        for user in ("spark", "rotation"):
            self.strict.client("iam").create_user(UserName=user)

    def names(
        self,
        deployment: str = "prod",
        region: str = REGION,
        existing: ExistingObjects = ExistingObjects(),  # noqa: B008 (immutable)
    ) -> Names:
        return Names(deployment, ACCOUNT, region, existing)

    def resources(
        self, config: Config, deployment: str = "prod", clock: Clock = SYSTEM_CLOCK, **changes: Any
    ) -> list[Resource]:
        """Return the resources of a deployment in AWS, and the resources of other systems that they depend on."""
        names = self.names(deployment, existing=changes.get("existing", ExistingObjects()))
        principals = (f"arn:aws:iam::{ACCOUNT}:user/spark",)
        declared = {"name": deployment, "account": ACCOUNT, "region": REGION, "spark_principals": principals}
        declared |= {"rotation_principals": (f"arn:aws:iam::{ACCOUNT}:user/rotation",)} | changes
        others = self._others(names)
        environment, cluster, provider, volume, integration, *_ = others
        place = TableflowCluster(environment, cluster, names.tableflow_bucket)
        has_tableflow = any(topic.engine == "tableflow" for topic in config.topics.values())
        tableflow = TableflowReferences(place, provider) if has_tableflow else None
        in_aws = aws_resources(
            self.session, names, config, Deployment(**declared), tableflow, volume, integration, clock
        )
        first = [resource for resource in in_aws if not resource.depends_on]
        return [*first, *others, *(resource for resource in in_aws if resource.depends_on)]

    def _others(self, names: Names) -> list[Resource]:
        user = f"arn:aws:iam::{VENDOR}:user"
        organization = "1111-aaaa"
        secrets = Secrets(REGION, names.deployment)
        return [
            ForeignResource("confluent/environment", SimpleNamespace(id="env-1", organization_id=organization)),
            ForeignResource("confluent/cluster", SimpleNamespace(id="lkc-1")),
            ForeignResource(
                "confluent/provider_integration",
                SimpleNamespace(iam_role_arn=f"{user}/confluent", external_id="chosen-by-confluent"),
            ),
            ForeignResource("snowflake/volume", _snowflake(f"{user}/snowflake-volume", names.external_id("volume"))),
            ForeignResource(
                "snowflake/integration", _snowflake(f"{user}/snowflake-catalog", names.external_id("catalog"))
            ),
            Stored(secrets, f"{names.confluent_secrets}/flink"),
            Stored(secrets, f"{names.confluent_secrets}/kafka_cluster/spark"),
            Stored(secrets, names.snowflake_secret),
        ]

    def state(self) -> dict[str, Any]:
        """Return the resources of the account that deployments create, without times and ids."""
        s3, iam, glue, athena, secrets = (
            self.strict.client(name, region=REGION) for name in ("s3", "iam", "glue", "athena", "secretsmanager")
        )
        buckets = [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
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
            "databases": [
                (database["Name"], database.get("LocationUri")) for database in glue.get_databases()["DatabaseList"]
            ],
            "workgroups": sorted(workgroup["Name"] for workgroup in athena.list_work_groups()["WorkGroups"]),
            "secrets": sorted(secret["Name"] for secret in secrets.list_secrets()["SecretList"]),
        }

    def write(self, names: Names, database: str) -> None:
        """Create a table with a file of two versions and a deleted file."""
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
        if not self.responses.get(operation):
            return None
        status, body = self.responses[operation].pop(0)
        return AWSResponse(request.url, status, HeadersDict(), Raw(body.encode()))

    def _call_after_response(self, event_name: str, **_: Any) -> None:
        if not event_name.rpartition(".")[2].startswith(READING):
            for do in tuple(self.on_response):
                do(None)


class Raw(BytesIO):
    """The body of a response, as botocore reads it."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()


def _snowflake(user: str, external_id: str) -> SimpleNamespace:
    return SimpleNamespace(iam_user_arn=user, external_id=external_id)


@contextmanager
def world(monkeypatch: Any) -> Iterator[World]:
    """Run a world to which the environment variables lead."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    strict = Strict("http://{}:{}".format(*server.get_host_and_port()))
    gaps = Gaps(strict, ACCOUNT)
    with Proxy(strict.address, guard=lambda request: it.guard(request)) as proxy:
        for variable, value in {
            "AWS_ENDPOINT_URL": proxy.address,
            "AWS_ACCESS_KEY_ID": "ours",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }.items():
            monkeypatch.setenv(variable, value)
        for variable in ("AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(variable, raising=False)
        it = World(strict, gaps, boto3.Session(region_name=REGION), gaps)
        yield it
    server.stop()
