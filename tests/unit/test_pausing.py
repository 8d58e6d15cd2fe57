"""`lakehouse pause` stops one topic for runs, streams, sensors and automation, in every process; others continue."""

import threading
import time
from types import SimpleNamespace
from typing import ClassVar

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner
from lone_member import LoneMember

from assets.sensors.freshness_sensor import freshness_sensor
from assets.sensors.topic_offsets import topic_offsets_sensor
from assets.streaming.service import Streaming
from assets.topic import topic_definitions
from lakehouse.cli import console
from lakehouse.cli.main import main
from lakehouse.cli.status import status
from lakehouse.config import loader
from lakehouse.core.errors import Paused
from lakehouse.core.markdown import plain
from lakehouse.definitions import defs
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from resources.build import build_resources
from resources.catalog import Catalog
from resources.kafka import Kafka, Offsets, TopicDescription

SECONDS = 60


class Brokers(Kafka):
    """Kafka whose topics are all there, with as many records in each as it was given."""

    end: ClassVar[int] = 0

    def cluster_id(self):
        return "cluster"

    def member(self, group, settings):
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
def declared(tmp_path, monkeypatch):
    """The configuration of an environment whose catalog is in a folder; LAKEHOUSE_CONFIG names it."""
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
    topics = {name: {"key": "id", "when_stale": "run"} for name in ("carts", "orders")}
    file = tmp_path / "lakehouse.yaml"
    file.write_text(yaml.safe_dump({"namespace": "shop", "topics": topics, "environments": {"here": environment}}))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(file))
    monkeypatch.setenv("LAKEHOUSE_ENV", "here")
    monkeypatch.setattr(Brokers, "end", 0)
    return loader.load()


@pytest.fixture
def systems(declared):
    made = SimpleNamespace(**build_resources(declared, "here"))
    made.kafka = Brokers(bootstrap_servers="127.0.0.1:1")
    return made


@pytest.fixture
def instance():
    with dg.instance_for_test() as instance:
        yield instance


def run(*command):
    done = CliRunner().invoke(main, command)
    return done.exit_code, done.output


def taken(declared, systems, name):
    given = Clients.of(systems)
    return list(ingest(declared.namespace, declared.topic(name), given))


def until(met):
    deadline = time.monotonic() + SECONDS
    while not met():
        assert time.monotonic() < deadline, f"not within {SECONDS} s"
        time.sleep(0.05)


def tick(sensor, instance, systems, cursor=None):
    needed = {name: getattr(systems, name) for name in sensor.required_resource_keys}
    with dg.build_sensor_context(instance=instance, cursor=cursor, resources=needed, definitions=defs()) as context:
        return sensor.evaluate_tick(context)


def test_a_paused_topic_is_not_taken_by_anybody_and_others_are(declared, systems):
    code, said = run("pause", "orders", "--reason", "the broker's disk is full")
    assert code == 0 and "orders: paused since" in said and "(the broker's disk is full)" in said
    assert "lakehouse unpause orders" in said
    with pytest.raises(Paused, match="'orders' is paused since .* disk is full.* `lakehouse unpause orders`"):
        taken(declared, systems, "orders")
    assert taken(declared, systems, "carts") == []

    assert run("unpause", "orders")[0] == 0
    assert taken(declared, systems, "orders") == []


def test_names_and_reasons_are_checked(declared, systems):
    for command in ("pause", "unpause"):
        code, said = run(command, "order")
        assert code == 1 and "Did you mean 'orders'?" in said
    code, said = run("unpause", "orders")
    assert code == 1 and "'orders' is not paused" in said
    code, said = run("pause", "orders", "--reason", "x" * 501)
    assert code == 1 and "501 characters" in said
    assert taken(declared, systems, "orders") == []


def test_a_topic_that_is_no_longer_declared_can_be_unpaused(declared):
    assert run("pause", "orders")[0] == 0
    file = declared.file
    file.write_text(file.read_text().replace("  orders:", "  refunds:"))
    assert run("unpause", "orders")[0] == 0


def test_what_another_tool_wrote_pauses_too(declared, systems):
    iceberg = systems.catalog.iceberg()
    iceberg.create_namespace("shop")
    iceberg.update_namespace_properties("shop", updates={"pause.orders": "migration"})
    with pytest.raises(Paused, match="migration"):
        taken(declared, systems, "orders")


def test_a_stream_leaves_a_paused_topic_and_serves_it_again(declared, systems, instance, monkeypatch):
    monkeypatch.setattr("lakehouse.streaming.scheduler.PAUSED_SECONDS", 0.1)
    run("pause", "orders", "--reason", "migration")
    said: list[str] = []
    streaming = Streaming(declared, list(declared.topics.values()), systems, said.append, instance)
    thread = threading.Thread(target=streaming.run)
    thread.start()

    def verdicts(name):
        key = dg.AssetCheckKey(dg.AssetKey(["iceberg", name]), "streaming")
        return [one.status.value for one in instance.event_log_storage.get_asset_check_execution_history(key, limit=9)]

    try:
        until(lambda: verdicts("carts") == ["SUCCEEDED"])
        until(lambda: any("'orders' is paused" in line for line in said))
        assert verdicts("orders") == []
        run("unpause", "orders")
        until(lambda: verdicts("orders") == ["SUCCEEDED"])
    finally:
        streaming.stream.stop()
        thread.join(SECONDS)
    assert not thread.is_alive()
    assert len([line for line in said if "'orders' is paused" in line]) == 1
    assert not [line for line in said if "tried again" in line]


def test_a_stream_that_ends_says_that_a_paused_topic_is_not_complete(declared, systems):
    run("pause", "orders")
    errors = Streaming(declared, list(declared.topics.values()), systems, [].append, None, once=True).run()
    assert {name: type(error) for name, error in errors.items()} == {"orders": Paused}


def test_sensors_ask_for_no_run_and_the_check_says_so(declared, systems, instance, monkeypatch):
    monkeypatch.setattr(Brokers, "end", 9)
    monkeypatch.setattr("assets.sensors.freshness_sensor.BUDGET_SECONDS", 600)  # one tick measures all topics
    run("pause", "orders", "--reason", "migration")
    moved = tick(topic_offsets_sensor(declared), instance, systems)
    assert [event.asset_key.path for event in moved.asset_events] == [["kafka", "carts"]]

    found = tick(freshness_sensor(declared), instance, systems)
    asked = {key.path[1] for request in found.run_requests for key in request.asset_selection}
    assert asked == {"carts"}
    fresh = {tuple(event.asset_key.path): event for event in found.asset_events}
    assert "paused since" in fresh["iceberg", "orders"].description
    assert fresh["iceberg", "orders"].metadata["paused"].value == ["orders"]
    assert "paused" not in fresh["iceberg", "carts"].description

    run("unpause", "orders")
    moved = tick(topic_offsets_sensor(declared), instance, systems, moved.cursor)
    assert [event.asset_key.path for event in moved.asset_events] == [["kafka", "orders"]]
    asked = tick(freshness_sensor(declared), instance, systems).run_requests
    assert {key.path[1] for request in asked for key in request.asset_selection} == {"carts", "orders"}


def test_a_check_that_stays_green_is_reported_again_when_its_topic_is_paused(declared, systems, instance):
    sensor = freshness_sensor(declared)

    def told(cursor):
        found = tick(sensor, instance, systems, cursor)
        for event in found.asset_events:
            instance.report_runless_asset_event(event)
        said = {
            e.asset_key.path[1]: plain(e.description) for e in found.asset_events if e.asset_key.path[0] == "iceberg"
        }
        return said, found.cursor

    said, cursor = told(None)
    assert said == dict.fromkeys(("carts", "orders"), "topic → Iceberg: has every record")
    run("pause", "orders")
    said, cursor = told(cursor)
    assert said.keys() == {"orders"} and "paused since" in said["orders"] and "has every record" in said["orders"]
    run("unpause", "orders")
    assert told(cursor)[0] == {"orders": "topic → Iceberg: has every record"}


def test_status_shows_what_is_paused_and_why(declared, systems, monkeypatch):
    monkeypatch.setattr(console.console, "width", 2_000)
    run("pause", "orders", "--reason", "migration")
    with console.console.capture() as shown:
        console.console.print(console.topics(status(declared, systems)))
    assert "orders (paused)" in shown.get() and "(migration); has every record" in shown.get()
    assert "carts (paused)" not in shown.get()


def test_a_manual_materialization_is_refused_with_what_continues(declared, systems, instance):
    run("pause", "orders", "--reason", "migration")
    [table] = [
        asset
        for asset in topic_definitions(declared, declared.topic("orders")).assets
        if asset.key.path[0] == "iceberg" and isinstance(asset, dg.AssetsDefinition)
    ]
    needed = {name: getattr(systems, name) for name in table.required_resource_keys - {"io_manager"}}
    done = dg.materialize([table], resources=needed, instance=instance, raise_on_error=False)
    [failed] = list(done.filter_events(lambda event: event.is_step_failure))
    assert "`lakehouse unpause orders`" in failed.step_failure_data.user_failure_data.description


def test_a_pause_is_seen_by_whoever_connects_later(declared):
    run("pause", "orders")
    settings = declared.environments["here"]["catalog"]
    catalog = Catalog(**settings)
    assert "pause.orders" in catalog.iceberg().load_namespace_properties("shop")
