"""A catalog or storage that stops responding during a commit, whose outcome is unknown then, or during a query."""

import sqlite3
from contextlib import contextmanager
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakehouse.config.model import Topic
from lakehouse.core.errors import TransientError, Unreachable
from lakehouse.core.tables.letter_columns import letter_schema
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.dead_letters.dead_letter_queries import pending_dead_letters
from lakehouse.query.engines import run
from resources.iceberg.catalog import Catalog

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
def catalog(catalog):
    """Return the catalog of unit tests, which waits for a locked database for a moment instead of five seconds."""
    return Catalog(type="sql", uri=f"{catalog.uri}?timeout=0.1", warehouse=catalog.warehouse)


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


QUERIES = {
    "duckdb": lambda catalog: run("select * from trading.orders", "duckdb", SimpleNamespace(catalog=catalog)),
    "dead letters": lambda catalog: pending_dead_letters(catalog, "trading", Topic(name="orders"), 1),
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_query_names_storage_that_does_not_respond(catalog, staged, tmp_path, query):
    letters = catalog.iceberg().create_table(ORDERS.dead_letters.identifier, letter_schema())
    letters.append(pa.Table.from_pylist([], schema=letters.schema().as_arrow()))
    for file in tmp_path.rglob("snap-*.avro"):
        file.unlink()
        file.mkdir()
    with pytest.raises(Unreachable, match="S3 does not answer"):
        query(catalog)


CHANGES = {
    "columns": lambda catalog, table: catalog.ensure_table(ORDERS, WIDER, existing=table),
    "layout": lambda catalog, table: catalog.apply_layout(table, ("a",), ()),
    "branches": lambda catalog, table: catalog.drop_staging(table),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_change_names_catalog_that_does_not_respond(catalog, staged, tmp_path, change):
    with locked(tmp_path / "catalog.db"), pytest.raises(Unreachable, match="catalog's database does not answer"):
        change(catalog, staged)
