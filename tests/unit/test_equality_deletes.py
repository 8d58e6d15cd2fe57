"""Tables in which another program deleted rows by value, which pyiceberg cannot read."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from lakehouse.core.errors import UnclearState
from lakehouse.core.tables.naming import TableRef
from lakehouse.query.engines import run
from resources.iceberg.catalog import PROPERTIES
from resources.iceberg.snapshots import live_rows, live_rows_at
from tests.support.equality_deletes import delete_equal

ORDERS = TableRef("trading", "orders")


@pytest.fixture
def table(catalog):
    table = catalog.iceberg().create_table(ORDERS.identifier, pa.schema([("id", pa.int64())]), properties=PROPERTIES)
    table.append(pa.table({"id": [1, 2, 2]}))
    return table


def test_row_count_of_snapshot_with_equality_deletes_is_refused(table):
    before = table.current_snapshot().snapshot_id
    delete_equal(table, "id", 2)
    with pytest.raises(UnclearState, match=r"trading\.orders has equality deletes.*rewrite_data_files"):
        live_rows(table)
    assert live_rows_at(table, before) == 3


def test_query_of_table_with_equality_deletes_is_refused(catalog, table):
    delete_equal(table, "id", 2)
    with pytest.raises(UnclearState, match=r"trading\.orders has equality deletes"):
        run("select count(*) from trading.orders", "duckdb", SimpleNamespace(catalog=catalog))
