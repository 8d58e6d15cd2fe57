"""Resolution of the table that a topic currently writes to."""

import pyarrow as pa
import pytest

from lakehouse.core.errors import UnclearState
from lakehouse.core.tables.table_ref import TableRef
from resources.iceberg.successors import SUCCESSOR

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


def test_resolve_table_successors_share_dead_letters(catalog):
    create(catalog, "orders", successor="orders__v2")
    create(catalog, "orders__v2", successor="orders__v3")

    ref, _ = catalog.resolve_table(ORDERS)

    assert ref.dead_letters == ORDERS.dead_letters == ORDERS.next_version.dead_letters
    assert TableRef("trading", "orders__v2").dead_letters.name == "orders__v2__dead_letters"


def test_resolve_table_of_earlier_release_is_refused(catalog):
    table = pa.schema([("a", pa.int64())])
    catalog.iceberg().create_table(("trading", "orders"), table, properties={"lakehouse.continued-in": "orders__v2"})

    with pytest.raises(UnclearState, match="was continued in 'orders__v2' by an earlier release.*Nothing was changed"):
        catalog.resolve_table(ORDERS)
