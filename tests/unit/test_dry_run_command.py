"""`lakehouse dry-run` when topics cannot be read: each has an outcome of its own, and the exit code says so."""

import json

from click.testing import CliRunner

from lakehouse.cli.main import main
from tests.support.declared import declare


def test_dry_run_topic_that_fails_is_an_error_of_its_own(monkeypatch, tmp_path):
    declare(monkeypatch, tmp_path, namespace="shop", topics={name: {"key": "id"} for name in ("broken", "orders")})
    monkeypatch.setattr("resources.kafka.kafka.TIMEOUT_SECONDS", 1)

    junit = tmp_path / "new" / "reports" / "dry-run.xml"
    result = CliRunner().invoke(main, ["dry-run", "--json", "--junit", str(junit)])

    report = json.loads(result.stdout)
    assert [(one["asset"], one["verdict"]) for one in report["checks"]] == [
        ("broken/iceberg", "error"),
        ("orders/iceberg", "error"),
    ]
    assert result.exit_code == report["exit_code"] == 2
    assert junit.read_text().count("Kafka does not answer") == 2


def test_dry_run_of_no_records_is_refused():
    assert CliRunner().invoke(main, ["dry-run", "--records", "0"]).exit_code == 2
