"""The connector that `deploy` creates for a generated topic, compared with the embedded producer."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from lakehouse.config import loader
from lakehouse.core.errors import ConfigError
from lakehouse.local.servers.synthetic_records import headers, messages, records
from tests.support.clouds.confluent.deployment import Lake
from tools.repository import PROJECT

pytestmark = pytest.mark.stack

CUSTOM = {
    "type": "datagen",
    "schema_file": "schemas/users.avsc",
    "records_per_second": 20,
}


def test_connector_has_configuration_of_embedded_producer(lake: Lake):
    """Compare the topics of lakehouse.yaml and a topic with its own schema."""
    declared = loader.load().topics
    lake.topics = {name: declared[name].model_dump(by_alias=True) for name in ("stock_trades", "users")}
    lake.topics["people"] = {
        "key": "regionid",
        "source": CUSTOM | {"schema_file": str(PROJECT / CUSTOM["schema_file"])},
    }
    lake.flink = {}
    lake.create()

    created = {
        connector["config"]["kafka.topic"]: connector["config"] for connector in lake.vendor.state.connectors.values()
    }
    assert created.keys() == lake.topics.keys()
    for topic in lake.config.topics.values():
        settings, source = created[topic.topic], topic.source
        schema = lake.config.text(source.schema_file)
        if source.quickstart:
            assert settings["quickstart"] == source.quickstart and "schema.string" not in settings
        else:
            assert json.loads(settings["schema.string"]) == json.loads(schema)
            assert settings["schema.keyfield"] == source.message_key(topic)
        keys = [key.decode() for key, _ in islice(messages(schema, 1, source.message_key(topic), seed=1), 20)]
        field = {"STOCK_TRADES": "symbol", "USERS": "userid", None: "regionid"}[source.quickstart]
        assert keys == [record[field] for record in islice(records(schema, seed=1), 20)]
        mean_ms = (int(settings["max.interval"]) - 1) / 2
        assert 1000 * int(settings["tasks.max"]) / mean_ms == pytest.approx(source.records_per_second, rel=0.05)


@pytest.mark.parametrize("rate", [0.5, 1, 50, 222, 1_000, 5_000])
def test_connector_rate_is_split_into_tasks(lake: Lake, rate: float):
    lake.topics = {"made": {"source": CUSTOM | {"quickstart": "USERS", "records_per_second": rate}}}
    lake.flink = {}
    lake.create()
    [connector] = lake.vendor.state.connectors.values()
    interval, tasks = int(connector["config"]["max.interval"]), int(connector["config"]["tasks.max"])
    assert interval >= 10
    assert tasks * 2000 / (interval - 1) == pytest.approx(rate, rel=0.06)


def test_changed_rate_is_planned_and_applied(lake: Lake):
    lake.topics, lake.flink = {"made": {"source": CUSTOM | {"quickstart": "USERS"}}}, {}
    lake.create()
    lake.topics = {"made": {"source": CUSTOM | {"quickstart": "USERS", "records_per_second": 40}}}
    lake.create()
    [connector] = lake.vendor.state.connectors.values()
    assert connector["config"]["max.interval"] == "51"


def test_headers_are_the_connectors():
    assert headers(1, 41) == [("task.generation", b"1"), ("task.id", b"0"), ("current.iteration", b"41")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("quickstart: STOCK_TRADE", "must be one of 38 names.* Did you mean 'STOCK_TRADES'"),
        ("quickstart: ORDERS", "has no field 'orderid'"),
    ],
)
def test_quickstart_that_does_not_fit_is_refused(settings, message, tmp_path, monkeypatch):
    (tmp_path / "users.avsc").write_text((PROJECT / "schemas/users.avsc").read_text())
    source = f"{{type: datagen, schema_file: users.avsc, {settings}}}"
    file = tmp_path / "lakehouse.yaml"
    file.write_text(f"namespace: made\ntopics:\n  t: {{source: {source}}}\nenvironments: {{local: {{}}}}\n")
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(file))
    with pytest.raises(ConfigError, match=message):
        loader.load()


def test_upsert_by_another_column_than_the_message_key_is_refused(tmp_path, monkeypatch):
    (tmp_path / "users.avsc").write_text((PROJECT / "schemas/users.avsc").read_text())
    source = "{type: datagen, schema_file: users.avsc, quickstart: USERS}"
    file = tmp_path / "lakehouse.yaml"
    topic = f"{{mode: upsert, key: regionid, source: {source}}}"
    file.write_text(f"namespace: made\ntopics:\n  t: {topic}\nenvironments: {{local: {{}}}}\n")
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(file))
    with pytest.raises(ConfigError, match="the messages of quickstart USERS have the key 'userid'"):
        loader.load()
