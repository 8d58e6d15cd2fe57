"""Refusal of commits by a writer whose clock is behind a table's history, since Java readers could not load them."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse.core.errors import ClockSkew
from lakehouse.core.tables.naming import TableRef
from resources.iceberg.catalog import Catalog

ROWS = pa.table({"a": pa.array([1, 2], pa.int64())})
BRANCH = "ingest_batch"


@pytest.fixture
def lake(tmp_path):
    (tmp_path / "warehouse").mkdir()
    return {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}


def create_table(lake):
    """Create a table with a batch on a branch, and return the snapshot of main."""
    iceberg = SqlCatalog("lake", **lake)
    iceberg.create_namespace("trading")
    table = iceberg.create_table(("trading", "orders"), ROWS.schema)
    table.append(ROWS)
    base = table.metadata.current_snapshot_id
    table.manage_snapshots().create_branch(base, BRANCH).commit()
    table.append(ROWS, branch=BRANCH)
    return base


def commit_with_clock_ahead(lake, seconds):
    """Replace the table's metadata by the same ones as committed by a machine whose clock is ahead of this one's."""
    iceberg = SqlCatalog("lake", **lake)
    table = iceberg.load_table(("trading", "orders"))
    metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    metadata["last-updated-ms"] += seconds * 1000
    for snapshot in (*metadata["snapshots"], *metadata["snapshot-log"], *metadata["metadata-log"]):
        snapshot["timestamp-ms"] += seconds * 1000
    file = Path(lake["warehouse"].removeprefix("file://")) / "00009-ahead.metadata.json"
    file.write_text(json.dumps(metadata))
    iceberg.drop_table(("trading", "orders"))
    iceberg.register_table(("trading", "orders"), str(file))


def create_table_with_clock_ahead(lake, seconds):
    """Create a table as a machine does whose clock is ahead of this one's, and return the snapshot of main."""
    base = create_table(lake)
    commit_with_clock_ahead(lake, seconds)
    return base


def commits(catalog, base):
    """Return each way in which this project commits through pyiceberg."""

    def arrange():
        catalog.apply_layout(catalog.load(TableRef("trading", "orders")), ("bucket(4, a)",), ())

    def publish():
        catalog.publish(catalog.load(TableRef("trading", "orders")), BRANCH, base)

    def evolve():
        table = catalog.load(TableRef("trading", "orders"))
        wider = pa.schema([("a", pa.int64()), ("b", pa.string())])
        with table.update_schema() as update:
            update.union_by_name(wider)

    def drop_staging():
        catalog.drop_staging(catalog.load(TableRef("trading", "orders")))

    return [arrange, evolve, drop_staging, publish]


@pytest.mark.parametrize("number", range(4), ids=["arrange", "evolve", "drop_staging", "publish"])
def test_commit_with_clock_behind_is_refused_and_changes_nothing(lake, number):
    base = create_table_with_clock_ahead(lake, seconds=90)
    catalog = Catalog(type="sql", **lake)
    before = catalog.load(TableRef("trading", "orders"))

    with pytest.raises(ClockSkew, match="clock"):
        commits(catalog, base)[number]()

    after = Catalog(type="sql", **lake).load(TableRef("trading", "orders"))
    assert (after.metadata_location, after.metadata) == (before.metadata_location, before.metadata)


def test_commit_to_history_that_advanced_after_loading_is_refused(lake):
    create_table(lake)
    catalog = Catalog(type="sql", **lake)
    loaded = catalog.load(TableRef("trading", "orders"))
    commit_with_clock_ahead(lake, seconds=90)

    with pytest.raises(ClockSkew, match="clock"):
        catalog.drop_staging(loaded)

    assert BRANCH in Catalog(type="sql", **lake).load(TableRef("trading", "orders")).metadata.refs


def test_commit_with_clock_slightly_behind_is_accepted(lake):
    base = create_table_with_clock_ahead(lake, seconds=10)
    catalog = Catalog(type="sql", **lake)

    for commit in commits(catalog, base)[:2]:
        commit()
    catalog.publish(catalog.load(TableRef("trading", "orders")), BRANCH, base)

    assert catalog.load(TableRef("trading", "orders")).scan().to_arrow().num_rows == 4
