"""Exit codes of commands that verify: 2 if an error prevents the verification, so that 1 only means a failed one."""

import pytest
from click.testing import CliRunner

from lakehouse.cli.main import main


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
