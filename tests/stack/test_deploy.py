"""A whole deployment, in a strict AWS, a stand-in of Confluent Cloud and a local Snowflake server: made, found as it
should be, used, its keys replaced, taken away."""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from aws_world import ACCOUNT, REGION, World, world
from click.testing import CliRunner
from confluent_server import ADMIN, ConfluentServer
from sleepless import Sleepless
from snowflake_fixtures import Server, key_pair, started

from lakehouse import config as configuration
from lakehouse.cli import main
from lakehouse.cloud import perform
from lakehouse.cloud.access import ADMIN_SECRET, Access
from lakehouse.cloud.rotation import Policy, rotate
from lakehouse.cloud.settings import settings
from lakehouse.cloud.step import Step
from lakehouse.cloud.steps import deployment_steps
from lakehouse.config import Config
from lakehouse.deployment import Deployment
from lakehouse.local.snowflake.storage import IAM_USER_ARN
from resources.snowflake import Snowflake

pytestmark = pytest.mark.stack
TOPICS = {
    "stock_trades": {"source": {"type": "datagen", "schema_file": "schemas/stock_trades.avsc"}},
    "users": {"mode": "upsert", "key": "userid"},
}


class Clouds:
    """The three clouds, and an administrator's access to them."""

    def __init__(self, aws: World, confluent: ConfluentServer, snowflake: Server):
        self.aws, self.confluent, self.snowflake = aws, confluent, snowflake
        self.sleepless = Sleepless()
        self.told: list[perform.Action] = []

    def access(self, name: str = "production") -> Access:
        spark = (f"arn:aws:iam::{ACCOUNT}:user/spark",)
        return Access(
            Deployment(name=name, account=ACCOUNT, region=REGION, spark_principals=spark),
            confluent_key=ADMIN,
            confluent_secret=self.confluent.admin_secret,
            confluent_url=self.confluent.url,
        )

    def config(self, namespace: str = "trading") -> Config:
        return Config.model_validate(
            {
                "namespace": namespace,
                "topics": {name: {**topic, "name": name, "table": name} for name, topic in TOPICS.items()},
                "environments": {},
            }
        )

    def steps(self, name: str = "production", namespace: str = "trading") -> list[Step]:
        return deployment_steps(self.config(namespace), self.access(name), self.sleepless.clock)

    def secrets(self) -> list[str]:
        """Every value that may show nowhere."""
        client = self.aws.strict.client("secretsmanager", region=REGION)
        names = [each["Name"] for each in client.list_secrets()["SecretList"]]
        answers = [client.get_secret_value(SecretId=name, VersionStage="AWSCURRENT") for name in names]
        values = [json.loads(answer["SecretString"]) for answer in answers]
        hidden = ("sasl.password", "private_key", "snowflake_rsa_private_key_1_pem", "api.key.secret")
        found = [value[field] for value in values for field in hidden if field in value]
        return [*found, self.confluent.admin_secret, self.snowflake.admin_password]


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clouds]:
    folder = tmp_path_factory.mktemp("clouds")
    with pytest.MonkeyPatch.context() as patch, world(patch) as aws:
        patch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
        patch.setenv("AWS_REGION", REGION)
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        aws.reset()
        vendor = IAM_USER_ARN.split(":")[4]
        aws.strict.client("iam", account=vendor).create_user(UserName=IAM_USER_ARN.rpartition("/")[2])
        with ConfluentServer() as confluent, started(folder) as snowflake:
            key, public = key_pair(folder, "administrator.p8")
            snowflake.admin(
                "CREATE USER DEPLOYER TYPE = SERVICE DEFAULT_ROLE = ACCOUNTADMIN",
                "GRANT ROLE ACCOUNTADMIN TO USER DEPLOYER",
                f"ALTER USER DEPLOYER SET RSA_PUBLIC_KEY = '{public}'",
            )
            administrator = {
                "snowflake_account_identifier": "LOCAL",
                "admin_service_user": "DEPLOYER",
                "active_key_number": "1",
                "snowflake_rsa_private_key_1_pem": base64.b64encode(key.read_bytes()).decode(),
            }
            aws.strict.client("secretsmanager", region=REGION).create_secret(
                Name=ADMIN_SECRET, SecretString=json.dumps(administrator)
            )
            for name, value in {"HOST": "127.0.0.1", "PORT": str(snowflake.port), "PROTOCOL": "http"}.items():
                patch.setenv(f"SNOWFLAKE_{name}", value)
            yield Clouds(aws, confluent, snowflake)
        assert not confluent.violations


def verbs(steps: list[Step]) -> dict[str, str]:
    return {action.step.name: f"{action.verb}: {action.why}" for action in perform.plan(steps)}


def test_it_is_made_found_as_it_should_be_used_and_taken_away(clouds: Clouds, caplog: Any, capsys: Any):
    caplog.set_level(logging.DEBUG)
    before = clouds.aws.state()
    planned = verbs(clouds.steps())
    assert clouds.aws.state() == before, "a plan changes nothing"
    assert {said.partition(":")[0] for said in planned.values()} <= {"create", "keep"}

    perform.create(clouds.steps(), clouds.told.append)

    again = {name: said for name, said in verbs(clouds.steps()).items() if not said.startswith("keep")}
    # Tables are left to the running lakehouse as long as Glue has none.
    assert set(again) <= {"snowflake/tables"}, again
    _is_entered_with_its_own_settings(clouds)
    _keys_are_replaced_and_both_go_on(clouds)

    hidden = clouds.secrets()
    assert len(hidden) > 6

    # Another deployment in the same accounts, which the first one's end does not touch.
    perform.create(clouds.steps("staging", "other"), clouds.told.append)
    perform.delete(clouds.steps(), clouds.told.append, delete_data=False)
    left = clouds.aws.state()
    assert clouds.access().names.bucket in left["buckets"] and "trading" in dict(left["databases"])
    assert not [role for role in left["roles"] if "production" in role]
    assert not [name for name in left["secrets"] if "production" in name]
    staging = {name: said for name, said in verbs(clouds.steps("staging", "other")).items() if "keep" not in said}
    assert set(staging) <= {"snowflake/tables"}, staging

    perform.delete(clouds.steps(), clouds.told.append, delete_data=True)
    perform.delete(clouds.steps("staging", "other"), clouds.told.append, delete_data=True)
    assert clouds.aws.state() == before
    shown = caplog.text + "".join(capsys.readouterr()) + repr(clouds.told)
    assert not [secret for secret in hidden if secret in shown]


def _is_entered_with_its_own_settings(clouds: Clouds) -> None:
    """What `lakehouse deploy environment` prints lets the running lakehouse in."""
    made = settings(clouds.access().names)["snowflake"]
    resource = Snowflake(**made, host="127.0.0.1", port=clouds.snowflake.port, protocol="http")
    _, [(user, role)] = resource.query("SELECT CURRENT_USER(), CURRENT_ROLE()")
    names = clouds.access().names
    assert (user, role) == (names.snowflake("USER"), names.snowflake("ROLE"))


def _keys_are_replaced_and_both_go_on(clouds: Clouds) -> None:
    secret = f"{clouds.access().names.confluent_secrets}/kafka_cluster/spark/python_client"
    client = clouds.aws.strict.client("secretsmanager", region=REGION)

    def current(name: str) -> dict[str, str]:
        return json.loads(client.get_secret_value(SecretId=name, VersionStage="AWSCURRENT")["SecretString"])

    old, old_pair = current(secret), current(clouds.access().names.snowflake_secret)
    kept = list(rotate(clouds.steps(), Policy(day_count=30), clouds.sleepless.clock))
    assert (current(secret), current(clouds.access().names.snowflake_secret)) == (old, old_pair), kept

    said = list(rotate(clouds.steps(), Policy(day_count=0), clouds.sleepless.clock))

    new, new_pair = current(secret), current(clouds.access().names.snowflake_secret)
    assert new["sasl.username"] != old["sasl.username"], said
    assert new_pair["private_key"] != old_pair["private_key"], said
    assert {old["sasl.username"], new["sasl.username"]} <= set(clouds.confluent.state.keys)
    assert not [line for line in said if new["sasl.password"] in line or "PRIVATE" in line]


def test_a_plan_shows_each_cloud_that_can_be_asked(clouds: Clouds, monkeypatch: pytest.MonkeyPatch):
    """Through the command line, with AWS's credentials alone, and then without them."""
    declared = clouds.config().model_copy(update={"deployments": {"aws": clouds.access().deployment}})
    monkeypatch.setattr(configuration, "load", lambda: declared)
    given = ["deploy", "plan", "--env", "aws", "--confluent-url", clouds.confluent.url]
    without = [*given, "--confluent-api-secret", "wrong", "--admin-user-secrets-root-path", "/nothing"]

    planned = CliRunner().invoke(main, without)
    assert planned.exit_code == 1
    assert f"+ S3 bucket '{clouds.access().names.bucket}': is not there" in planned.output
    assert "? environment 'lakehouse-production': Confluent Cloud" in planned.output
    assert "There is no secret '/nothing'" in planned.output
    assert re.search(r"\d+ to create, .*\d+ unknown\n$", planned.output)

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    key = ["--confluent-api-key", ADMIN, "--confluent-api-secret", clouds.confluent.admin_secret]
    planned = CliRunner().invoke(main, [*given, *key])
    assert planned.exit_code == 1
    assert "+ environment 'lakehouse-production': is not there" in planned.output
    assert "does not answer" in planned.output


def test_credentials_of_another_account_change_nothing(clouds: Clouds):
    access = clouds.access()
    other = Access(access.deployment.model_copy(update={"account": "999999999999"}))
    before = clouds.aws.state()
    with pytest.raises(configuration.ConfigError, match="belongs into 999999999999"):
        other.check_account()
    assert clouds.aws.state() == before
