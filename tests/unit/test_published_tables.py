"""Assets of users that read published tables, at the snapshot of the newest materialization of their input."""

from types import SimpleNamespace

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from assets.entry import partitions
from assets.published_tables import KEY, published_tables
from lakehouse.config.model import Config, Route, Topic
from lakehouse.core.errors import ConfigError, LakehouseError
from resources.iceberg.catalog import Catalog

TOPIC, ROUTE = Topic.model_validate({"name": "orders"}), Route.model_validate({"name": "shop", "pattern": r"shop\.\w+"})
CONFIG = Config(namespace="shop", topics={"orders": TOPIC}, routes={"shop": ROUTE}, environments={})
UPSTREAM = dg.AssetSpec(["orders", "iceberg"])


def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture
def catalog(tmp_path):
    catalog = Catalog(type="sql", warehouse=f"file://{tmp_path}", uri=f"sqlite:///{tmp_path}/catalog.db")
    catalog.iceberg().create_namespace("shop")
    return catalog


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def publish(catalog, instance, name, *ids, key=("orders", "iceberg"), partition=None):
    """Append rows to a table, report the snapshot as runs and streams do, and return the snapshot's id."""
    if not catalog.iceberg().table_exists(("shop", name)):
        catalog.iceberg().create_table(("shop", name), rows().schema)
    table = catalog.iceberg().load_table(("shop", name))
    table.append(rows(*ids))
    snapshot_id = table.metadata.current_snapshot_id
    version = {"dagster/data_version": str(snapshot_id)}
    instance.report_runless_asset_event(dg.AssetMaterialization(list(key), partition=partition, tags=version))
    return snapshot_id


def read(catalog, instance, annotation, *, key=("orders", "iceberg"), spec=UPSTREAM, **options):
    """Materialize an asset that reads a table, and return what it read and the metadata of its input."""
    received = []

    def total(table):
        received.append(table)

    total.__annotations__ = {"table": annotation, "return": None}
    asset = dg.asset(ins={"table": dg.AssetIn(list(key), input_manager_key=KEY)}, io_manager_key="none", **options)(
        total
    )
    resources = {
        "catalog": dg.ResourceDefinition.hardcoded_resource(catalog),
        "spark": dg.ResourceDefinition.hardcoded_resource(SimpleNamespace()),
        "none": dg.mem_io_manager,
        KEY: published_tables(CONFIG),
    }
    definitions = dg.Definitions([spec, asset], resources=resources, jobs=[dg.define_asset_job("job", [asset])])
    job = definitions.resolve_job_def("job")
    partition = {"partition_key": "shop.a"} if "partitions_def" in options else {}
    result = job.execute_in_process(instance=instance, **partition)
    [loaded] = [event for event in result.all_events if event.event_type_value == "LOADED_INPUT"]
    return received[0], {name: value.value for name, value in loaded.event_specific_data.metadata.items()}


FORMS = {
    pa.Table: lambda table: table["id"].to_pylist(),
    pd.DataFrame: lambda table: table["id"].tolist(),
    pl.DataFrame: lambda table: table["id"].to_list(),
    pl.LazyFrame: lambda table: table.collect()["id"].to_list(),
    duckdb.DuckDBPyRelation: lambda table: [id_ for (id_,) in table.fetchall()],
}


@pytest.mark.parametrize("annotation", FORMS, ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_input_is_snapshot_of_materialization_as_annotated(catalog, instance, annotation):
    named = publish(catalog, instance, "orders", 1, 2)
    catalog.iceberg().load_table(("shop", "orders")).append(rows(3))

    table, metadata = read(catalog, instance, annotation)

    assert isinstance(table, annotation) and sorted(FORMS[annotation](table)) == [1, 2]
    assert metadata == {"table": "shop.orders", "snapshot_id": str(named)}


def test_input_without_materialization_is_newest_snapshot(catalog, instance):
    publish(catalog, instance, "orders", 1, key=("elsewhere",))
    table, metadata = read(catalog, instance, pa.Table)
    current = catalog.iceberg().load_table(("shop", "orders")).metadata.current_snapshot_id
    assert table["id"].to_pylist() == [1] and metadata["snapshot_id"] == str(current)


def test_partition_of_route_is_table_of_its_topic(catalog, instance):
    for name, id_ in (("a", 1), ("b", 2)):
        topic = f"shop.{name}"
        instance.add_dynamic_partitions(partitions(ROUTE).name, [topic])
        publish(catalog, instance, f"shop_{name}", id_, key=("shop", "glue"), partition=topic)
    spec = dg.AssetSpec(["shop", "glue"], partitions_def=partitions(ROUTE))
    table, metadata = read(
        catalog, instance, pa.Table, key=("shop", "glue"), spec=spec, partitions_def=partitions(ROUTE)
    )
    assert table["id"].to_pylist() == [1] and metadata["table"] == "shop.shop_a"
    publish(catalog, instance, "shop_a", 3, key=("shop", "glue"), partition="shop.b")
    with pytest.raises(ConfigError, match="one partition for each topic, and this input selects 2"):
        read(catalog, instance, pa.Table, key=("shop", "glue"), spec=spec)


def test_expired_snapshot_is_refused(catalog, instance):
    publish(catalog, instance, "orders", 1)
    version = {"dagster/data_version": "17"}
    instance.report_runless_asset_event(dg.AssetMaterialization(["orders", "iceberg"], tags=version))
    with pytest.raises(LakehouseError, match="Snapshot 17 of shop.orders.*expired. Nothing was read. Materialize"):
        read(catalog, instance, pa.Table)


@pytest.mark.parametrize(
    ("annotation", "key", "problem"),
    [
        (int, ("orders", "iceberg"), "annotated as builtins.int, in which no table can be read"),
        (pa.Table, ("other", "iceberg"), "other/iceberg is no table of a topic"),
    ],
)
def test_input_that_is_no_table_is_refused(catalog, instance, annotation, key, problem):
    with pytest.raises(ConfigError, match=problem):
        read(catalog, instance, annotation, key=key, spec=dg.AssetSpec(list(key)))


def test_output_is_refused(catalog, instance):
    @dg.asset(io_manager_key=KEY)
    def written() -> int:
        return 1

    unused = dg.ResourceDefinition.hardcoded_resource(None)
    resources = {KEY: published_tables(CONFIG), "catalog": unused, "spark": unused}
    with pytest.raises(LakehouseError, match="written returned a value .* only reads. Nothing was written"):
        dg.materialize([written], instance=instance, resources=resources)
