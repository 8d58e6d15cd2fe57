"""A verification finds a table that has the canary's name and is another's, or no database."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from lakehouse.config.deployment import Deployment
from lakehouse.config.model import Config
from lakehouse.core.errors import UnclearState
from lakehouse.deploy.credentials import CloudCredentials
from lakehouse.deploy.names import Names
from lakehouse.deploy.verification.canary import Canary
from lakehouse.deploy.verification.deployment_role import DeploymentRole, Unchecked
from lakehouse.deploy.verification.verify import Verification

ACCOUNT, REGION = "123456789012", "eu-west-1"


@dataclass
class Snowflake:
    """A Snowflake that has every table."""

    comment: str = "lakehouse.canary=true"
    dropped: list[tuple[str, str]] = field(default_factory=list)

    def table_comment(self, schema: str, table: str) -> str:
        return self.comment

    def drop_iceberg_table(self, schema: str, table: str) -> None:
        self.dropped.append((schema, table))


@pytest.fixture
def glue(monkeypatch: pytest.MonkeyPatch) -> Any:
    for variable in (
        "AWS_ENDPOINT_URL",
        *(f"AWS_ENDPOINT_URL_{service}" for service in ("GLUE", "S3", "STS")),
        "AWS_PROFILE",
    ):
        monkeypatch.delenv(variable, raising=False)
    with mock_aws():
        client = boto3.client("glue", region_name=REGION)
        client.create_database(DatabaseInput={"Name": "trading"})
        yield client


def test_verify_leaves_a_foreign_table_of_the_canary_name(glue: Any) -> None:
    glue.create_table(DatabaseName="trading", TableInput={"Name": "lakehouse_canary", "Parameters": {"of": "others"}})
    credentials = CloudCredentials(Deployment(name="production", account=ACCOUNT, region=REGION))
    snowflake = Snowflake()
    config = Config(namespace="trading", topics={}, environments={})
    verification = Verification(config, credentials, SimpleNamespace(snowflake=snowflake))
    with pytest.raises(UnclearState, match="that no verification wrote. It was left untouched"):
        list(verification.run())
    assert snowflake.dropped == []
    assert [table["Name"] for table in glue.get_tables(DatabaseName="trading")["TableList"]] == ["lakehouse_canary"]


@pytest.mark.parametrize("comment", ["", "theirs"])
def test_verify_leaves_a_foreign_table_in_snowflake(glue: Any, comment: str) -> None:
    marked = {"Name": "lakehouse_canary", "Parameters": {"lakehouse.canary": "true"}}
    glue.create_table(DatabaseName="trading", TableInput=marked)
    credentials = CloudCredentials(Deployment(name="production", account=ACCOUNT, region=REGION))
    snowflake = Snowflake(comment)
    config = Config(namespace="trading", topics={}, environments={})
    verification = Verification(config, credentials, SimpleNamespace(snowflake=snowflake))
    with pytest.raises(
        UnclearState, match="TRADING.LAKEHOUSE_CANARY that no verification created.*left unchanged.*drop"
    ):
        list(verification.run())
    assert snowflake.dropped == []


def test_verify_without_snowflake_leaves_its_steps_unchecked(glue: Any) -> None:
    canary = Canary("trading", SimpleNamespace(catalog=None))
    canary.written.append(canary.ref)
    role = DeploymentRole(Names("production", ACCOUNT, REGION), "trading", "reader", has_role=False, written=[])

    unchecked = [step.run() for step in canary.read("reader", "snowflake") if isinstance(step, Unchecked)]

    assert {(step.role, step.reason) for step in unchecked} == {
        ("reader", "the environment has no `athena`"),
        ("snowflake", "the environment has no `snowflake`"),
    }
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket=role.names.bucket)
    assert canary.remove(role) == []


def test_writer_without_database_creates_none(glue: Any) -> None:
    glue.delete_database(Name="trading")
    role = DeploymentRole(Names("production", ACCOUNT, REGION), "trading", "writer", has_role=False, written=[])
    outcomes = {finding.permission: finding.outcome for finding in (step.run() for step in role.writer())}
    assert glue.get_databases()["DatabaseList"] == []
    assert outcomes["glue:CreateDatabase on trading"] == "unchecked"
    glue.create_database(DatabaseInput={"Name": "trading"})
    outcomes = {finding.permission: finding.outcome for finding in (step.run() for step in role.writer())}
    assert outcomes["glue:CreateDatabase on trading"] == "allowed"
