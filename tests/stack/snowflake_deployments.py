"""Deployments in the local Snowflake server, each with a bucket, Glue tables and an IAM role, seen from outside."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
import snowflake.connector
from cryptography.hazmat.primitives import serialization
from snowflake_fixtures import Lake, Server, trades

from lakehouse.config.deployment import Deployment
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.polling import REAL, Clock
from lakehouse.deploy.aws.policies import snowflake_trust
from lakehouse.deploy.names import Names
from lakehouse.deploy.planner import create
from lakehouse.deploy.snowflake.steps import snowflake_steps
from lakehouse.deploy.step import Found, Step
from resources.rest_catalog import RestCatalog
from resources.secrets_manager import Secrets

ACCOUNT = "123456789012"
KINDS = ("ROLE", "USER", "WAREHOUSE", "DATABASE", "EXTERNAL VOLUME", "CATALOG INTEGRATION")
CHANGES = re.compile(r"(CREATE|ALTER|GRANT|REVOKE|DROP|COMMENT)\b")


@cache
def aws(service: str) -> Any:
    """A client of the tests' own."""
    return boto3.client(service, region_name=os.environ["AWS_REGION"])


def change(request: Any) -> str:
    """What a request on the wire asks to be changed, in Snowflake, IAM or Secrets Manager; empty if nothing."""
    body = request.body or b""
    if isinstance(body, str):
        body = body.encode()
    text = (gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body).decode(errors="replace")
    if "sqlText" in text:
        statement = json.loads(text)["sqlText"]
        return statement if CHANGES.match(statement) else ""
    asked = str(request.headers.get("X-Amz-Target", "")) + text
    return next(
        (action for action in ("CreateSecret", "PutSecretValue", "CreateRole", "DeleteRole") if action in asked), ""
    )


@dataclass(frozen=True)
class TrustingRole(Step):
    """`aws/role/snowflake`: trusts who the volume and the integration name."""

    role: str
    name: str = "aws/role/snowflake"
    what: str = "the IAM role that Snowflake assumes"
    needs: tuple[str, ...] = ("snowflake/volume", "snowflake/integration")

    def find(self, found: Found) -> str | None:
        try:
            return aws("iam").get_role(RoleName=self.role)["Role"]["RoleName"]
        except aws("iam").exceptions.NoSuchEntityException:
            return None

    def create(self, found: Found) -> str:
        volume, integration = found["snowflake/volume"], found["snowflake/integration"]
        trust = snowflake_trust(
            volume.iam_user_arn, volume.external_id, integration.iam_user_arn, integration.external_id
        )
        with contextlib.suppress(aws("iam").exceptions.EntityAlreadyExistsException):
            aws("iam").create_role(RoleName=self.role, AssumeRolePolicyDocument=json.dumps(trust))
        return self.role

    def delete(self, found: Found, it: str) -> None:
        with contextlib.suppress(aws("iam").exceptions.NoSuchEntityException):
            aws("iam").delete_role(RoleName=self.role)


@dataclass
class Deployed:
    """One deployment: its steps over new sessions, and what is there of it."""

    server: Server
    lake: Lake
    names: Names
    warehouse: str | None = None
    clock: Clock = REAL
    rest_catalog: Callable[[], RestCatalog] | None = None

    @classmethod
    def new(cls, server: Server, folder: Path, **settings: Any) -> Deployed:
        """With a bucket of its own, and nothing in Glue but the database."""
        names = Names(f"t{uuid.uuid4().hex[:8]}", ACCOUNT, os.environ["AWS_REGION"])
        boto3.client("s3", endpoint_url=os.environ.get("AWS_ENDPOINT_URL_S3")).create_bucket(Bucket=names.bucket)
        folder.mkdir(exist_ok=True)
        return cls(server, Lake(folder, names.bucket), names, **settings)

    @property
    def schema(self) -> str:
        return self.lake.database.upper()

    def steps(self) -> list[Step]:
        """In the order of a whole deployment, the IAM role among them."""
        topics = {
            name: Topic.model_validate({"name": name, "errors": "skip"}) for name in ("stock_trades", "users-by.region")
        }
        config = Config(namespace=self.lake.database, topics=topics, environments={})
        steps = snowflake_steps(
            self.server.administrator(),
            Secrets(self.names.region),
            self.names,
            config,
            Deployment(name=self.names.deployment, account=ACCOUNT, region=self.names.region),
            self.warehouse,
            self.clock,
            self.rest_catalog,
        )
        at = [step.name for step in steps].index("snowflake/integration") + 1
        return [*steps[:at], TrustingRole(self.names.role("snowflake")), *steps[at:]]

    def key(self) -> str:
        """The service user's private key, from its secret."""
        answer = aws("secretsmanager").get_secret_value(SecretId=self.names.snowflake_secret)
        return json.loads(answer["SecretString"])["private_key"]

    def state(self) -> dict[str, Any]:
        """All that is there, the deployment's name replaced, so that two can be compared."""
        seen: dict[str, Any] = {kind: self._shown(f"show {kind}s", "name", "owner", "comment") for kind in KINDS}
        database = self.names.snowflake("DATABASE")
        if seen["DATABASE"]:
            seen["SCHEMA"] = self._shown(f"show schemas in database {database}", "name", "owner", "comment")
            seen["ICEBERG TABLE"] = self._shown(
                f"show iceberg tables in database {database}", "name", "owner", "comment", "auto_refresh_status"
            )
        for role, *_ in seen["ROLE"]:
            for question in ("grants to", "future grants to", "grants of"):
                seen[f"{question} {role}"] = self.query(f"show {question} role {role}")
        if seen["EXTERNAL VOLUME"]:
            seen["volume"] = self.query(f"desc external volume {self.names.snowflake('VOLUME')}")
        if seen["CATALOG INTEGRATION"]:
            seen["integration"] = self.query(f"desc catalog integration {self.names.snowflake('GLUE')}")
        text = json.dumps(seen, default=str)
        for name in (self.names.deployment, self.names.deployment.upper(), self.lake.database, self.schema):
            text = text.replace(name, "<name>")
        return {kind: sorted(rows, key=str) for kind, rows in json.loads(text).items() if rows}

    def query(self, statement: str) -> list[dict[str, Any]]:
        """The administrator's, rows by column."""
        with self.server.administrator() as session, session.cursor() as cursor:
            cursor.execute(statement)
            return [dict(zip([c.name for c in cursor.description], row, strict=True)) for row in cursor.fetchall()]

    def _shown(self, question: str, *columns: str) -> list[list[str]]:
        mine = self.names.deployment.upper()
        rows = [[str(row[column]) for column in columns] for row in self.query(question)]
        return sorted(row for row in rows if " in " in question or mine in row[0])


def quiet(action: object) -> None:
    """Nobody is told."""


@pytest.fixture
def new(server: Server, tmp_path: Path) -> Callable[..., Deployed]:
    """Makes deployments, of which nothing is there yet but a table in Glue."""
    made: list[Deployed] = []

    def make(**settings: Any) -> Deployed:
        deployed = Deployed.new(server, tmp_path / str(len(made)), **settings)
        deployed.lake.create("stock_trades", trades(3))
        made.append(deployed)
        return deployed

    return make


@pytest.fixture
def deployed(new: Callable[..., Deployed]) -> Deployed:
    """One that was created."""
    deployed = new()
    create(deployed.steps(), quiet)
    return deployed


def service_session(deployed: Deployed) -> Any:
    """The service user's, with its key and nothing else: all the rest are its defaults."""
    key = serialization.load_pem_private_key(deployed.key().encode(), password=None)
    der = key.private_bytes(serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return snowflake.connector.connect(
        account="LOCAL",
        user=deployed.names.snowflake("USER"),
        private_key=der,
        host="127.0.0.1",
        port=deployed.server.port,
        protocol="http",
        login_timeout=10,
        network_timeout=30,
        platform_detection_timeout_seconds=0,
    )
