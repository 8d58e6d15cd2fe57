"""A chain of ingestion, publication, maintenance and queries in a deployment of the three clouds."""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient, NewTopic
from moto.backends import get_backend
from pyiceberg.catalog.glue import GlueCatalog

from lakehouse.cli.main import main
from lakehouse.config.model import Config, Topic
from lakehouse.core.tables import naming
from lakehouse.core.tables.naming import TableRef
from lakehouse.deploy.aws import iam_policies
from lakehouse.deploy.settings import settings
from lakehouse.local import client_environment, jars
from lakehouse.local.home import Home
from lakehouse.local.processes import ports, process
from lakehouse.local.servers import spark_server
from lakehouse.pipeline.batches.dry_run import dry_run
from lakehouse.pipeline.clients import engine_client
from lakehouse.pipeline.maintenance import maintain
from lakehouse.query import duckdb
from lakehouse.readers import reader_of
from tests.support.clouds.all_clouds import Clouds
from tests.support.clouds.aws.enforced import Enforced
from tests.support.clouds.aws.world import ACCOUNT, REGION
from tests.support.clouds.confluent.state import ORGANIZATION_ID
from tests.support.processes.cluster import free_ports
from tests.support.topics import Stream
from tools.repository import PROJECT


@dataclass
class Chain:
    """A deployment in the three clouds, with the resources of its environment."""

    clouds: Clouds
    resources: Any
    stream: Stream
    enforced: Enforced
    keys: dict[str, Any]
    """The access keys of the users that assume roles, by name."""

    @property
    def cluster(self) -> str:
        return str(next(iter(self.clouds.confluent.state.clusters)))


@contextmanager
def topics(names: Iterable[str]) -> Iterator[None]:
    """Create topics, and delete them at the end."""
    admin = AdminClient({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
    created = admin.create_topics([NewTopic(name, 1) for name in names])
    for topic in created.values():
        topic.result()
    yield
    for topic in admin.delete_topics(list(created)).values():
        topic.result()


def create_role(clouds: Clouds, arn: str) -> None:
    iam = clouds.aws.strict.client("iam", account=arn.split(":")[4])
    trust = json.dumps(iam_policies.own_trust(f"arn:aws:iam::{ACCOUNT}:user/spark"))
    iam.create_role(RoleName=arn.rpartition("/")[2], AssumeRolePolicyDocument=trust)


def as_user(patch: pytest.MonkeyPatch, key: Any) -> None:
    patch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    patch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    boto3.DEFAULT_SESSION = None


def lead_to_kafka(clouds: Clouds) -> None:
    """Change the Kafka addresses in the secrets, because the simulated Confluent Cloud has no Kafka."""
    client, path = (
        clouds.aws.strict.client("secretsmanager", region=REGION),
        clouds.credentials().names.confluent_secrets,
    )
    addresses = {
        "kafka_cluster/spark/python_client": {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]},
        "schema_registry_cluster/spark/python_client": {"schema.registry.url": os.environ["SCHEMA_REGISTRY_URL"]},
    }
    for name, address in addresses.items():
        secret = f"{path}/{name}"
        current = client.get_secret_value(SecretId=secret, VersionStage="AWSCURRENT")
        value = json.dumps(json.loads(current["SecretString"]) | address)
        # moto does not move AWSCURRENT from a version that has AWSPENDING, too.
        changed = client.put_secret_value(SecretId=secret, SecretString=value, VersionStages=["AWSPENDING"])
        client.update_secret_version_stage(
            SecretId=secret,
            VersionStage="AWSCURRENT",
            MoveToVersionId=changed["VersionId"],
            RemoveFromVersionId=current["VersionId"],
        )


@contextmanager
def serving_spark(stack: Home, folder: Path) -> Iterator[str]:
    """Run a Spark server that uses the AWS endpoints of this process."""
    home, [port] = Home(folder / "home"), free_ports(1)
    jars.fetch(["spark"])
    context = client_environment.context(stack, ports.recorded(stack))
    aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    variables = {**context.environment, **aws, "SPARK_REMOTE": f"sc://localhost:{port}"}
    variables.pop("AWS_ENDPOINT_URL_S3", None)
    server = spark_server.server(
        replace(context, home=home, ports={**context.ports, "spark": port}, environment=variables), {}
    )
    running = process.start(server, home)
    try:
        process.wait_until_ready(server, running.leader, home, threading.Event())
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", variables["SPARK_CONNECT_AUTHENTICATE_TOKEN"])
            yield server.address
    finally:
        process.stop(home, server.name)


def deployed(clouds: Clouds) -> Config:
    """Return the environment that `lakehouse deploy environment` prints, with local addresses."""
    systems = settings(clouds.credentials().names)
    systems["kafka"]["security_protocol"] = "PLAINTEXT"
    del systems["kafka"]["sasl_mechanism"]
    systems["glue"]["tableflow_database"] = next(iter(clouds.confluent.state.clusters))
    systems["catalog"]["s3_endpoint"] = os.environ["AWS_ENDPOINT_URL"]
    systems["snowflake"] |= {"host": "127.0.0.1", "port": clouds.snowflake.port, "protocol": "http"}
    declared = clouds.config().model_dump(by_alias=True)
    declared["topics"] = {name: {**topic, "name": name} for name, topic in declared["topics"].items()}
    return Config.model_validate({**declared, "environments": {"aws": systems}})


def command_variables(clouds: Clouds, key: Any, folder: Path, topics: Iterable[Topic] = ()) -> dict[str, str]:
    """Write a lakehouse.yaml of the deployment, and return the variables of a command that uses it.

    Args:
        clouds: The clouds.
        key: The access key.
        folder: The folder of the file, which is empty.
        topics: Topics that are declared beside those of the deployment.
    """
    config = deployed(clouds)
    config = config.model_copy(update={"topics": {**config.topics, **{topic.name: topic for topic in topics}}})
    declared = config.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"root", "file"})
    declared["deployments"] = {"aws": clouds.credentials().deployment.model_dump(mode="json", exclude_defaults=True)}
    (folder / "schemas").symlink_to(PROJECT / "schemas")
    (folder / "lakehouse.yaml").write_text(yaml.safe_dump(declared))
    return {
        "LAKEHOUSE_CONFIG": str(folder / "lakehouse.yaml"),
        "CONFLUENT_CLOUD_URL": clouds.confluent.url,
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
    }


def run_verify(clouds: Clouds, key: Any, folder: Path) -> Result:
    """Run `lakehouse deploy verify` with an access key."""
    runner = CliRunner(env=command_variables(clouds, key, folder))
    boto3.DEFAULT_SESSION = None
    return runner.invoke(main, ["deploy", "verify", "--env", "aws"])


def run(chain: Chain) -> None:
    """Ingest, publish, maintain, query and dry-run one topic, and read a table of Tableflow."""
    stream, resources = chain.stream, chain.resources
    stream.schema()
    dry_run(stream.namespace, stream.topic, stream.systems, 10)
    for first in (0, 100, 200):
        stream.produce_trades(range(first, first + 100))
        stream.ingest()
    stream.produce([{"value": b"no trade"}])
    stream.ingest()
    ref, table = resources.catalog.chain(stream.topic.table_in(stream.namespace)).require_published()
    reader_of("glue").publish(stream.topic, ref, table, resources)
    reader_of("snowflake").publish(stream.topic, ref, table, resources)
    dry_run(stream.namespace, stream.topic, stream.systems, 10)
    _tableflow_table(chain)
    _leave_orphan(chain, table.location())
    done = list(maintain(stream.namespace, stream.topic, resources.catalog, engine_client(resources.spark)))
    assert "removed 1 orphaned files" in done[0].actions, done
    assert duckdb.query(f'SELECT count(*) FROM "{ref.namespace}"."{ref.name}"', resources).rows == [(300,)]
    resources.athena.query("SELECT 1")
    _, [(count,)] = resources.snowflake.query(f'SELECT count(*) FROM {ref.namespace}."{ref.name.upper()}"')
    assert count == 300


def _tableflow_table(chain: Chain) -> None:
    """Write a table as Tableflow does, and read it as its asset does."""
    endpoint, clouds = os.environ["AWS_ENDPOINT_URL"], chain.clouds
    credentials = {"s3.access-key-id": "ours", "s3.secret-access-key": "secret"}
    credentials |= {"client.access-key-id": "ours", "client.secret-access-key": "secret"}
    catalog = GlueCatalog("tableflow", **credentials, **{"s3.endpoint": endpoint, "client.region": REGION})
    catalog.create_namespace(chain.cluster)
    rows = pa.table({"userid": ["User_1"], "price": [5]})
    env = next(iter(clouds.confluent.state.environments))
    prefix = f"1011/0110/{ORGANIZATION_ID}/{env}/{chain.cluster}/v1"
    location = f"s3://{clouds.credentials().names.tableflow_bucket}/{prefix}/{uuid.uuid4()}"
    table = catalog.create_table((chain.cluster, "stock_trades"), rows.schema, location=location)
    table.append(rows)
    resources = chain.resources
    table_of_asset = resources.catalog.load(TableRef(chain.cluster, "stock_trades"))
    session = resources.spark.session(resources.catalog.spark_settings())
    name = f"`{chain.cluster}`.stock_trades"
    assert session.sql(f"SELECT count(*) FROM {naming.CATALOG}.{name}").first()[0] == 1
    assert table_of_asset.scan().to_arrow().num_rows == 1


def _leave_orphan(chain: Chain, location: str) -> None:
    """Create an unreferenced file in the location of a table that is old enough to be removed."""
    names = chain.clouds.credentials().names
    s3 = chain.clouds.aws.strict.client("s3", region=REGION)
    key = f"{urlsplit(location).path.lstrip('/')}/data/orphan.parquet"
    s3.put_object(Bucket=names.bucket, Key=key, Body=b"")
    orphan = get_backend("s3")[ACCOUNT]["aws"].buckets[names.bucket].keys[key]
    orphan.last_modified -= dt.timedelta(days=7)
