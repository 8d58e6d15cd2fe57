"""Kinds of Spark servers, of which another distribution adds one."""

import re

import pytest

from lakehouse.config import loader
from lakehouse.config.deployment import Deployment
from lakehouse.config.environment import EnvRef
from lakehouse.config.model import Config
from lakehouse.core.errors import ConfigError, Unreachable
from lakehouse.deploy.credentials import CloudCredentials
from lakehouse.deploy.graph import deployment_resources
from lakehouse.deploy.settings import settings_of
from resources.build import build_resources
from resources.spark.servers import Connect, registered
from tools.repository import PROJECT


@pytest.fixture
def other_kind(monkeypatch):
    """Install the distribution with the kind `file`, and return the class."""
    monkeypatch.syspath_prepend(PROJECT / "tests/support/plugins")
    registered.cache_clear()
    yield registered()["file"]
    registered.cache_clear()


def declared(spark, **deployments):
    """Return a configuration whose environment `aws` has these settings of Spark."""
    environments = loader.load().model_dump()["environments"]
    return Config(namespace="n", topics={}, environments={"aws": environments["aws"] | {"spark": spark}}, **deployments)


def test_spark_without_type_is_a_server_at_an_address():
    spark = build_resources(declared({"remote": "sc://spark.example"}), "aws")["spark"]
    assert (type(spark), spark.address(), spark.stall_seconds) == (Connect, "sc://spark.example", 600)
    assert type(build_resources(declared({"type": "connect", "remote": "sc://a"}), "aws")["spark"]) is Connect


def test_spark_of_another_kind_has_its_own_settings(other_kind, tmp_path):
    file = tmp_path / "address"
    file.write_text("sc://spark.example:15002;token=canary-2f1c")
    spark = build_resources(declared({"type": "file", "path": str(file), "stall_seconds": 7}), "aws")["spark"]
    assert (type(spark), spark.stall_seconds) == (other_kind, 7)
    with pytest.raises(Unreachable, match=r"spark\.example:15002.*Check `spark\.path` in lakehouse\.yaml") as raised:
        spark.with_own_session().session({})
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(
    ("spark", "problem"),
    [
        (
            {"type": "fil", "path": "a"},
            "The type 'fil' of 'spark' in lakehouse.yaml is not known. Did you mean 'file",
        ),
        ({"type": {"env": "KIND"}, "path": "a"}, "The type 'KIND' of 'spark' in lakehouse.yaml is not known."),
        ({"type": "file", "remote": "sc://a"}, "environments.aws.spark.remote: unknown key."),
        ({"type": "file"}, "environments.aws.spark: path missing. Add it"),
        ({"path": "a"}, "environments.aws.spark.path: unknown key."),
    ],
)
def test_spark_settings_of_another_kind_are_refused(other_kind, spark, problem):
    with pytest.raises(ConfigError, match=re.escape(problem)):
        build_resources(declared(spark), "aws")


@pytest.mark.parametrize("is_other_kind", [False, True])
def test_deployment_role_of_ingestion_may_open_sessions_of_the_kind(other_kind, is_other_kind):
    spark = {"type": "file", "path": EnvRef(env="ADDRESS_FILE")} if is_other_kind else {"remote": "sc://spark.example"}
    deployment = Deployment(
        name="production", account="123456789012", spark_principals=["arn:aws:iam::123456789012:role/spark"]
    )
    config = declared(spark, deployments={"aws": deployment})
    credentials = CloudCredentials(deployment, confluent_secret="x")
    roles = {resource.address: resource for resource in deployment_resources(config, credentials)}
    statements = {
        purpose: [s for s in roles[f"aws/role/{purpose}"].access({})["Statement"] if "emr" in s["Action"][0]]
        for purpose in ("writer", "maintenance", "reader")
    }
    printed = settings_of(deployment, credentials.names, config)["spark"]
    allowed = {
        "Effect": "Allow",
        "Action": ["emr-serverless:GetSessionEndpoint"],
        "Resource": ["arn:aws:emr-serverless:us-east-1:123456789012:/applications/*"],
    }
    assert statements == {"writer": [allowed] if is_other_kind else [], "maintenance": [], "reader": []}
    writer = {"role_arn": "arn:aws:iam::123456789012:role/lakehouse-production-writer"}
    file = {"type": "file", "path": {"env": "ADDRESS_FILE"}} | writer
    assert printed == (file if is_other_kind else {"remote": {"env": "SPARK_REMOTE"}})
