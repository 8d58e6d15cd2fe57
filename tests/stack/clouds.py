"""The three clouds in small: a strict AWS, a stand-in of Confluent Cloud, a local Snowflake server; and a REST catalog
with nothing in it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from aws_world import ACCOUNT, REGION, World, world
from confluent_server import ADMIN, ConfluentServer
from rest_stand_in import RestStandIn
from sleepless import Sleepless
from snowflake_fixtures import Server, key_pair, started

from lakehouse.config.deployment import Deployment
from lakehouse.config.loader import Config
from lakehouse.deploy.credentials import ADMIN_SECRET, Access
from lakehouse.deploy.step import Step
from lakehouse.deploy.steps import deployment_steps
from lakehouse.local.snowflake.storage import IAM_USER_ARN
from resources.rest_catalog import RestCatalog

TOPICS = {
    "stock_trades": {"source": {"type": "datagen", "schema_file": "schemas/stock_trades.avsc"}},
    "users": {"mode": "upsert", "key": "userid"},
}


class Clouds:
    """The three clouds, and an administrator's access to them."""

    def __init__(self, aws: World, confluent: ConfluentServer, snowflake: Server, rest: RestStandIn):
        self.aws, self.confluent, self.snowflake, self.rest = aws, confluent, snowflake, rest
        self.sleepless = Sleepless()
        self.told: list[Any] = []
        self.topics: dict[str, Any] = TOPICS
        self.flink: dict[str, str] = {}

    def access(self, name: str = "production") -> Access:
        spark = (f"arn:aws:iam::{ACCOUNT}:user/spark",)
        return Access(
            Deployment(name=name, account=ACCOUNT, region=REGION, spark_principals=spark, flink=self.flink),
            confluent_key=ADMIN,
            confluent_secret=self.confluent.admin_secret,
            confluent_url=self.confluent.url,
            rest_catalog=self.rest_catalog,
        )

    def rest_catalog(self) -> RestCatalog:
        return RestCatalog(uri=self.rest.address, warehouse="lake", client_id="reader", client_secret=self.rest.secret)

    def config(self, namespace: str = "trading") -> Config:
        return Config.model_validate(
            {
                "namespace": namespace,
                "topics": {name: {**topic, "name": name, "table": name} for name, topic in self.topics.items()},
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
        return [*found, self.confluent.admin_secret, self.snowflake.admin_password, self.rest.secret]


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
        with ConfluentServer() as confluent, RestStandIn() as rest, started(folder) as snowflake:
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
            yield Clouds(aws, confluent, snowflake, rest)
        assert not confluent.violations
