"""The three clouds and an empty REST catalog, as local servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from lakehouse.config.deployment import Deployment, TableflowStorage
from lakehouse.config.model import Config
from lakehouse.deploy.credentials import CloudCredentials, RotationCredentials
from lakehouse.deploy.graph import deployment_resources
from lakehouse.deploy.resource import Resource
from lakehouse.deploy.rotation import Policy, recorded_outputs, rotate
from resources.iceberg.rest_catalog import RestCatalog
from tests.support.clouds.aws.world import ACCOUNT, REGION, World
from tests.support.clouds.confluent.server import ADMIN, ConfluentServer
from tests.support.clouds.rest.stand_in import RestStandIn
from tests.support.clouds.snowflake.server import Server
from tests.support.sleepless import Sleepless
from tools.repository import PROJECT

TOPICS = {
    "stock_trades": {
        "source": {"type": "datagen", "quickstart": "STOCK_TRADES", "schema_file": "schemas/stock_trades.avsc"}
    },
    "users": {"mode": "upsert", "key": "userid"},
}


class Clouds:
    """The three clouds, with the credentials of an administrator."""

    def __init__(self, aws: World, confluent: ConfluentServer, snowflake: Server, rest: RestStandIn):
        self.aws, self.confluent, self.snowflake, self.rest = aws, confluent, snowflake, rest
        self.sleepless = Sleepless()
        self.reported: list[Any] = []
        self.topics: dict[str, Any] = TOPICS
        self.flink: dict[str, str] = {}
        self.tableflow = TableflowStorage()

    def credentials(self, name: str = "production") -> CloudCredentials:
        spark, rotation = (f"arn:aws:iam::{ACCOUNT}:user/spark",), (f"arn:aws:iam::{ACCOUNT}:user/rotation",)
        return CloudCredentials(
            Deployment(
                name=name,
                account=ACCOUNT,
                region=REGION,
                spark_principals=spark,
                rotation_principals=rotation,
                flink=self.flink,
                tableflow=self.tableflow,
            ),
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

    def declare(self, folder: Path, **settings: Any) -> Path:
        """Write a lakehouse.yaml with the deployment `aws`, and return its path.

        Args:
            folder: The folder of the file.
            settings: Settings of the deployment that differ.
        """
        deployment = self.credentials().deployment.model_copy(update=settings)
        declared = {
            "namespace": self.config().namespace,
            "topics": self.topics,
            "environments": {"aws": {}},
            "deployments": {"aws": deployment.model_dump(mode="json", exclude_defaults=True)},
        }
        file = folder / "lakehouse.yaml"
        file.write_text(yaml.safe_dump(declared).replace("schemas/", f"{PROJECT}/schemas/"))
        return file

    def resources(self, name: str = "production", namespace: str = "trading") -> list[Resource]:
        return deployment_resources(self.config(namespace), self.credentials(name), self.sleepless.clock)

    def rotation_credentials(self) -> RotationCredentials:
        """Return the credentials of the job that replaces keys."""
        return RotationCredentials(self.credentials().deployment, confluent_url=self.confluent.url)

    def rotate(self, policy: Policy) -> list[str]:
        """Replace keys with the credentials of that job, and return what it reports."""
        resources = deployment_resources(self.config(), self.rotation_credentials(), self.sleepless.clock)
        return list(rotate(resources, policy, self.sleepless.clock, recorded_outputs(resources)))

    def secrets(self) -> list[str]:
        """Return all secret values, which no output may contain."""
        client = self.aws.strict.client("secretsmanager", region=REGION)
        names = [secret["Name"] for secret in client.list_secrets()["SecretList"]]
        responses = [client.get_secret_value(SecretId=name, VersionStage="AWSCURRENT") for name in names]
        values = [json.loads(response["SecretString"]) for response in responses]
        hidden = ("sasl.password", "private_key", "snowflake_rsa_private_key_1_pem", "api.key.secret")
        secrets = [value[field] for value in values for field in hidden if field in value]
        return [*secrets, self.confluent.admin_secret, self.snowflake.admin_password, self.rest.secret]
