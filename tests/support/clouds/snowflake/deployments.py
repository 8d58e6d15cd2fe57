"""Deployments in the local Snowflake server, each with a bucket, Glue tables and an IAM role."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import boto3
import snowflake.connector
from cryptography.hazmat.primitives import serialization

from lakehouse.config.deployment import ExistingObjects
from lakehouse.config.model import Config, Topic
from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.aws.iam_policies import snowflake_trust
from lakehouse.deploy.names import Names
from lakehouse.deploy.resource import Outputs, Resource
from lakehouse.deploy.snowflake.administrator import Administrator
from lakehouse.deploy.snowflake.objects import SnowflakePrincipal
from lakehouse.deploy.snowflake.snowflake_resources import glue_integration, snowflake_resources, spark_volume
from resources.aws.secrets_manager import Secrets
from resources.iceberg.rest_catalog import RestCatalog
from tests.support.clouds.snowflake.server import Lake, Server

ACCOUNT = "123456789012"
KINDS = ("ROLE", "USER", "WAREHOUSE", "DATABASE", "EXTERNAL VOLUME", "CATALOG INTEGRATION")
CHANGES = re.compile(r"(CREATE|ALTER|GRANT|REVOKE|DROP|COMMENT)\b")
CALLS = ("CreateSecret", "PutSecretValue", "UpdateSecretVersionStage", "DeleteSecret", "CreateRole", "DeleteRole")
"""The changing calls of AWS."""


@cache
def aws(service: str) -> Any:
    """Return a boto3 client that the code under test does not share."""
    return boto3.client(service, region_name=os.environ["AWS_REGION"])


def change(request: Any) -> str:
    """Return the change that a request makes in Snowflake, IAM or Secrets Manager, or an empty text for none."""
    body = request.body or b""
    if isinstance(body, str):
        body = body.encode()
    text = (gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body).decode(errors="replace")
    if "sqlText" in text:
        statement = json.loads(text)["sqlText"]
        return statement if CHANGES.match(statement) else ""
    action_text = str(request.headers.get("X-Amz-Target", "")) + text
    return next((action for action in CALLS if action in action_text), "")


@dataclass(frozen=True)
class TrustingRole(Resource):
    """The resource `aws/role/snowflake`, which trusts the principals of the volume and the integration."""

    role: str
    volume: Resource[SnowflakePrincipal]
    integration: Resource[SnowflakePrincipal]
    address = "aws/role/snowflake"
    label = "the IAM role that Snowflake assumes"

    def read(self, outputs: Outputs) -> str | None:
        try:
            return aws("iam").get_role(RoleName=self.role)["Role"]["RoleName"]
        except aws("iam").exceptions.NoSuchEntityException:
            return None

    def create(self, outputs: Outputs) -> str:
        volume, integration = outputs[self.volume], outputs[self.integration]
        trust = snowflake_trust(
            volume.iam_user_arn, volume.external_id, integration.iam_user_arn, integration.external_id
        )
        with contextlib.suppress(aws("iam").exceptions.EntityAlreadyExistsException):
            aws("iam").create_role(RoleName=self.role, AssumeRolePolicyDocument=json.dumps(trust))
        return self.role

    def delete(self, outputs: Outputs, current: str) -> None:
        with contextlib.suppress(aws("iam").exceptions.NoSuchEntityException):
            aws("iam").delete_role(RoleName=self.role)


@dataclass
class Deployed:
    """One deployment, its resources over new sessions, and its state in the servers."""

    server: Server
    lake: Lake
    names: Names
    clock: Clock = SYSTEM_CLOCK
    rest_catalog: Callable[[], RestCatalog] | None = None

    @classmethod
    def new(
        cls,
        server: Server,
        folder: Path,
        existing: ExistingObjects = ExistingObjects(),  # noqa: B008 (immutable)
        **settings: Any,
    ) -> Deployed:
        """Create a deployment with a new bucket and an empty Glue database."""
        names = Names(f"t{uuid.uuid4().hex[:8]}", ACCOUNT, os.environ["AWS_REGION"], existing)
        boto3.client("s3", endpoint_url=os.environ.get("AWS_ENDPOINT_URL_S3")).create_bucket(Bucket=names.bucket)
        folder.mkdir(exist_ok=True)
        return cls(server, Lake(folder, names.bucket), names, **settings)

    @property
    def schema(self) -> str:
        return self.lake.database.upper()

    def resources(self, session: Any = None) -> list[Resource]:
        """Return the resources, including the IAM role, in the order of a whole deployment.

        Args:
            session: A session in Snowflake; None opens one of the administrator.
        """
        topics = {
            name: Topic.model_validate({"name": name, "errors": "skip"}) for name in ("stock_trades", "users-by.region")
        }
        config = Config(namespace=self.lake.database, topics=topics, environments={})
        session = session or self.server.administrator()
        administrator = Administrator(session, self.names.owner)
        volume = spark_volume(administrator, self.names)
        role = TrustingRole(self.names.role("snowflake"), volume, glue_integration(administrator, self.names, config))
        resources = snowflake_resources(
            session,
            Secrets(self.names.region),
            self.names,
            config,
            role,
            clock=self.clock,
            rest_catalog=self.rest_catalog,
        )
        index = [resource.address for resource in resources].index("snowflake/integration") + 1
        return [*resources[:index], role, *resources[index:]]

    def key(self) -> str:
        """Return the private key of the service user from its secret."""
        response = aws("secretsmanager").get_secret_value(SecretId=self.names.snowflake_secret)
        return json.loads(response["SecretString"])["private_key"]

    def state(self) -> dict[str, Any]:
        """Return the state without the name of the deployment, so that two deployments can be compared."""
        state: dict[str, Any] = {kind: self._shown(f"show {kind}s", "name", "owner", "comment") for kind in KINDS}
        database = self.names.snowflake("DATABASE")
        if state["DATABASE"]:
            state["SCHEMA"] = self._shown(f"show schemas in database {database}", "name", "owner", "comment")
            state["ICEBERG TABLE"] = self._shown(
                f"show iceberg tables in database {database}", "name", "owner", "comment", "auto_refresh_status"
            )
        for role, *_ in state["ROLE"]:
            for question in ("grants to", "future grants to", "grants of"):
                state[f"{question} {role}"] = self.query(f"show {question} role {role}")
        if state["EXTERNAL VOLUME"]:
            state["volume"] = self.query(f"desc external volume {self.names.snowflake('VOLUME')}")
        if state["CATALOG INTEGRATION"]:
            state["integration"] = self.query(f"desc catalog integration {self.names.snowflake('GLUE')}")
        text = json.dumps(state, default=str)
        for name in (self.names.deployment, self.names.deployment.upper(), self.lake.database, self.schema):
            text = text.replace(name, "<name>")
        return {kind: sorted(rows, key=str) for kind, rows in json.loads(text).items() if rows}

    @cached_property
    def _session(self) -> Any:
        """A session of the administrator, for all queries."""
        return self.server.administrator()

    def query(self, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a query of the administrator, by column."""
        with self._session.cursor() as cursor:
            cursor.execute(statement)
            return [dict(zip([c.name for c in cursor.description], row, strict=True)) for row in cursor.fetchall()]

    def _shown(self, question: str, *columns: str) -> list[list[str]]:
        mine = self.names.deployment.upper()
        rows = [[str(row[column]) for column in columns] for row in self.query(question)]
        return sorted(row for row in rows if " in " in question or mine in row[0])


def quiet(change: object) -> None:
    """Ignore a reported change."""


def service_session(deployed: Deployed) -> Any:
    """Open a session of the service user with its key and default settings."""
    return open_session(deployed.server, deployed.names.snowflake("USER"), deployed.key())


def open_session(server: Server, user: str, private_key: str) -> Any:
    """Open a session of a user with the PEM of a private key and the user's default settings."""
    key = serialization.load_pem_private_key(private_key.encode(), password=None)
    der = key.private_bytes(serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return snowflake.connector.connect(
        account="LOCAL",
        user=user,
        private_key=der,
        host="127.0.0.1",
        port=server.port,
        protocol="http",
        login_timeout=10,
        network_timeout=30,
        platform_detection_timeout_seconds=0,
    )
