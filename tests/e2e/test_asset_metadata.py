"""Metadata of assets in the UI: lineage, preview, size, links and owners."""

import re

import dagster as dg
import pytest

from assets.topics.topic_chain import topic_definitions
from lakehouse.config.loader import load
from resources.build import build_resources
from resources.spark.spark import Progress
from spark.column_lineage import columns_read
from spark.totals import totals
from tests.support.topics import TRADES, Stream, framed, trade
from tools.repository import PROJECT


@pytest.fixture(scope="module")
def published(resources):
    stream = Stream(resources, partitions=1, settings={"sensitive": ["account"], "owners": ["team:trading"]})
    schema_id = stream.schema()
    stream.produce([{"value": framed(schema_id, TRADES, trade(n, account=f"secret-{n}"))} for n in range(30)])
    (asset,) = (
        asset
        for asset in topic_definitions(stream.config, stream.topic).assets
        if asset.key == dg.AssetKey([stream.name, "iceberg"])
    )
    result = dg.materialize([asset], resources=build_resources(load(PROJECT / "lakehouse.yaml"), "local"))
    (event,) = result.get_asset_materialization_events()
    return stream, asset, event.step_materialization_data.materialization.metadata


def test_table_metadata_has_sizes_and_no_sensitive_value(published):
    stream, _, metadata = published
    preview = [record.data for record in metadata["preview"].value.records]
    assert len(preview) == 5 and all(row["side"] in ("BUY", "SELL") for row in preview)
    assert "secret" not in str(preview) and "account" not in str(preview)
    files = stream.table().inspect.files().to_pylist()
    assert metadata["bytes"].value == sum(file["file_size_in_bytes"] for file in files)
    assert metadata["dagster/row_count"].value == 30
    assert {c.name: bool(c.description) for c in metadata["dagster/column_schema"].value.columns}["kafka_offset"]
    lineage = metadata["dagster/column_lineage"].value.deps_by_column
    assert lineage["price"] == [dg.TableColumnDep(dg.AssetKey([stream.name, "kafka"]), "price")]
    assert "kafka_offset" not in lineage


def test_asset_has_owners_and_source_location(published):
    _, asset, _ = published
    spec = next(iter(asset.specs))
    assert list(spec.owners) == ["team:trading"]
    (link,) = spec.metadata["dagster/code_references"].code_references
    assert link.label == "lakehouse.yaml"
    config = load(PROJECT / "lakehouse.yaml")
    lines = (PROJECT / "lakehouse.yaml").read_text().splitlines()
    assert {lines[topic.line - 1].strip() for topic in config.topics.values()} == {f"{name}:" for name in config.topics}


def test_derived_topic_has_column_lineage(published, resources):
    stream, *_ = published
    spark = resources.spark.session(resources.catalog.spark_settings())
    rows = spark.table(f"lake.`{stream.namespace}`.`{stream.topic.table}`")
    group = ["side", "symbol", "userid", "kafka_timestamp"]
    columns = {
        column: set(sources) - set(group) for column, sources in columns_read(totals(rows), rows.columns).items()
    }
    assert columns["total_price"] == {"price", "quantity"}
    assert columns["quantity"] == {"quantity"}
    assert columns["trade_count"] == set()
    assert set(columns_read(totals(rows), rows.columns)["symbol"]) == set(group)


def test_spark_query_reports_finished_tasks(resources, monkeypatch):
    lines = []
    monkeypatch.setattr("resources.spark.spark.PROGRESS_SECONDS", 0)
    spark = resources.spark.session(resources.catalog.spark_settings())
    progress = Progress(lines.append)
    spark.registerProgressHandler(progress)
    # The server reports every two seconds, and a fast machine ends the query before.
    spark.conf.set("spark.connect.progress.reportInterval", "20ms")
    try:
        spark.range(0, 20_000_000, 1, 16).selectExpr("sum(hash(id, cast(id as string)))").collect()
    finally:
        spark.conf.unset("spark.connect.progress.reportInterval")
        spark.removeProgressHandler(progress)
    assert lines and re.search(r"\d+ of \d+ tasks done", lines[0]), lines
