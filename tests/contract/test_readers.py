"""Behaviour that every reader has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
import snowflake.connector
from pyiceberg.catalog import Catalog, load_catalog

from lakehouse.core.errors import LakehouseError, UnclearState, Unreachable
from lakehouse.core.sql import SNOWFLAKE
from lakehouse.readers import reader_of, registered
from lakehouse.readers.reader import Registration
from resources.aws.glue import Glue
from resources.iceberg.rest_catalog import RestCatalog
from tests.support.clouds.rest.client import CLIENT_ID, SECRET
from tests.support.clouds.rest.server import SCOPE, WAREHOUSE, Polaris
from tests.support.servers.proxy import GLUE_ERROR, Fault, Proxy
from tests.support.topics import Stream

QUERY = f"count(*), sum({SNOWFLAKE.identifier('PRICE')})"


class System:
    """A reader's system, behind a proxy, and access to it that is independent of the reader.

    Attributes:
        proxy: The proxy between the reader and the system.
        clients: The reader's clients.
        lost: A fault that loses the response to a publication.
        catalog: A pyiceberg catalog of the system; None if other programs cannot commit through it.
    """

    name: str
    proxy: Proxy
    lost: Fault
    catalog: Catalog | None = None

    def __init__(self, resources: Any):
        self.resources = resources
        self.clients = SimpleNamespace(catalog=resources.catalog)

    def publish(self, stream: Stream, table: Any = None) -> Registration:
        """Publish the table of a topic, or the state in which it was loaded before."""
        ref, newest = self.resources.catalog.chain(stream.topic.table_in(stream.namespace)).require_published()
        return reader_of(self.name).publish_tables(stream.topic, ref, table or newest, self.clients)

    def current(self, stream: Stream) -> Registration | None:
        """Return the state that the reader reports."""
        return reader_of(self.name).current(stream.topic.table_in(stream.namespace), self.clients)

    def totals(self, stream: Stream) -> tuple[int, int]:
        """Return the number of rows and the sum of prices that a query of the system returns."""
        assert self.catalog is not None
        prices = self.catalog.load_table((stream.namespace, stream.topic.table)).scan().to_arrow()["price"].to_pylist()
        return len(prices), sum(prices)

    def create_other_table(self, stream: Stream) -> None:
        """Create another table of the name."""
        assert self.catalog is not None
        self.catalog.create_namespace_if_not_exists(stream.namespace)
        table = stream.table()
        location = f"{self.resources.catalog.warehouse}/{stream.namespace}/other"
        self.catalog.create_table((stream.namespace, stream.topic.table), table.schema(), location=location)


class GlueSystem(System):
    name = "glue"
    lost = Fault("lost response", "UpdateTable", body=GLUE_ERROR)

    def __init__(self, resources: Any, polaris: Polaris):
        super().__init__(resources)
        self.proxy = Proxy(os.environ["AWS_ENDPOINT_URL"])
        address = self.proxy.address

        class ProxiedGlue(Glue):
            def client(self) -> Any:
                return boto3.client("glue", region_name=self.region, endpoint_url=address)

        self.clients.glue = ProxiedGlue(region=resources.glue.region, catalog_id=resources.glue.catalog_id)
        self.catalog = load_catalog("elsewhere", type="glue", **resources.catalog.file_io())


class RestSystem(System):
    name = "rest"
    lost = Fault("lost response", "POST .*/register", status=503)

    def __init__(self, resources: Any, polaris: Polaris):
        super().__init__(resources)
        self.proxy = polaris
        login = {"client_id": CLIENT_ID, "client_secret": SECRET}
        self.clients.rest_catalog = RestCatalog(uri=polaris.address, warehouse=WAREHOUSE, **login)
        tokens = {"credential": f"{CLIENT_ID}:{SECRET}", "oauth2-server-uri": f"{polaris.address}/v1/oauth/tokens"}
        where = {"uri": polaris.address, "warehouse": WAREHOUSE, "scope": SCOPE}
        self.catalog = load_catalog("elsewhere", type="rest", **where, **tokens, **resources.catalog.file_io())


class SnowflakeSystem(System):
    name = "snowflake"
    lost = Fault("lost response", "query-request", status=503)

    def __init__(self, resources: Any, polaris: Polaris):
        super().__init__(resources)
        snowflake = resources.snowflake
        self.proxy = Proxy(f"http://{snowflake.host}:{snowflake.port}")
        port = urlsplit(self.proxy.address).port
        self.clients.snowflake = snowflake.model_copy(update={"port": port})

    def publish(self, stream: Stream, table: Any = None) -> Registration:
        stream.show("glue")
        return super().publish(stream, table)

    def totals(self, stream: Stream) -> tuple[int, int]:
        _, [row] = self.resources.snowflake.query(f"SELECT {QUERY} FROM {self._name(stream)}")
        return row

    def create_other_table(self, stream: Stream) -> None:
        database, schema, _ = self._name(stream).split(".")
        self.resources.snowflake.query(f"CREATE SCHEMA IF NOT EXISTS {database}.{schema}")
        self.resources.snowflake.query(f"CREATE TABLE {self._name(stream)} (a INT)")

    def _name(self, stream: Stream) -> str:
        parts = (self.resources.snowflake.database, stream.namespace, stream.topic.table)
        return SNOWFLAKE.identifier(*(part.upper() for part in parts))


SYSTEMS = {system.name: system for system in (GlueSystem, SnowflakeSystem, RestSystem)}


@pytest.fixture(scope="module", params=SYSTEMS)
def system(request: Any, resources: Any, rest_server: Any) -> Iterator[System]:
    with Polaris(*rest_server) as polaris:
        yield SYSTEMS[request.param](resources, polaris)


@pytest.fixture(autouse=True)
def healed(request: pytest.FixtureRequest) -> Iterator[None]:
    """End the faults of a test."""
    yield
    if "system" in request.fixturenames:
        request.getfixturevalue("system").proxy.heal()


def ingested(resources: Any) -> Stream:
    """Return a topic after its ingestion."""
    stream = Stream(resources)
    stream.produce_trades(range(50))
    stream.ingest()
    return stream


@pytest.fixture
def stream(resources: Any) -> Stream:
    return ingested(resources)


@pytest.fixture(scope="module")
def published(system: System, resources: Any) -> Stream:
    """A topic after its first publication in a system. The tests of the system add records to it."""
    stream = ingested(resources)
    assert system.current(stream) is None
    system.publish(stream)
    return stream


def totals(stream: Stream) -> tuple[int, int]:
    prices = [row["price"] for row in stream.expected_rows()]
    return len(prices), sum(prices)


def ingest_more(stream: Stream) -> None:
    stream.produce_trades(range(50, 80))
    stream.ingest()


def test_contract_covers_all_readers() -> None:
    assert set(SYSTEMS) == {reader.name for reader in registered()}


def test_publish_again_changes_nothing(system: System, published: Stream) -> None:
    first = system.publish(published)
    assert system.totals(published) == totals(published)
    assert system.publish(published).metadata_location == first.metadata_location
    assert system.totals(published) == totals(published)


def test_publish_exposes_each_new_snapshot(system: System, published: Stream) -> None:
    ingest_more(published)
    registration = system.publish(published)

    assert system.totals(published) == totals(published)
    assert registration.metadata_location == published.table().metadata_location
    current = system.current(published)
    assert current is not None and current.snapshot_id == published.table().metadata.current_snapshot_id


def test_publish_after_roll_over_exposes_rest_of_closed_table(system: System, resources: Any) -> None:
    stream = Stream(resources, settings={"on_incompatible": "new_table"})
    stream.produce_trades(range(50))
    stream.ingest()
    system.publish(stream)
    stream.produce_trades(range(50, 80))
    stream.ingest()
    before = totals(stream)
    stream.produce_with_types(range(80, 90), {"account": "long"}, account=1)
    stream.ingest()

    registration = system.publish(stream)

    successor = stream.table(f"{stream.topic.table}__v2")
    assert registration.snapshot_id == successor.metadata.current_snapshot_id
    assert system.totals(stream) == before
    current = system.current(stream)
    assert current is not None and current.snapshot_id == stream.table().metadata.current_snapshot_id


def test_publish_of_an_older_state_keeps_the_newer_one(system: System, published: Stream) -> None:
    older = published.table()
    ingest_more(published)
    newer = system.publish(published)
    assert system.publish(published, older).metadata_location == newer.metadata_location
    assert system.totals(published) == totals(published)


def test_publish_with_a_lost_answer_succeeds(system: System, published: Stream) -> None:
    ingest_more(published)
    fault = system.proxy.inject(system.lost)
    registration = system.publish(published)
    assert fault.fired == 1
    assert registration.metadata_location == published.table().metadata_location
    assert system.totals(published) == totals(published)


def test_publish_to_a_system_that_is_down_is_unreachable(
    system: System, published: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Snowflake's client would try to log in for ten seconds and more.
    connect = snowflake.connector.connect
    monkeypatch.setattr(snowflake.connector, "connect", lambda **options: connect(**options | {"login_timeout": 1}))
    system.proxy.inject(Fault("cut", times=1_000))
    with pytest.raises(Unreachable):
        system.publish(published)


def test_publish_over_another_table_of_the_name_is_refused(system: System, stream: Stream) -> None:
    system.create_other_table(stream)
    with pytest.raises(LakehouseError) as refusal:
        system.publish(stream)
    assert not isinstance(refusal.value, Unreachable)
    assert stream.topic.table.upper() in str(refusal.value).upper()


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name != "snowflake"], indirect=True)
def test_publish_over_a_commit_of_another_program_is_refused(system: System, stream: Stream) -> None:
    """Snowflake's external tables are read-only (tests/integration/test_snowflake_access.py)."""
    assert system.catalog is not None
    system.publish(stream)
    table = system.catalog.load_table((stream.namespace, stream.topic.table))
    table.append(table.scan().to_arrow())
    ingest_more(stream)
    with pytest.raises(UnclearState):
        system.publish(stream)
    assert (
        system.catalog.load_table((stream.namespace, stream.topic.table)).metadata_location == table.metadata_location
    )
