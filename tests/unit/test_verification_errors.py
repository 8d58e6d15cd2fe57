"""Exit codes of commands that verify: 2 if an error prevents the verification, so that 1 only means a failed one."""

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from lakehouse.cli.check_runner import run_declared_checks
from lakehouse.cli.main import main
from lakehouse.config import loader
from resources.iceberg.catalog import Catalog
from tests.support.declared import declare


@pytest.mark.parametrize("command", ["ledger", "plan", "dry-run"])
def test_unknown_topic_exits_with_2(command):
    result = CliRunner().invoke(main, [command, "no_such_topic"])
    assert result.exit_code == 2 and "no_such_topic" in result.output
    assert "Usage:" not in result.output


@pytest.mark.parametrize("command", [["ledger", "orders"], ["plan"], ["dry-run"], ["check"]])
def test_unreadable_configuration_exits_with_2(command, tmp_path, monkeypatch):
    config = tmp_path / "lakehouse.yaml"
    config.write_text("topics: [orders]")
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(config))
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2 and "lakehouse.yaml" in result.output


@pytest.mark.parametrize(
    ("command", "code"), [("ledger", 2), ("ledger --deep", 2), ("dead-letters", 1), ("redrive", 1)]
)
def test_missing_table_is_reported_with_its_catalog(command, code, tmp_path, monkeypatch):
    declare(monkeypatch, tmp_path, namespace="shop", topics={"orders": {}})
    result = CliRunner().invoke(main, [*command.split(), "orders"])
    assert (result.exit_code, result.stderr.splitlines(keepends=True)[-1]) == (
        code,
        f"Error: Table shop.orders does not exist in the catalog sqlite:///{tmp_path}/catalog.db (environment "
        f"'here'). Nothing was verified or changed. Ingest the topic first (`lakehouse stream --once`), or correct "
        f"`catalog` of the environment\n",
    )


def test_declared_checks_of_a_missing_table_are_errors(tmp_path, monkeypatch):
    checks = {"known": {"type": "not_null", "column": "id"}}
    declare(monkeypatch, tmp_path, namespace="shop", topics={"orders": {"checks": checks}})
    config = loader.load()
    catalog = Catalog(**config.environments["here"]["catalog"])
    [outcome] = run_declared_checks(config, [config.topic("orders")], SimpleNamespace(catalog=catalog))
    assert (outcome.check, outcome.verdict) == ("known", "error")
    assert outcome.message.startswith(f"Table shop.orders does not exist in the catalog sqlite:///{tmp_path}/")


@pytest.mark.parametrize("uri", ["mysql://h/db", "hsqldb:mem", "postgresql+psycopg2:///db"])
def test_unusable_catalog_uri_is_one_line_with_the_remedy(uri, tmp_path, monkeypatch):
    declare(monkeypatch, tmp_path, namespace="shop", topics={"orders": {}}, systems={"catalog": {"uri": uri}})
    result = CliRunner().invoke(main, ["ledger", "orders"])
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert "catalog.uri: must be the URL of a SQLite or PostgreSQL database. Write it as sqlite" in result.stderr
