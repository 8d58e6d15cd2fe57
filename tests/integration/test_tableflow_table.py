"""The asset of a table that Tableflow writes: it is observed and checked, and never written."""

import uuid
from types import SimpleNamespace

import dagster as dg
import pyarrow as pa
import pytest

from assets.topics.iceberg_asset import tableflow_asset
from assets.topics.reader_assets import engines_check, reader_asset, reader_check
from lakehouse.cli.check_runner import run_declared_checks
from lakehouse.cli.status import status
from lakehouse.config.model import Config, Topic
from lakehouse.readers import reader_of
from lakehouse.readers.reader_lag import measure_lag, stages_of
from resources.aws.glue import Glue
from tests.support.declared import EMBEDDED_READERS

pytestmark = pytest.mark.stack
NAMINGS = {
    "confluent": ("$$partition", "$$offset", "$$raw-value"),
    "confluent_portable": ("cflt_metadata_partition", "cflt_metadata_offset", "cflt_metadata_raw_value"),
}


def rows(naming):
    partition, offset, raw_value = NAMINGS[naming]
    return pa.table(
        {
            "orderid": pa.array([1, 2, 3], pa.int64()),
            "paid": pa.array([True, None, True], pa.bool_()),
            partition: pa.array([0, 0, 1], pa.int32()),
            offset: pa.array([0, 1, 0], pa.int64()),
            raw_value: pa.array([b"hidden-1", b"hidden-2", b"hidden-3"], pa.binary()),
        }
    )


@pytest.fixture(params=NAMINGS)
def naming(request):
    return request.param


@pytest.fixture
def published(resources, naming):
    """A table as Tableflow names it, in a namespace called after a cluster."""
    database, topic = f"lkc_{uuid.uuid4().hex[:8]}", "orders"
    catalog = resources.catalog.iceberg()
    catalog.create_namespace(database)
    table = catalog.create_table((database, topic), schema=rows(naming).schema)
    table.append(rows(naming))
    return database, table


def materialize(resources, database, checks, naming="confluent_portable"):
    entry = {"name": "orders", "engine": "tableflow", "checks": checks, "metadata": {"naming": naming}}
    topic = Topic.model_validate(entry)
    config = Config(namespace="trading", topics={"orders": topic}, environments=EMBEDDED_READERS)
    glue_settings = resources.glue
    glue = Glue(region=glue_settings.region, catalog_id=glue_settings.catalog_id, tableflow_database=database)
    systems = {"catalog": resources.catalog, "glue": glue, "kafka": resources.kafka, "spark": resources.spark}
    return dg.materialize([tableflow_asset(config, topic)], resources=systems, raise_on_error=False)


def test_tableflow_asset_checks_rows_and_keeps_snapshot(resources, published, naming):
    database, table = published
    checks = {
        "has_id": {"type": "not_null", "column": "orderid"},
        "is_paid": {"type": "not_null", "column": "paid", "severity": "warn"},
    }

    result = materialize(resources, database, checks, naming)

    assert result.success
    evaluations = {e.check_name: e for e in result.get_asset_check_evaluations()}
    assert evaluations["has_id"].passed and not evaluations["is_paid"].passed
    assert evaluations["is_paid"].metadata["failing_rows"].value == 1
    [event] = result.asset_materializations_for_node("orders__iceberg")
    assert event.metadata["dagster/row_count"].value == 3
    columns = event.metadata["dagster/column_lineage"].value.deps_by_column.keys()
    assert {"orderid", "paid"} <= columns and not columns & set(NAMINGS[naming][:2])
    assert "hidden" not in str(event.metadata["preview"])
    before = table.metadata.current_snapshot_id
    assert event.metadata["snapshot_id"].value == str(before)
    assert table.refresh().metadata.current_snapshot_id == before


@pytest.mark.parametrize("database", ["", "lkc_none"])
def test_tableflow_asset_without_table_names_database(resources, database):
    """By default Tableflow's database has the id of the Kafka cluster."""
    result = materialize(resources, database, {})
    [failure] = [e for e in result.all_events if e.is_step_failure]
    description = failure.step_failure_data.user_failure_data.description
    assert f"has published no table '{database or resources.kafka.cluster_id()}.orders'" in description


@pytest.fixture
def mode(naming):
    """Each naming has another mode, because one does not depend on the other."""
    return {"confluent": "append", "confluent_portable": "upsert"}[naming]


@pytest.fixture
def chain(resources, published, naming, mode):
    """A topic whose table Tableflow registers in Glue, and the resources of its assets."""
    database, table = published
    entry = {"name": f"orders-{database[4:]}", "kafka_topic": "orders", "engine": "tableflow", "mode": mode}
    entry |= {"key": "orderid"} if mode == "upsert" else {}
    topic = Topic.model_validate({**entry, "metadata": {"naming": naming}, "max_lag_seconds": 1})
    config = Config(namespace="trading", topics={topic.name: topic}, environments=EMBEDDED_READERS)
    glue_settings = resources.glue
    glue = Glue(region=glue_settings.region, catalog_id=glue_settings.catalog_id, tableflow_database=database)
    systems = {name: getattr(resources, name) for name in ("catalog", "kafka", "spark", "snowflake")} | {"glue": glue}
    return topic, config, table, systems


def register(glue, database, table):
    """Register the table in Glue, as Tableflow does."""
    glue.ensure_database(database, "s3://tableflow/")
    glue.register(
        database,
        "orders",
        metadata_location=table.metadata_location,
        table_uuid=str(table.metadata.table_uuid),
        schema=table.schema(),
        location=table.location(),
        comment="",
        expected=glue.registration(database, "orders"),
    )


@pytest.mark.parametrize("naming", ["confluent"], indirect=True)
def test_declared_checks_and_status_cover_table(resources, chain):
    topic, config, table, systems = chain
    checks = {"is_paid": {"type": "not_null", "column": "paid"}, "has_id": {"type": "not_null", "column": "orderid"}}
    checked = Topic.model_validate({**topic.model_dump(by_alias=True), "name": topic.name, "checks": checks})
    clients = SimpleNamespace(**systems)

    outcomes = run_declared_checks(config, [checked], clients)

    assert {(outcome.check, outcome.verdict) for outcome in outcomes} == {("is_paid", "failed"), ("has_id", "passed")}
    # Tests of the same stack share the topic.
    resources.kafka.ensure_topic(topic.topic, 1)
    end = sum(bounds.end for bounds in resources.kafka.offsets([topic.topic])[topic.topic].values())
    [shown] = status(config, clients)
    assert (shown.end_offset, shown.ingested_offset, shown.failure) == (end, None, "")


def test_tableflow_chain_shows_table_in_glue_and_snowflake(resources, chain, naming, mode):
    topic, config, table, systems = chain
    glue, database = systems["glue"], systems["glue"].tableflow_database
    readers = [reader_of("glue"), reader_of("snowflake")]
    assets = [tableflow_asset(config, topic), *(reader_asset(config, topic, reader) for reader in readers)]
    context = SimpleNamespace(resources=SimpleNamespace(**systems))

    result = dg.materialize(assets, resources=systems, raise_on_error=False)
    [failure] = [event for event in result.all_events if event.is_step_failure]
    assert "Tableflow registers its tables in Glue itself" in failure.step_failure_data.user_failure_data.description
    assert glue.registration(database, "orders") is None

    register(glue, database, table)
    assert dg.materialize(assets, resources=systems).success
    for reader in readers:
        assert reader_check(config, topic, reader).run(context).passed
    assert engines_check(config, topic, "snowflake").run(context).passed
    offset = NAMINGS[naming][1].upper()
    name = f'"{topic.table.upper()}"'
    _, shown = systems["snowflake"].query(f'SELECT "{offset}" FROM "TRADING".{name} ORDER BY orderid')
    assert shown == [(0,), (1,), (0,)]

    if mode == "append":
        table.append(rows(naming))
    else:
        table.upsert(rows(naming).set_column(1, "paid", pa.array([False, False, False])), join_cols=["orderid"])
    register(glue, database, table.refresh())
    lag = measure_lag("snowflake", config, topic, SimpleNamespace(**systems))
    assert lag.behind.missing >= 1
    assert dg.materialize(assets, resources=systems).success
    name = f'"TRADING"."{topic.table.upper()}"'
    _, [count] = systems["snowflake"].query(f"SELECT COUNT(*), COUNT(DISTINCT orderid) FROM {name}")
    assert count == ((6, 3) if mode == "append" else (3, 3))
    lags = [measure_lag(stage, config, topic, SimpleNamespace(**systems)) for stage in stages_of(config, topic)]
    assert [lag.stage for lag in lags] == ["glue", "snowflake"] and all(lag.is_fresh for lag in lags)
