"""`lakehouse plan`: verdict, statements, affected readers and exit code, from files only."""

import json

import pytest
from click.testing import CliRunner

from lakehouse.cli.main import main
from lakehouse.config.loader import PROJECT

TRADES = json.loads((PROJECT / "schemas/stock_trades.avsc").read_text())


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Return a function that runs `lakehouse plan stock_trades` with changes to the current schema."""
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(PROJECT / "lakehouse.yaml"))

    def run(*options, add=(), drop=(), topic="stock_trades", **changed):
        fields = [f | changed.get(f["name"], {}) for f in TRADES["fields"] if f["name"] not in drop]
        file = tmp_path / "new.avsc"
        file.write_text(json.dumps(TRADES | {"fields": [*fields, *add]}))
        against = str(PROJECT / "schemas/stock_trades.avsc")
        return CliRunner().invoke(main, ["plan", topic, str(file), "--against", against, *options])

    return run


def test_plan_same_schema_has_no_changes(plan):
    result = plan()
    assert result.exit_code == 0
    assert "trading.stock_trades: accepted\n  No changes" in result.output


def test_plan_accepted_changes_are_shown_as_statements(plan):
    result = plan(
        add=[{"name": "venue", "type": ["null", "string"], "default": None, "doc": "Where"}],
        price={"name": "cents", "aliases": ["price"], "type": "long"},
    )
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0] == "trading.stock_trades: accepted"
    table = "ALTER TABLE `lake`.`trading`.`stock_trades`"
    assert f"{table} RENAME COLUMN `price` TO `cents`;" in result.output
    assert f"{table} ALTER COLUMN `cents` TYPE BIGINT;" in result.output
    assert f"{table} ADD COLUMN `venue` STRING COMMENT 'Where';" in result.output
    assert "transform spark.totals:totals names column 'price'" in result.output
    assert "TRADING.STOCK_TRADES gets the change" in result.output


def test_plan_refused_change_names_rule_and_exits_1(plan):
    result = plan(symbol={"type": "int"})
    assert result.exit_code == 1
    assert "refused" in result.output.splitlines()[0]
    assert "REFUSED UNSUPPORTED_TYPE_CHANGE symbol (string to int)" in result.output
    assert "Topic 'stock_trades_with_totals': group_by reads column 'symbol'" in result.output
    assert "ALTER TABLE" not in result.output


def test_plan_dropped_column_names_its_readers(plan):
    result = plan(drop=["userid"])
    assert result.exit_code == 0
    assert "FIELD_DELETED userid" not in result.output, "the key column is made from the message key"
    result = plan(drop=["side"])
    assert "FIELD_DELETED side: the column keeps" in result.output
    assert "group_by reads column 'side'" in result.output


def test_plan_json_has_table_verdict_and_changes(plan):
    result = plan("--json", symbol={"type": "int"}, add=[{"name": "n", "type": "int"}])
    report = json.loads(result.output)
    assert result.exit_code == 1
    assert (report["table"], report["verdict"], report["snowflake_table"]) == (
        "trading.stock_trades", "refused", "TRADING.STOCK_TRADES")  # fmt: skip
    assert [(c["rule"], c["path"], c["verdict"]) for c in report["changes"]] == [
        ("UNSUPPORTED_TYPE_CHANGE", "symbol", "refused"),
        ("OPTIONAL_FIELD_ADDED", "n", "accepted"),
    ]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"name": "again", "type": ["null", "StockTrade"]}, "contains itself"),
        ({"name": "SYMBOL", "type": "int"}, "differ by case only"),
        ({"name": "kafka_offset", "type": "int"}, "Two columns are named 'kafka_offset'"),
    ],
)
def test_plan_schema_without_table_is_refused(plan, field, message):
    result = plan(add=[field])
    assert result.exit_code == 1
    assert message in result.output
    assert json.loads(plan("--json", add=[field]).output)["verdict"] == "refused"


def test_plan_unknown_topic_or_format_exits_2(plan, tmp_path):
    result = plan(topic="stock_trade")
    assert result.exit_code == 2
    assert "Did you mean 'stock_trades'" in result.output
    other = tmp_path / "schema.xml"
    other.write_text("<x/>")
    result = CliRunner().invoke(main, ["plan", "users", str(other), "--against", str(other)])
    assert result.exit_code == 2
    assert "must be .avsc, .json, .proto" in result.output
