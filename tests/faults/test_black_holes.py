"""Every system that a run, a sensor or a stream talks to may accept connections and never answer: none may hang it."""

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
from resources import secret
from resources.athena import Athena
from resources.aws import Glue
from resources.catalog import Catalog
from resources.kafka import Kafka
from resources.open_lineage import OpenLineage
from resources.rest_catalog import RestCatalog
from resources.schema_registry import SchemaRegistry
from resources.snowflake import Snowflake
from resources.spark import Spark
from resources.webhook import Webhook

LOADED = (boto3, dagster_snowflake, schema_registry)
"""Loaded before the clock starts: it takes seconds, and threads that load them together get in each other's way."""

SECONDS = 60
"""When Dagster ends a sensor's tick."""


@pytest.fixture
def hole(monkeypatch):
    """Address of a listener that takes connections and requests, and answers nothing."""
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
    """A catalog whose database another program has locked."""
    uri = f"sqlite:///{folder / 'locked.db'}"
    SqlCatalog("lake", uri=uri, warehouse="s3://lake/warehouse")
    holder = sqlite3.connect(folder / "locked.db", check_same_thread=False, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    return holder, Catalog(type="sql", uri=uri, warehouse="s3://lake/warehouse")


def catalog_on(address, folder):
    """A catalog that has a table, whose files are in S3 at an address."""
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


def test_nothing_waits_for_ever_for_a_system_that_never_answers(hole, tmp_path):
    url = f"http://{hole}"
    event = RunEvent(
        eventType=RunState.COMPLETE,
        eventTime="2026-01-01T00:00:00Z",
        run=Run(runId="0192f0f1-0000-7000-8000-000000000000"),
        job=Job(namespace="n", name="j"),
        producer="https://example.com",
    )
    rest = {"uri": url, "warehouse": "w"}
    holder, locked = locked_catalog(tmp_path)
    work = {
        "Kafka": lambda: Kafka(bootstrap_servers=hole).cluster_id(),
        "schema registry": lambda: SchemaRegistry(url=url).versions("trades-value"),
        "Spark Connect": lambda: Spark(remote=f"sc://{hole}", stall_seconds=5).apart().session({}),
        "Glue": lambda: Glue(region="eu-west-1", catalog_id="1").registration("trading", "trades"),
        "Glue as the catalog": lambda: Catalog(type="glue", warehouse="s3://l/w").load("trading", "trades"),
        "the catalog's database": lambda: locked.load("trading", "trades"),
        "S3": lambda: catalog_on(hole, tmp_path).load("trading", "trades"),
        "secrets": lambda: secret.values(json.dumps("never-made")),
        "Athena": lambda: Athena(region="eu-west-1").query("SELECT 1"),
        "Snowflake": lambda: snowflake_on(hole, tmp_path).query("SELECT 1"),
        "REST catalog": lambda: RestCatalog(**rest).registered("trading", "trades"),
        "OAuth": lambda: RestCatalog(**rest, credential="id:secret", oauth2_server_uri=url).registered("a", "b"),
        "webhook": lambda: Webhook(url=url).send("headline"),
        "OpenLineage": lambda: OpenLineage(url=url).emit(event),
    }

    def ended(what):
        began = time.monotonic()
        try:
            found = f"answered {what()}"
        except Unreachable:
            found = "Unreachable"
        except Exception as error:
            found = repr(error)
        return found, time.monotonic() - began

    with ThreadPoolExecutor(len(work)) as pool:
        found = dict(zip(work, pool.map(ended, work.values()), strict=True))
    holder.close()
    assert {name: how for name, (how, _) in found.items()} == dict.fromkeys(work, "Unreachable"), found
    assert max(seconds for _, seconds in found.values()) < SECONDS, found
