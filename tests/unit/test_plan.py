"""`lakehouse plan`: verdict, statements, readers and exit code, from files alone."""

import json

import pytest
from click.testing import CliRunner

from lakehouse.cli.main import main
from lakehouse.config.loader import PROJECT

TRADES = json.loads((PROJECT / "schemas/stock_trades.avsc").read_text())


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Run `lakehouse plan stock_trades` with a schema made from the one in use."""
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(PROJECT / "lakehouse.yaml"))

    def run(*options, add=(), drop=(), topic="stock_trades", **changed):
        fields = [f | changed.get(f["name"], {}) for f in TRADES["fields"] if f["name"] not in drop]
        file = tmp_path / "new.avsc"
        file.write_text(json.dumps(TRADES | {"fields": [*fields, *add]}))
        against = str(PROJECT / "schemas/stock_trades.avsc")
        return CliRunner().invoke(main, ["plan", topic, str(file), "--against", against, *options])

    return run


def test_the_same_schema_changes_nothing(planned):
    result = planned()
    assert result.exit_code == 0
    assert "trading.stock_trades: accepted\n  Nothing changes" in result.output


def test_accepted_changes_are_shown_as_statements(planned):
    result = planned(
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
    assert "TRADING.STOCK_TRADES follows" in result.output


def test_a_refused_change_names_its_rule_and_ends_with_1(planned):
    result = planned(symbol={"type": "int"})
    assert result.exit_code == 1
    assert "refused" in result.output.splitlines()[0]
    assert "REFUSED UNSUPPORTED_TYPE_CHANGE symbol (string to int)" in result.output
    assert "Topic 'stock_trades_with_totals': group_by reads column 'symbol'" in result.output
    assert "ALTER TABLE" not in result.output


def test_a_dropped_column_tells_who_reads_it(planned):
    result = planned(drop=["userid"])
    assert result.exit_code == 0
    assert "FIELD_DELETED userid" not in result.output, "the key column is made from the message key"
    result = planned(drop=["side"])
    assert "FIELD_DELETED side: the column stays" in result.output
    assert "group_by reads column 'side'" in result.output


def test_programs_get_json(planned):
    result = planned("--json", symbol={"type": "int"}, add=[{"name": "n", "type": "int"}])
    found = json.loads(result.output)
    assert result.exit_code == 1
    assert (found["table"], found["verdict"], found["snowflake_table"]) == (
        "trading.stock_trades", "refused", "TRADING.STOCK_TRADES")  # fmt: skip
    assert [(c["rule"], c["path"], c["verdict"]) for c in found["changes"]] == [
        ("UNSUPPORTED_TYPE_CHANGE", "symbol", "refused"),
        ("OPTIONAL_FIELD_ADDED", "n", "accepted"),
    ]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"name": "again", "type": ["null", "StockTrade"]}, "contains itself"),
        ({"name": "SYMBOL", "type": "int"}, "differ by case only"),
        ({"name": "kafka_offset", "type": "int"}, "Two columns are called 'kafka_offset'"),
    ],
)
def test_what_can_be_no_table_is_refused(planned, field, said):
    result = planned(add=[field])
    assert result.exit_code == 1
    assert said in result.output
    assert json.loads(planned("--json", add=[field]).output)["verdict"] == "refused"


def test_what_cannot_be_found_out_ends_with_2(planned, tmp_path):
    result = planned(topic="stock_trade")
    assert result.exit_code == 2
    assert "Did you mean 'stock_trades'" in result.output
    other = tmp_path / "schema.xml"
    other.write_text("<x/>")
    result = CliRunner().invoke(main, ["plan", "users", str(other), "--against", str(other)])
    assert result.exit_code == 2
    assert "ends with .avsc, .json, .proto" in result.output
