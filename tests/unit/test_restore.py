"""Restoration of the registrations that the embedded Glue and Snowflake lose when they stop."""

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
import snowflake.connector
from botocore.exceptions import ClientError
from confluent_kafka import Producer
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pyiceberg.table import StaticTable

from lakehouse.cli.restore import Restoration
from lakehouse.local.stack import ServerState
from tests.simulation.choices import Choices
from tests.simulation.systems.readers import Cursor, MemorySnowflakeServer
from tests.simulation.world import World
from tests.support.declared import declare

SECONDS = 60
ROWS = pa.table({"id": [1]})


@pytest.fixture(scope="module")
def cluster():
    """The address of a mock cluster with two topics that the route matches."""
    host = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    [broker] = host.list_topics(timeout=SECONDS).brokers.values()
    for name in ("orders", "shop.a", "shop.unread"):
        host.list_topics(name, timeout=SECONDS)
    yield f"{broker.host}:{broker.port}"
    host.flush(0)


@pytest.fixture
def registered(monkeypatch, tmp_path, cluster, glue):
    """A function that returns the tables in Glue; `orders` and the table of `shop.a` have rows, others have none."""
    key = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key.p8").write_bytes(key)
    systems = {"kafka": {"bootstrap_servers": cluster}, "snowflake": {"private_key_path": str(tmp_path / "key.p8")}}
    catalog = declare(
        monkeypatch,
        tmp_path,
        systems=systems,
        namespace="n",
        topics={"orders": {"key": "id"}, "unread": {"key": "id"}},
        routes={"shop": {"pattern": r"shop\..*", "key": "id"}},
    )
    iceberg = catalog.iceberg()
    iceberg.create_namespace("n")
    for name in ("orders", "shop_a", "unread"):
        iceberg.create_table(f"n.{name}", ROWS.schema)
    for name in ("orders", "shop_a"):
        iceberg.load_table(f"n.{name}").append(ROWS)

    def location(namespace, table):
        try:
            shown = glue.client().get_table(DatabaseName=namespace, Name=table)
        except ClientError:
            return None
        return shown["Table"]["Parameters"]["metadata_location"]

    files = SimpleNamespace(metadata_at=lambda at: StaticTable.from_metadata(at).metadata)
    of_glue = SimpleNamespace(location=location)
    server = MemorySnowflakeServer(World(Choices(None)), files, of_glue, lambda *_: None)
    connection = SimpleNamespace(cursor=lambda: Cursor(server), close=lambda: None)
    monkeypatch.setattr(snowflake.connector, "connect", lambda **_: connection)

    return lambda: [table["Name"] for table in glue.client().get_tables(DatabaseName="n")["TableList"]]


def start(servers, ready):
    """Return the topics that are restored when these servers are ready."""
    restoring = Restoration(servers)
    for server in ready:
        restoring.on_ready(ServerState(server, "ready", "", Path("log"), seconds=1.0))
    return restoring.result()


def test_restored_tables_include_those_of_routes(registered):
    servers = ("kafka", "s3", "aws", "snowflake", "dagster")
    assert start(servers, servers[1:4]) == []
    assert start(servers, servers[:4]) == ["orders", "shop.a"]
    assert sorted(registered()) == ["orders", "shop_a"]


def test_restored_tables_without_kafka_are_the_declared_ones(registered):
    servers = ("s3", "aws", "snowflake")
    assert start(servers, servers) == ["orders"]
    assert registered() == ["orders"]
