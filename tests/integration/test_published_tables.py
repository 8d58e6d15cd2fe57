"""Assets of users that read a published table with Spark and Arrow, and a null list of structs, which both return."""

import json

import dagster as dg
import pyarrow as pa
from pyspark.sql import DataFrame

from assets.published_tables import KEY, published_tables
from assets.topics.topic_chain import topic_definitions
from lakehouse.config.loader import load
from resources.build import build_resources
from tests.support.topics import Stream, framed
from tools.repository import PROJECT

ITEM = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}
FIELDS = [{"name": "id", "type": "long"}, {"name": "items", "type": ["null", {"type": "array", "items": ITEM}]}]
ORDERS = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})


def test_asset_reads_table_in_the_run_that_ingests_it(resources):
    stream = Stream(resources, partitions=1, settings={"key": "id"})
    schema_id = stream.schema(ORDERS)
    for id_, items in ((1, None), (2, []), (3, [{"sku": "a"}])):
        stream.produce([{"value": framed(schema_id, ORDERS, {"id": id_, "items": items})}])
    key, received = [stream.name, "iceberg"], {}

    @dg.asset(ins={"orders": dg.AssetIn(key, input_manager_key=KEY)})
    def with_spark(orders: DataFrame) -> None:
        received["spark"] = {row.id: row["items"] for row in orders.collect()}

    @dg.asset(ins={"orders": dg.AssetIn(key, input_manager_key=KEY)})
    def with_arrow(orders: pa.Table) -> None:
        received["arrow"] = dict(zip(orders["id"].to_pylist(), orders["items"].to_pylist(), strict=True))

    systems = build_resources(load(PROJECT / "lakehouse.yaml"), "local")
    selection = dg.AssetSelection.assets(key, with_spark, with_arrow)
    defs = dg.Definitions.merge(
        topic_definitions(stream.config, stream.topic),
        dg.Definitions(
            [with_spark, with_arrow],
            resources={**systems, KEY: published_tables(stream.config)},
            jobs=[dg.define_asset_job("all", selection)],
        ),
    )
    with dg.DagsterInstance.ephemeral() as instance:
        result = defs.resolve_job_def("all").execute_in_process(instance=instance)
        [published] = [e for e in result.all_events if e.is_step_materialization and e.asset_key == dg.AssetKey(key)]

    assert received["arrow"] == {1: None, 2: [], 3: [{"sku": "a"}]}
    assert {id_: items and [item.asDict() for item in items] for id_, items in received["spark"].items()} == {
        1: None,
        2: [],
        3: [{"sku": "a"}],
    }
    loaded = [e for e in result.all_events if e.event_type_value == "LOADED_INPUT"]
    ids = {
        event.event_specific_data.metadata["snapshot_id"].value
        for event in loaded
        if event.event_specific_data.metadata
    }
    assert ids == {published.step_materialization_data.materialization.metadata["snapshot_id"].value}
