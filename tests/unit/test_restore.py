"""Restoration of the registrations that the embedded Glue and Snowflake lose when they stop."""

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from lakehouse.cli import restore
from lakehouse.config.model import Config
from lakehouse.local.stack import ServerState
from resources.kafka.kafka import Kafka

CONFIG = Config.model_validate(
    {
        "namespace": "n",
        "topics": {"orders": {"name": "orders"}, "unread": {"name": "unread"}},
        "routes": {"shop": {"name": "shop", "pattern": r"shop\..*"}},
        "environments": {},
    }
)
PUBLISHED = {"orders", "shop_a"}


class Topics(Kafka):
    """A cluster with topics that a route matches."""

    def topics(self):
        return ["orders", "shop.a", "shop.unread"]


class Tables:
    """A catalog of which some tables are published."""

    def load(self, ref):
        return SimpleNamespace(current_snapshot=lambda: ref.name in PUBLISHED or None)


@pytest.fixture
def published(monkeypatch):
    names = []

    @contextmanager
    def clients(config):
        yield SimpleNamespace(kafka=Topics(bootstrap_servers="none:1"), catalog=Tables())

    monkeypatch.setattr(restore.loader, "load", lambda: CONFIG)
    monkeypatch.setattr(restore, "open_clients", clients)
    monkeypatch.setattr(restore, "publish", lambda config, topic, resources: names.append(topic.name))
    return names


def start(servers, ready):
    """Return the topics that are restored when these servers are ready."""
    restoring = restore.Restoration(servers)
    for server in ready:
        restoring.on_ready(ServerState(server, "ready", "", Path("log"), seconds=1.0))
    return restoring.result()


def test_restored_tables_include_those_of_routes(published):
    servers = ("kafka", "s3", "aws", "snowflake", "dagster")
    assert start(servers, servers[1:4]) == []
    assert start(servers, servers[:4]) == published == ["orders", "shop.a"]


def test_restored_tables_without_kafka_are_the_declared_ones(published):
    servers = ("s3", "aws", "snowflake")
    assert start(servers, servers) == published == ["orders"]
