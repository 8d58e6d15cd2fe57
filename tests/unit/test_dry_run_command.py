"""`lakehouse dry-run` when a topic cannot be read: the other topics are still checked, and the exit code says so."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from lakehouse.cli.commands import checking
from lakehouse.cli.main import main
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import Unreachable
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits.audit import CheckResult

CONFIG = Config(namespace="shop", topics={name: Topic(name=name) for name in ("broken", "orders")}, environments={})


@pytest.mark.parametrize("error", [Unreachable("Spark", "spark:1", "the server"), ValueError("a row")])
def test_dry_run_topic_that_fails_is_an_error_of_its_own(monkeypatch, tmp_path, error):
    @contextmanager
    def clients(config):
        yield None

    def ingest(namespace, topic, clients, records):
        if topic.name == "broken":
            raise error
        return SimpleNamespace(findings=[CheckResult("decodes", True, "all decode")])

    monkeypatch.setattr(checking.loader, "load", lambda: CONFIG)
    monkeypatch.setattr(checking, "open_clients", clients)
    monkeypatch.setattr("lakehouse.pipeline.batches.dry_run.dry_run", ingest)
    monkeypatch.setattr(Clients, "of", lambda resources: None)

    junit = tmp_path / "new" / "reports" / "dry-run.xml"
    result = CliRunner().invoke(main, ["dry-run", "--json", "--junit", str(junit)])

    report = json.loads(result.output)
    assert [(one["asset"], one["verdict"]) for one in report["checks"]] == [
        ("iceberg/broken", "error"),
        ("iceberg/orders", "passed"),
    ]
    assert result.exit_code == report["exit_code"] == 2
    assert "a row" not in result.output + junit.read_text()


def test_dry_run_of_no_records_is_refused():
    assert CliRunner().invoke(main, ["dry-run", "--records", "0"]).exit_code == 2
