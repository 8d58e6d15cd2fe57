"""Systems that accept connections and never respond: calls of runs, sensors and streams end with an error in time."""

import json
import socket
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import boto3
import dagster_snowflake
import pytest
from confluent_kafka import schema_registry
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse.core.errors import Unreachable
from lakehouse.core.tables.naming import TableRef
from resources.aws import secret_reader
from resources.aws.athena import Athena
from resources.aws.glue import Glue
from resources.iceberg.catalog import Catalog
from resources.iceberg.rest_catalog import RestCatalog
from resources.kafka.kafka import Kafka
from resources.open_lineage import OpenLineage
from resources.schema_registry import SchemaRegistry
from resources.snowflake.snowflake import Snowflake
from resources.spark.servers import Connect
from resources.webhook import Webhook

LOADED = (boto3, dagster_snowflake, schema_registry)
"""Modules that are loaded before the measurement: loading takes seconds, and parallel imports block each other."""

SECONDS = 60
"""The time after which Dagster ends a sensor's tick."""


@pytest.fixture
def silent_address(monkeypatch):
    """Yield the address of a listener that accepts connections and requests, and never responds."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{address}",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_REGION": "eu-west-1",
            "AWS_DEFAULT_REGION": "eu-west-1",
            "NO_PROXY": "127.0.0.1",
        }.items():
            monkeypatch.setenv(name, value)
        yield address


def locked_catalog(folder):
    """Return a connection that locks a catalog's database, and the catalog."""
    uri = f"sqlite:///{folder / 'locked.db'}"
    SqlCatalog("lake", uri=uri, warehouse="s3://lake/warehouse")
    connection = sqlite3.connect(folder / "locked.db", check_same_thread=False, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    return connection, Catalog(type="sql", uri=uri, warehouse="s3://lake/warehouse")


def catalog_on(address, folder):
    """Return a catalog with a table whose files are in S3 at an address."""
    uri = f"sqlite:///{folder / 'catalog.db'}"
    SqlCatalog("lake", uri=uri, warehouse="s3://lake/warehouse")
    with sqlite3.connect(folder / "catalog.db") as database:
        row = ("lake", "trading", "trades", "s3://lake/warehouse/trades/metadata/1.metadata.json", None, "TABLE")
        columns = "catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location"
        database.execute(f"INSERT INTO iceberg_tables ({columns}, iceberg_type) VALUES (?, ?, ?, ?, ?, ?)", row)
    return Catalog(
        type="sql", uri=uri, warehouse="s3://lake/warehouse", s3_endpoint=f"http://{address}", region="eu-west-1"
    )


def snowflake_on(address, folder):
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.p8").write_bytes(pem)
    host, port = address.split(":")
    return Snowflake(
        account="LOCAL",
        host=host,
        port=int(port),
        protocol="http",
        user="U",
        private_key_path=str(folder / "key.p8"),
        role="R",
        warehouse="W",
        database="D",
        aws_role_arn="arn:aws:iam::123456789012:role/snowflake",
        glue_catalog_id="123456789012",
        region="eu-west-1",
    )


def test_unresponsive_system_times_out(silent_address, tmp_path):
    url = f"http://{silent_address}"
    event = RunEvent(
        eventType=RunState.COMPLETE,
        eventTime="2026-01-01T00:00:00Z",
        run=Run(runId="0192f0f1-0000-7000-8000-000000000000"),
        job=Job(namespace="n", name="j"),
        producer="https://example.com",
    )
    rest = {"uri": url, "warehouse": "w"}
    connection, locked = locked_catalog(tmp_path)
    calls = {
        "Kafka": lambda: Kafka(bootstrap_servers=silent_address).cluster_id(),
        "schema registry": lambda: SchemaRegistry(url=url).versions("trades-value"),
        "Spark Connect": lambda: (
            Connect(remote=f"sc://{silent_address}", stall_seconds=5).with_own_session().session({})
        ),
        "Glue": lambda: Glue(region="eu-west-1", catalog_id="1").registration("trading", "trades"),
        "Glue as the catalog": lambda: Catalog(type="glue", warehouse="s3://l/w").load(TableRef("trading", "trades")),
        "the catalog's database": lambda: locked.load(TableRef("trading", "trades")),
        "S3": lambda: catalog_on(silent_address, tmp_path).load(TableRef("trading", "trades")),
        "secrets": lambda: secret_reader.read_secret_fields(json.dumps("never-made")),
        "Athena": lambda: Athena(region="eu-west-1").query("SELECT 1"),
        "Snowflake": lambda: snowflake_on(silent_address, tmp_path).query("SELECT 1"),
        "REST catalog": lambda: RestCatalog(**rest).registration("trading", "trades"),
        "OAuth": lambda: RestCatalog(**rest, credential="id:secret", oauth2_server_uri=url).registration("a", "b"),
        "webhook": lambda: Webhook(url=url).send("headline"),
        "OpenLineage": lambda: OpenLineage(url=url).emit(event),
    }

    def outcome(call):
        start = time.monotonic()
        try:
            result = f"responded {call()}"
        except Unreachable:
            result = "Unreachable"
        except Exception as error:
            result = repr(error)
        return result, time.monotonic() - start

    with ThreadPoolExecutor(len(calls)) as pool:
        outcomes = dict(zip(calls, pool.map(outcome, calls.values()), strict=True))
    connection.close()
    assert {name: result for name, (result, _) in outcomes.items()} == dict.fromkeys(calls, "Unreachable"), outcomes
    assert max(seconds for _, seconds in outcomes.values()) < SECONDS, outcomes
