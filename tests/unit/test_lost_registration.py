"""Readers whose metadata file maintenance has deleted: it keeps those in a table's log only."""

from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import boto3
import pyarrow as pa
import pytest

from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.core.tables.naming import TableRef
from lakehouse.readers import reader_of
from lakehouse.readers.reader_lag import measure_lag

ROWS = pa.table({"a": pa.array([1, 2], pa.int64())})
TOPIC = Topic(name="orders")
CONFIG = Config(namespace="trading", topics={"orders": {}}, environments={})
ORDERS = TableRef("trading", "orders")
NEWEST = TableRef("trading", "orders__v2", first="orders")


@pytest.fixture
def clients(catalog, glue):
    return SimpleNamespace(catalog=catalog, glue=glue)


@pytest.fixture(params=[ORDERS, NEWEST], ids=str)
def outdated(request, clients):
    """Register a table, commit to it, and delete the metadata file that is registered."""
    ref, iceberg = request.param, clients.catalog.iceberg()
    properties = {"write.metadata.previous-versions-max": "1"}
    if ref is NEWEST:
        first = iceberg.create_table(ORDERS.identifier, ROWS.schema, properties={"lakehouse.successor": ref.name})
        first.append(ROWS)
    table = iceberg.create_table(ref.identifier, ROWS.schema, properties=properties)
    table.append(ROWS)
    reader_of("glue").publish_tables(TOPIC, ref, clients.catalog.load(ref), clients)
    for _ in range(3):
        table.append(ROWS)
    Path(urlsplit(location(ref)).path).unlink()
    return ref


def test_reader_at_expired_snapshot_names_expiry(clients):
    table = clients.catalog.iceberg().create_table(ORDERS.identifier, ROWS.schema)
    table.append(ROWS)
    reader_of("glue").publish_tables(TOPIC, ORDERS, clients.catalog.load(ORDERS), clients)
    shown = table.metadata.current_snapshot_id
    table.append(ROWS)
    table.maintenance.expire_snapshots().by_id(shown).commit()

    lag = measure_lag("glue", CONFIG, TOPIC, clients)

    assert not lag.is_fresh
    assert f"snapshot {shown} is not in the table's history: expired, rolled back" in lag.description


def location(ref):
    table = boto3.client("glue").get_table(DatabaseName=ref.namespace, Name=ref.name)["Table"]
    return table["Parameters"]["metadata_location"]


def test_reader_without_metadata_file_is_stale(clients, outdated):
    lag = measure_lag("glue", CONFIG, TOPIC, clients)
    assert lag.description.startswith("Iceberg → Glue: 4 snapshots behind, for ")


def test_publish_over_missing_metadata_file_shows_newest(clients, outdated):
    table = clients.catalog.load(outdated)
    reader_of("glue").publish_tables(TOPIC, outdated, table, clients)
    assert location(outdated) == table.metadata_location


def test_totals_of_missing_metadata_file_name_the_remedy(clients, outdated):
    with pytest.raises(LakehouseError, match=r"Publish the table again"):
        reader_of("glue").query_totals(TOPIC, outdated, clients)
