"""A commit whose catalog stops responding, so that its outcome is unknown."""

import sqlite3
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakehouse.core.errors import TransientError, Unreachable
from lakehouse.core.tables.table_ref import TableRef

ORDERS = TableRef("trading", "orders")
WIDER = Schema(NestedField(1, "a", LongType(), required=False), NestedField(2, "b", LongType(), required=False))
ROWS = pa.table({"a": pa.array([1, 2], pa.int64())})


@contextmanager
def locked(path):
    """Lock a database of SQLite for all other programs."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        connection.close()


@pytest.fixture
def staged(catalog):
    """Return a table with a staging branch of two more rows."""
    table = catalog.iceberg().create_table(ORDERS.identifier, ROWS.schema)
    table.append(ROWS)
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id, "ingest_1").commit()
    table.append(ROWS, branch="ingest_1")
    return table


def test_commit_whose_outcome_cannot_be_looked_up_names_both_outcomes(catalog, staged, tmp_path):
    base = staged.metadata.current_snapshot_id
    with locked(tmp_path / "catalog.db"), pytest.raises(TransientError, match=r"trading\.orders.*published or not"):
        catalog.publish(staged, "ingest_1", base)

    assert catalog.load(ORDERS).metadata.current_snapshot_id == base
    catalog.publish(catalog.load(ORDERS), "ingest_1", base)
    assert catalog.load(ORDERS).scan().count() == 4


CHANGES = {
    "columns": lambda catalog, table: catalog.ensure_table(ORDERS, WIDER, existing=table),
    "layout": lambda catalog, table: catalog.apply_layout(table, ("a",), ()),
    "branches": lambda catalog, table: catalog.drop_staging(table),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_change_names_catalog_that_does_not_respond(catalog, staged, tmp_path, change):
    with locked(tmp_path / "catalog.db"), pytest.raises(Unreachable, match="catalog's database does not answer"):
        change(catalog, staged)
