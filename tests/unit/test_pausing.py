"""`lakehouse pause` stops one topic for runs, streams, sensors and automation in every process; others continue."""

import json
import threading
from types import SimpleNamespace
from typing import ClassVar

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner

from assets.freshness import freshness_sensor
from assets.streaming.service import StreamService
from assets.topics.kafka_asset import topic_offsets_sensor
from assets.topics.topic_chain import topic_definitions
from lakehouse.cli import console
from lakehouse.cli.main import main
from lakehouse.cli.status import report, status
from lakehouse.config import loader
from lakehouse.core.errors import Paused, Unreachable
from lakehouse.core.log_entry import LogEntry
from lakehouse.core.text import plain
from lakehouse.definitions import defs
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from resources.build import build_resources
from resources.iceberg.catalog import Catalog
from resources.kafka.kafka import Kafka, Offsets, TopicDescription
from tests.support.lone_member import LoneMember
from tests.support.waiting import wait_until

SECONDS = 60


class Brokers(Kafka):
    """Kafka with every topic of the configuration, each with `end` records."""

    end: ClassVar[int] = 0

    def cluster_id(self):
        return "cluster"

    def consumer(self, group, isolation="", settings=None):
        return LoneMember()

    def topics(self):
        return []

    def describe(self, topics):
        return {topic: TopicDescription(topic, 1) for topic in topics}

    def offsets(self, topics, *, committed=True):
        return {topic: {0: Offsets(0, self.end)} for topic in topics}

    def oldest_timestamp(self, topic, positions, ends):
        return dict.fromkeys(positions, 0)


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The configuration of an environment whose catalog is in a folder, also set as LAKEHOUSE_CONFIG."""
    nowhere = "http://127.0.0.1:1"
    environment = {
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "schema_registry": {"url": nowhere},
        "spark": {"remote": "sc://127.0.0.1:1"},
        "catalog": {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"},
        "glue": {"region": "us-east-1", "catalog_id": "1"},
        "snowflake": {
            **dict.fromkeys(("account", "user", "role", "warehouse", "database", "aws_role_arn"), "x"),
            **{"glue_catalog_id": "1", "region": "us-east-1", "private_key_path": "k"},
        },
    }
    topics = {name: {"key": "id", "on_stale": "run"} for name in ("carts", "orders")}
    file = tmp_path / "lakehouse.yaml"
    file.write_text(yaml.safe_dump({"namespace": "shop", "topics": topics, "environments": {"here": environment}}))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(file))
    monkeypatch.setenv("LAKEHOUSE_ENV", "here")
    monkeypatch.setattr(Brokers, "end", 0)
    return loader.load()


@pytest.fixture
def systems(config):
    clients = SimpleNamespace(**build_resources(config, "here"))
    clients.kafka = Brokers(bootstrap_servers="127.0.0.1:1")
    return clients


@pytest.fixture
def instance():
    with dg.instance_for_test() as instance:
        yield instance


def run(*command):
    result = CliRunner().invoke(main, command)
    return result.exit_code, result.output


def ingest_topic(config, systems, name):
    clients = Clients.of(systems)
    return list(ingest(config.namespace, config.topic(name), clients))


def tick(sensor, instance, systems, cursor=None):
    resources = {name: getattr(systems, name) for name in sensor.required_resource_keys}
    with dg.build_sensor_context(instance=instance, cursor=cursor, resources=resources, definitions=defs()) as context:
        return sensor.evaluate_tick(context)


def test_pause_refuses_ingestion_of_topic_but_not_of_others(config, systems):
    code, output = run("pause", "orders", "--reason", "the broker's disk is full")
    assert code == 0 and "orders: paused since" in output and "(the broker's disk is full)" in output
    assert "lakehouse unpause orders" in output
    with pytest.raises(Paused, match="'orders' is paused since .* disk is full.* `lakehouse unpause orders`"):
        ingest_topic(config, systems, "orders")
    assert ingest_topic(config, systems, "carts") == []

    assert run("unpause", "orders")[0] == 0
    assert ingest_topic(config, systems, "orders") == []


def test_pause_invalid_name_or_reason_is_refused(config, systems):
    for command in ("pause", "unpause"):
        code, output = run(command, "order")
        assert code == 1 and "Did you mean 'orders'?" in output
    code, output = run("unpause", "orders")
    assert code == 1 and "'orders' is not paused" in output
    code, output = run("pause", "orders", "--reason", "x" * 501)
    assert code == 1 and "501 characters" in output
    assert ingest_topic(config, systems, "orders") == []


def test_unpause_topic_no_longer_declared_succeeds(config):
    assert run("pause", "orders")[0] == 0
    file = config.file
    file.write_text(file.read_text().replace("  orders:", "  refunds:"))
    assert run("unpause", "orders")[0] == 0


def test_pause_of_entry_renamed_with_its_table_remains(config, systems):
    assert run("pause", "orders", "--reason", "migration")[0] == 0
    file = config.file
    settings = "  shop.Orders:\n    kafka_topic: orders\n    table: orders\n"
    file.write_text(file.read_text().replace("  orders:\n", settings))
    renamed = loader.load()
    with pytest.raises(Paused, match="'shop.Orders' is paused since .*migration.* `lakehouse unpause shop.Orders`"):
        ingest_topic(renamed, systems, "shop.Orders")
    [paused] = [s for s in status(renamed, systems) if s.topic == "shop.Orders"]
    assert "migration" in paused.stages[0].paused

    assert run("unpause", "shop.Orders")[0] == 0
    assert ingest_topic(renamed, systems, "shop.Orders") == []


def test_pause_set_by_other_tool_is_respected(config, systems):
    iceberg = systems.catalog.iceberg()
    iceberg.create_namespace("shop")
    iceberg.update_namespace_properties("shop", updates={"pause.orders": "migration"})
    with pytest.raises(Paused, match="migration"):
        ingest_topic(config, systems, "orders")


def test_stream_paused_topic_is_resumed_after_unpause(config, systems, instance, monkeypatch):
    monkeypatch.setattr("lakehouse.streaming.scheduler.PAUSED_SECONDS", 0.1)
    run("pause", "orders", "--reason", "migration")
    log: list[LogEntry] = []
    streaming = StreamService(config, list(config.topics.values()), systems, log.append, instance)
    thread = threading.Thread(target=streaming.run)
    thread.start()

    def verdicts(name):
        history = instance.event_log_storage
        key = dg.AssetCheckKey(dg.AssetKey([name, "iceberg"]), "streaming")
        return [record.status.value for record in history.get_asset_check_execution_history(key, limit=9)]

    try:
        wait_until(lambda: verdicts("carts") == ["SUCCEEDED"])
        wait_until(lambda: any("'orders' is paused" in line.message for line in log))
        assert verdicts("orders") == []
        run("unpause", "orders")
        wait_until(lambda: verdicts("orders") == ["SUCCEEDED"])
    finally:
        streaming.stream.stop()
        thread.join(SECONDS)
    assert not thread.is_alive()
    assert len([line for line in log if "'orders' is paused" in line.message]) == 1
    assert not [line for line in log if "Retry in" in line.message]


def test_stream_once_reports_paused_topic_as_incomplete(config, systems):
    run("pause", "orders")
    errors = StreamService(config, list(config.topics.values()), systems, [].append, None, once=True).run()
    assert {name: type(error) for name, error in errors.items()} == {"orders": Paused}


def test_sensors_paused_topic_requests_no_run(config, systems, instance, monkeypatch):
    monkeypatch.setattr(Brokers, "end", 9)
    monkeypatch.setattr("assets.freshness.BUDGET_SECONDS", 600)  # one tick measures all topics
    run("pause", "orders", "--reason", "migration")
    offsets = tick(topic_offsets_sensor(config), instance, systems)
    assert [event.asset_key.path for event in offsets.asset_events] == [["carts", "kafka"]]

    result = tick(freshness_sensor(config), instance, systems)
    requested = {key.path[0] for request in result.run_requests for key in request.asset_selection}
    assert requested == {"carts"}
    fresh = {tuple(event.asset_key.path): event for event in result.asset_events}
    assert "paused since" in fresh["orders", "iceberg"].description
    assert fresh["orders", "iceberg"].metadata["paused"].value == ["orders"]
    assert "paused" not in fresh["carts", "iceberg"].description

    run("unpause", "orders")
    offsets = tick(topic_offsets_sensor(config), instance, systems, offsets.cursor)
    assert [event.asset_key.path for event in offsets.asset_events] == [["orders", "kafka"]]
    requests = tick(freshness_sensor(config), instance, systems).run_requests
    assert {key.path[0] for request in requests for key in request.asset_selection} == {"carts", "orders"}


def test_topic_offsets_unknown_pauses_leave_paused_topic_unreported(config, systems, instance, monkeypatch):
    """Reported during the pause, its records would start no run when the pause ends."""
    monkeypatch.setattr(Brokers, "end", 9)
    run("pause", "orders")
    unreachable = Catalog(type="sql", uri="postgresql+psycopg2://127.0.0.1:1/lake", warehouse="file:///nowhere")
    catalog, systems.catalog = systems.catalog, unreachable
    with pytest.raises(Unreachable):
        tick(topic_offsets_sensor(config), instance, systems)

    systems.catalog = catalog
    offsets = tick(topic_offsets_sensor(config), instance, systems)
    run("unpause", "orders")
    offsets = tick(topic_offsets_sensor(config), instance, systems, offsets.cursor)
    assert [event.asset_key.path for event in offsets.asset_events] == [["orders", "kafka"]]


def test_freshness_paused_topic_is_reported_though_still_fresh(config, systems, instance):
    sensor = freshness_sensor(config)

    def descriptions_of_tick(cursor):
        result = tick(sensor, instance, systems, cursor)
        for event in result.asset_events:
            instance.report_runless_asset_event(event)
        descriptions = {
            e.asset_key.path[0]: plain(e.description) for e in result.asset_events if e.asset_key.path[1] == "iceberg"
        }
        return descriptions, result.cursor

    descriptions, cursor = descriptions_of_tick(None)
    assert descriptions == dict.fromkeys(("carts", "orders"), "topic → Iceberg: up to date")
    run("pause", "orders")
    descriptions, cursor = descriptions_of_tick(cursor)
    assert descriptions.keys() == {"orders"}
    assert "paused since" in descriptions["orders"] and "up to date" in descriptions["orders"]
    run("unpause", "orders")
    assert descriptions_of_tick(cursor)[0] == {"orders": "topic → Iceberg: up to date"}


def test_status_shows_paused_topic_and_reason(config, systems, monkeypatch):
    monkeypatch.setattr(console.console, "width", 2_000)
    run("pause", "orders", "--reason", "migration")
    with console.console.capture() as output:
        console.console.print(console.topics(status(config, systems)))
    assert "orders (paused)" in output.get() and "(migration); up to date" in output.get()
    assert "carts (paused)" not in output.get()


def test_materialization_of_paused_topic_is_refused(config, systems, instance):
    run("pause", "orders", "--reason", "migration")
    [table] = [
        asset
        for asset in topic_definitions(config, config.topic("orders")).assets
        if asset.key.path[1] == "iceberg" and isinstance(asset, dg.AssetsDefinition)
    ]
    resources = {name: getattr(systems, name) for name in table.required_resource_keys - {"io_manager"}}
    result = dg.materialize([table], resources=resources, instance=instance, raise_on_error=False)
    [failed] = list(result.filter_events(lambda event: event.is_step_failure))
    assert "`lakehouse unpause orders`" in failed.step_failure_data.user_failure_data.description


def test_pause_is_visible_to_new_connection(config):
    run("pause", "orders")
    settings = config.environments["here"]["catalog"]
    catalog = Catalog(**settings)
    assert "pause.orders" in catalog.iceberg().load_namespace_properties("shop")


def test_status_fits_80_columns_and_names_stages_that_lag(config, systems, monkeypatch):
    monkeypatch.setattr(Brokers, "end", 9)
    monkeypatch.setattr(console.console, "width", 80)
    run("pause", "orders", "--reason", "migration of the whole table to another catalog")
    measured = report(config, systems)
    with console.console.capture() as output:
        console.console.print(console.topics(measured.topics))
    lines = output.get().splitlines()
    assert max(map(len, lines)) <= 80
    assert any("carts" in line and "iceberg: 9 records behind" in line for line in lines), output.get()

    reported = {one["topic"]: one for one in json.loads(json.dumps(measured.to_json()))["topics"]}
    [stage] = [stage for stage in reported["carts"]["stages"] if stage["stage"] == "iceberg"]
    assert (reported["carts"]["end_offset"], stage["missing"], stage["paused"]) == (9, 9, None)
    assert "migration" in reported["orders"]["stages"][0]["paused"]
