"""The table that a topic writes to now is the last of those that continue one another."""

import pyarrow as pa
import pytest

from lakehouse.config.topic import Topic
from resources.catalog import CONTINUED, Catalog

ORDERS = Topic(name="orders")


@pytest.fixture
def catalog(tmp_path):
    (tmp_path / "lake").mkdir()
    catalog = Catalog(type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/lake")
    catalog.iceberg().create_namespace("shop")
    return catalog


def make(catalog, name, successor=None):
    properties = {CONTINUED: successor} if successor else {}
    return catalog.iceberg().create_table(("shop", name), pa.schema([("a", pa.int64())]), properties=properties)


def test_topic_without_a_table_keeps_its_name(catalog):
    assert catalog.resolve_table("shop", ORDERS) == (ORDERS, None)


def test_table_that_nothing_continues_is_the_one(catalog):
    made = make(catalog, "orders")

    topic, table = catalog.resolve_table("shop", ORDERS)

    assert topic == ORDERS and table.metadata.table_uuid == made.metadata.table_uuid


def test_successors_are_followed_to_the_last(catalog):
    make(catalog, "orders", successor="orders__v2")
    make(catalog, "orders__v2", successor="orders__v3")
    last = make(catalog, "orders__v3")

    topic, table = catalog.resolve_table("shop", ORDERS)

    assert topic.table == "orders__v3" and table.metadata.table_uuid == last.metadata.table_uuid


def test_successor_that_is_not_made_yet_is_the_one(catalog):
    make(catalog, "orders", successor="orders__v2")

    topic, table = catalog.resolve_table("shop", ORDERS)

    assert (topic.table, table) == ("orders__v2", None)
