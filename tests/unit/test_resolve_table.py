"""Resolution of the table that a topic currently writes to."""

import pyarrow as pa

from lakehouse.core.tables.table_ref import TableRef
from resources.iceberg.catalog import SUCCESSOR

ORDERS = TableRef("trading", "orders")


def create(catalog, name, successor=None):
    properties = {SUCCESSOR: successor} if successor else {}
    return catalog.iceberg().create_table(("trading", name), pa.schema([("a", pa.int64())]), properties=properties)


def test_resolve_table_missing_returns_its_name(catalog):
    assert catalog.resolve_table(ORDERS) == (ORDERS, None)


def test_resolve_table_without_successor_returns_it(catalog):
    created = create(catalog, "orders")

    ref, table = catalog.resolve_table(ORDERS)

    assert ref == ORDERS and table.metadata.table_uuid == created.metadata.table_uuid


def test_resolve_table_successors_returns_last(catalog):
    create(catalog, "orders", successor="orders__v2")
    create(catalog, "orders__v2", successor="orders__v3")
    last = create(catalog, "orders__v3")

    ref, table = catalog.resolve_table(ORDERS)

    assert ref.name == "orders__v3" and table.metadata.table_uuid == last.metadata.table_uuid


def test_resolve_table_missing_successor_returns_its_name(catalog):
    create(catalog, "orders", successor="orders__v2")

    ref, table = catalog.resolve_table(ORDERS)

    assert (ref.name, table) == ("orders__v2", None)
