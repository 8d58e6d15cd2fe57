"""`lakehouse maintain` when one table cannot be maintained: the others are, and the exit code says so."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from lakehouse.cli.commands import tables
from lakehouse.cli.main import main
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import CommitConflict
from resources.spark.servers import Connect

CONFIG = Config(namespace="shop", topics={name: Topic(name=name) for name in ("broken", "orders")}, environments={})


@pytest.mark.parametrize("error", [CommitConflict("Another writer changed shop.broken. Retry"), ValueError("a row")])
def test_maintain_topic_that_fails_leaves_others_maintained(monkeypatch, error):
    @contextmanager
    def clients(config):
        yield SimpleNamespace(catalog=None, spark=Connect(remote="sc://127.0.0.1:1"))

    def maintain(namespace, topic, catalog, engines):
        if topic.name == "broken":
            raise error
        yield SimpleNamespace(table="shop.orders", actions=("expired 2 snapshots",), seconds=1.0)

    monkeypatch.setattr(tables.loader, "load", lambda: CONFIG)
    monkeypatch.setattr(tables, "open_clients", clients)
    monkeypatch.setattr(tables.maintenance, "maintain", maintain)

    result = CliRunner().invoke(main, ["maintain"])

    assert result.exit_code == 1
    assert "shop.orders: expired 2 snapshots" in result.output
    assert "run `lakehouse maintain broken`" in result.output and "a row" not in result.output
