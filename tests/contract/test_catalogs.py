"""Behaviour that every type of Iceberg catalog has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog as IcebergCatalog
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from lakehouse.core.errors import Unreachable
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.batches.dry_run import dry_run
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.maintenance import maintain
from lakehouse.pipeline.replay import replay
from resources.build import with_own_connections
from resources.iceberg.catalog import Catalog
from resources.iceberg.catalog_types import registered
from spark.engine import SparkEngines
from tests.integration.test_ingestion import WITH_VENUE
from tests.support.clouds.rest.lake import catalog_at
from tests.support.clouds.rest.server import Polaris
from tests.support.processes.cluster import free_ports
from tests.support.servers.postgresql import postgresql
from tests.support.topics import Stream, framed, in_order, once, trade

DATABASES = {"postgresql": "sql", "glue": "glue", "polaris": "rest"}
"""The type of the catalog in lakehouse.yaml by the database or server that contains it.

The catalog of all other tests is in SQLite.
"""


@dataclass
class Lake:
    """The clients of the environment, with another catalog."""

    clients: Clients

    def ingest(self, stream: Stream, **arguments: Any) -> list[Any]:
        """Ingest a topic."""
        return list(ingest(stream.namespace, stream.topic, self.clients, **arguments))

    def elsewhere(self) -> IcebergCatalog:
        """Return a pyiceberg catalog of its own."""
        catalog = self.clients.catalog
        rest = {"uri": catalog.uri, "warehouse": catalog.warehouse, "credential": catalog.credential}
        rest |= {"scope": catalog.scope, "oauth2-server-uri": f"{catalog.uri}/v1/oauth/tokens"}
        settings = rest if catalog.type == "rest" else {"uri": catalog.uri} if catalog.uri else {}
        return load_catalog("lake", type=catalog.type, **settings, **catalog.file_io())

    def table(self, stream: Stream) -> Table:
        """Return a table as pyiceberg reads it with a catalog of its own."""
        return self.elsewhere().load_table((stream.namespace, stream.topic.table))

    def rows(self, stream: Stream) -> list[dict[str, Any]]:
        """Return a table's rows in the order of the log."""
        return in_order(self.table(stream).scan().to_arrow().to_pylist())


@pytest.fixture(scope="module", params=DATABASES)
def lake(request: Any, resources: Any) -> Iterator[Lake]:
    # A Spark session keeps the catalog that it used first.
    with ExitStack() as stack:
        if request.param == "polaris":
            catalog = catalog_at(stack.enter_context(Polaris(*request.getfixturevalue("rest_server"))))
        else:
            uri = stack.enter_context(postgresql()) if request.param == "postgresql" else None
            catalog = Catalog(
                type=DATABASES[request.param],
                uri=uri,
                warehouse=resources.catalog.warehouse,
                s3_endpoint=resources.catalog.s3_endpoint,
                region=resources.catalog.region,
            )
        engines = stack.enter_context(closing(SparkEngines(resources.spark).with_own_session()))
        yield Lake(replace(Clients.of(resources), engines=engines, catalog=catalog))


@pytest.fixture(scope="module")
def stream(lake: Lake, resources: Any) -> Stream:
    """A topic whose table has rows. The tests of one catalog add to it, and each compares all of its rows."""
    stream = Stream(resources)
    stream.produce_trades(range(100))
    lake.ingest(stream)
    return stream


def assert_rows_are_records(lake: Lake, stream: Stream) -> None:
    """Assert that each record is one row. Rows that are older than the column `venue` have no value in it."""
    actual = [{"venue": None} | row for row in lake.rows(stream)]
    assert actual == [{"venue": None} | row for row in stream.expected_rows()]


def test_contract_covers_all_catalogs() -> None:
    assert set(DATABASES.values()) == set(registered())


def test_ingest_appends_each_record_once(lake: Lake, stream: Stream) -> None:
    stream.produce_trades(range(100, 150))
    [published] = lake.ingest(stream)
    head = lake.table(stream).current_snapshot()
    assert lake.ingest(stream) == []
    assert published.counts.rows == 50 and lake.table(stream).current_snapshot() == head
    assert_rows_are_records(lake, stream)


def test_ingest_added_field_becomes_a_column(lake: Lake, stream: Stream) -> None:
    schema = stream.schema(WITH_VENUE)
    stream.produce([{"value": framed(schema, WITH_VENUE, trade(n, venue="X"))} for n in range(20)])
    lake.ingest(stream)
    assert_rows_are_records(lake, stream)
    assert [row["venue"] for row in lake.rows(stream)].count("X") == 20
    docs = {name: lake.table(stream).schema().find_field(name).doc for name in ("venue", "price")}
    assert docs == {"venue": "Where", "price": "A simulated random trade price in pennies"}


def test_upsert_keeps_the_newest_row_of_each_key(lake: Lake, resources: Any) -> None:
    stream = Stream(resources, settings={"mode": "upsert"})
    for numbers in (range(100), range(100, 120)):
        stream.produce_trades(numbers)
        lake.ingest(stream)
    newest: dict[str, dict[str, Any]] = {}
    for row in sorted(stream.expected_rows(), key=lambda row: row["kafka_offset"]):
        newest[row["userid"]] = row
    assert lake.rows(stream) == in_order(list(newest.values()))


def test_ingest_of_two_writers_publishes_each_record_once(lake: Lake, stream: Stream) -> None:
    stream.produce_trades(range(150, 200))
    catalog = lake.clients.catalog

    with closing(lake.clients.engines.with_own_session()) as engines:
        other = Lake(replace(lake.clients, engines=engines, catalog=with_own_connections(catalog)))
        on_phase, published = once("publish", lambda: other.ingest(stream))
        lake.ingest(stream, on_phase=on_phase)

    [[batch]] = published
    assert batch.counts.rows == 50
    assert_rows_are_records(lake, stream)
    assert lake.ingest(stream) == []


def test_maintenance_keeps_all_rows(lake: Lake, stream: Stream) -> None:
    while len(list(lake.table(stream).scan().plan_files())) < 5:  # Iceberg merges five files or more
        stream.produce_trades(range(200, 210))
        lake.ingest(stream)
    [maintained] = maintain(stream.namespace, stream.topic, lake.clients.catalog, lake.clients.engines)
    assert maintained.after.data_files < maintained.before.data_files
    assert_rows_are_records(lake, stream)


def test_table_shares_no_folder_with_a_renamed_one(lake: Lake, resources: Any) -> None:
    stream = Stream(resources)
    stream.produce_trades(range(10))
    lake.ingest(stream)
    renamed = lake.elsewhere().rename_table(
        (stream.namespace, stream.topic.table), (stream.namespace, f"{stream.topic.table}_before")
    )
    lake.ingest(stream)
    files = [renamed.metadata_location, *(task.file.file_path for task in renamed.scan().plan_files())]
    assert len(files) > 1
    assert not any(file.startswith(f"{lake.table(stream).location()}/") for file in files)


def test_maintenance_keeps_files_of_another_table_in_the_folder(lake: Lake, stream: Stream) -> None:
    table = lake.table(stream)
    lake.elsewhere().create_table((stream.namespace, "other"), table.schema(), location=table.location())
    [maintained] = maintain(stream.namespace, stream.topic, lake.clients.catalog, lake.clients.engines)
    assert f"kept orphaned files, because {stream.namespace}.other has files" in maintained.actions[-1]


def test_replay_of_ingested_offsets_adds_nothing(lake: Lake, stream: Stream) -> None:
    replay(stream.namespace, stream.topic, lake.clients, "earliest")
    assert_rows_are_records(lake, stream)


def test_dry_run_publishes_nothing(lake: Lake, resources: Any) -> None:
    stream = Stream(resources)
    stream.produce_trades(range(100))
    dry_run(stream.namespace, stream.topic, lake.clients, 100)
    assert lake.clients.catalog.load(TableRef(stream.namespace, stream.topic.table)) is None


def test_unreachable_database_error_names_no_password(tmp_path: Path) -> None:
    [port] = free_ports(1)
    uri = f"postgresql+psycopg2://lakehouse:hunter2@127.0.0.1:{port}/catalog"
    catalog = Catalog(type="sql", warehouse="s3://lakehouse/tables", uri=uri)
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port}/catalog") as refusal:
        catalog.load(TableRef("trading", "trades"))
    assert "hunter2" not in str(refusal.value)
