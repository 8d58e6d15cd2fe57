"""The asset of a table that somebody else writes: what Tableflow publishes is observed, checked and never written."""

import uuid

import dagster as dg
import pyarrow as pa
import pytest

from assets.tableflow import tableflow_asset
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from resources.aws import Glue

pytestmark = pytest.mark.stack
ROWS = pa.table(
    {
        "orderid": pa.array([1, 2, 3], pa.int64()),
        "paid": pa.array([True, None, True], pa.bool_()),
        "$$partition": pa.array([0, 0, 1], pa.int32()),
        "$$offset": pa.array([0, 1, 0], pa.int64()),
    }
)


@pytest.fixture
def published(resources):
    """A table as Tableflow names it, in a namespace called after a cluster."""
    database, topic = f"lkc_{uuid.uuid4().hex[:8]}", "orders"
    catalog = resources.catalog.iceberg()
    catalog.create_namespace(database)
    table = catalog.create_table((database, topic), schema=ROWS.schema)
    table.append(ROWS)
    return database, table


def materialize(resources, database, checks):
    topic = Topic.model_validate({"name": "orders", "engine": "tableflow", "checks": checks})
    config = Config(namespace="trading", topics={"orders": topic}, environments={})
    known = resources.glue
    glue = Glue(region=known.region, catalog_id=known.catalog_id, tableflow_database=database)
    systems = {"catalog": resources.catalog, "glue": glue, "spark": resources.spark}
    return dg.materialize([tableflow_asset(config, topic)], resources=systems, raise_on_error=False)


def test_its_rows_are_counted_and_checked_and_its_snapshot_stays(resources, published):
    database, table = published
    checks = {
        "has_id": {"type": "not_null", "column": "orderid"},
        "is_paid": {"type": "not_null", "column": "paid", "severity": "warn"},
    }

    result = materialize(resources, database, checks)

    assert result.success
    found = {e.check_name: e for e in result.get_asset_check_evaluations()}
    assert found["has_id"].passed and not found["is_paid"].passed
    assert found["is_paid"].metadata["failing_rows"].value == 1
    [event] = result.asset_materializations_for_node("iceberg__orders")
    assert event.metadata["dagster/row_count"].value == 3
    before = table.metadata.current_snapshot_id
    assert event.metadata["snapshot_id"].value == str(before)
    assert table.refresh().metadata.current_snapshot_id == before


@pytest.mark.parametrize(("database", "said"), [("", "tableflow_database"), ("lkc_none", "has published no table")])
def test_what_is_not_there_is_explained(resources, database, said):
    result = materialize(resources, database, {})
    [failure] = [e for e in result.all_events if e.is_step_failure]
    assert said in failure.step_failure_data.user_failure_data.description
