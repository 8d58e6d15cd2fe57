"""OpenLineage events of runs: each is sent exactly once, also after the server failed."""

import json
from types import SimpleNamespace

import dagster as dg
import pytest

from assets.lineage import OFF, lineage_sensor
from lakehouse.config import loader
from lakehouse.core.errors import Unreachable
from lakehouse.readers import lineage
from resources.aws.glue import Glue
from resources.iceberg.catalog import Catalog
from resources.iceberg.rest_catalog import RestCatalog
from resources.kafka.kafka import Kafka
from resources.open_lineage import OpenLineage
from resources.snowflake.snowflake import Snowflake
from tests.support.servers.listener import Listener, Received

KEY = "a-secret-key"
TRADES = ("s3://lake", "tables/trading/stock_trades")


class Server(Listener):
    """A lineage server that records what it accepted."""

    @property
    def accepted(self) -> list[Received]:
        return [request for request in self.received if request.status == 201]

    @property
    def events(self) -> list[dict]:
        return [json.loads(request.body) for request in self.accepted]


@pytest.fixture
def server():
    with Server(always=(201, "", {})).listening() as server:
        yield server


@pytest.fixture
def instance():
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture
def tick(server, instance):
    """Return a function that ticks the sensor, each time from the last cursor."""
    sensor, cursor = lineage_sensor(loader.load()), None
    resources = {
        "open_lineage": OpenLineage(url=server.address, api_key=KEY),
        "kafka": Kafka(bootstrap_servers="b-1.example:9092,b-2.example:9092"),
        "catalog": Catalog(type="sql", uri="sqlite:///catalog.db", warehouse="s3://lake/tables"),
        "glue": Glue(region="us-east-1", catalog_id="123456789012"),
        "snowflake": Snowflake(
            account="org-acct",
            user="u",
            private_key_path="k",
            role="r",
            warehouse="w",
            database="lakehouse",
            aws_role_arn="a",
            glue_catalog_id="123456789012",
            region="us-east-1",
        ),
    }

    def tick(**others):
        nonlocal cursor
        with dg.build_sensor_context(instance=instance, cursor=cursor, resources=resources | others) as context:
            result = sensor.evaluate_tick(context)
        cursor = result.cursor
        return result

    return tick


@dg.asset(key=["stock_trades", "iceberg"])
def trades():
    kafka = dg.AssetKey(["stock_trades", "kafka"])
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": 300,
            "bytes": 4_000,
            "rows": 5,
            "replayed_rows": 2,
            "dagster/column_schema": dg.TableSchema([dg.TableColumn("price", "int"), dg.TableColumn("side", "string")]),
            "dagster/column_lineage": dg.TableColumnLineage({"price": [dg.TableColumnDep(kafka, "price")]}),
        }
    )


@dg.asset(key=["stock_trades_with_totals", "kafka"])
def totals():
    source = dg.AssetKey(["stock_trades", "iceberg"])
    sources = [dg.TableColumnDep(source, "price"), dg.TableColumnDep(source, "quantity")]
    return dg.MaterializeResult(metadata={"dagster/column_lineage": dg.TableColumnLineage({"total": sources})})


@dg.asset(key=["stock_trades", "snowflake"])
def in_snowflake(): ...


@dg.asset(key=["elsewhere"])
def elsewhere(): ...


def test_event_has_schema_statistics_and_column_lineage(tick, server, instance):
    tick()
    run = dg.materialize([trades, totals, in_snowflake, elsewhere], instance=instance)

    tick()

    assert {(request.path, request.headers["Authorization"]) for request in server.accepted} == {
        ("/api/v1/lineage", f"Bearer {KEY}")
    }
    events = {event["job"]["name"]: event for event in server.events}
    assert set(events) == {"stock_trades/iceberg", "stock_trades_with_totals/kafka", "stock_trades/snowflake"}
    for event in events.values():
        assert event["eventType"] == "COMPLETE" and event["job"]["namespace"] == "trading"
        assert event["run"]["facets"]["parent"]["run"]["runId"] == run.run_id
    ingested = events["stock_trades/iceberg"]
    assert dataset_names(ingested["inputs"]) == [("kafka://b-1.example:9092", "stock_trades")]
    assert dataset_names(ingested["outputs"]) == [TRADES]
    [table] = ingested["outputs"]
    fields = [(field["name"], field["type"]) for field in table["facets"]["schema"]["fields"]]
    assert fields == [("price", "int"), ("side", "string")]
    statistics = table["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics.get("size")) == (7, None), "written by the run, not in the table"
    derived = events["stock_trades_with_totals/kafka"]
    assert dataset_names(derived["inputs"]) == [TRADES]
    sources = derived["outputs"][0]["facets"]["columnLineage"]["fields"]["total"]["inputFields"]
    assert [(field["namespace"], field["name"], field["field"]) for field in sources] == [
        (*TRADES, "price"),
        (*TRADES, "quantity"),
    ]
    assert dataset_names(events["stock_trades/snowflake"]["outputs"]) == [
        ("snowflake://org-acct", "lakehouse.TRADING.STOCK_TRADES")
    ]


def dataset_names(datasets):
    return [(dataset["namespace"], dataset["name"]) for dataset in datasets]


def test_event_rejected_by_server_is_sent_at_next_tick_once(tick, server, instance):
    tick()
    dg.materialize([trades], instance=instance)
    server.responses.append((400, "", {}))
    with pytest.raises(Unreachable, match="OpenLineage") as raised:
        tick()
    assert KEY not in str(raised.value)

    for _ in range(3):
        tick()
    dg.materialize([in_snowflake], instance=instance)
    tick()

    assert [event["job"]["name"] for event in server.events] == ["stock_trades/iceberg", "stock_trades/snowflake"]


@pytest.mark.parametrize("status", [413, 422])
def test_event_that_no_retry_can_deliver_does_not_block_others(tick, server, instance, status):
    tick()
    dg.materialize([trades], instance=instance)
    dg.materialize([in_snowflake], instance=instance)
    server.responses.append((status, "", {}))
    for _ in range(2):
        tick()
    assert [event["job"]["name"] for event in server.events] == ["stock_trades/snowflake"]


def test_event_with_invalid_metadata_does_not_block_others(tick, server, instance):
    @dg.asset(key=["stock_trades", "glue"])
    def invalid():
        return dg.MaterializeResult(metadata={"dagster/column_schema": "not a schema"})

    tick()
    dg.materialize([invalid], instance=instance)
    dg.materialize([in_snowflake], instance=instance)
    tick()
    tick()

    assert [event["job"]["name"] for event in server.events] == ["stock_trades/snowflake"]


def test_dataset_of_rest_catalog_has_no_credentials_of_its_address():
    catalog = RestCatalog(uri="https://lake:hidden@polaris.example/api/catalog/", warehouse="lake")
    config, resources = loader.load(), SimpleNamespace(rest_catalog=catalog)
    namespace, name = lineage.dataset(config, "rest", config.topic("stock_trades"), resources)
    assert (namespace, name) == ("https://polaris.example/api/catalog", "lake.trading.stock_trades")


def test_event_without_run_is_not_sent(tick, server, instance):
    tick()
    instance.report_runless_asset_event(dg.AssetMaterialization(["stock_trades", "kafka"]))
    assert "Events sent: 0" in str(tick().skip_message)
    assert not server.events


def test_sensor_without_server_sends_nothing(tick, server, instance):
    tick(open_lineage=OpenLineage())
    dg.materialize([trades], instance=instance)
    assert OFF in str(tick(open_lineage=OpenLineage()).skip_message)
    assert not server.events
