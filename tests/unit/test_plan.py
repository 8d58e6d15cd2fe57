"""`lakehouse plan`: verdict, statements, affected readers and exit code, from files only."""

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from pyiceberg.types import LongType, NestedField, StructType

from lakehouse.cli import schema_plan
from lakehouse.cli.main import main
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import ConfigError
from lakehouse.formats.columns import table_schema
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.schemas.decoding import resolve_schemas
from lakehouse.pipeline.schemas.schema_decision import columns
from tests.support.declared import declare
from tools.repository import PROJECT

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


def test_plan_of_all_topics_as_json_is_a_list(tmp_path, monkeypatch):
    """A script reads it whatever the number of topics."""
    file = tmp_path / "lakehouse.yaml"
    systems = {
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "schema_registry": {"url": "http://127.0.0.1:1"},
        "spark": {"remote": "sc://127.0.0.1:1"},
        "catalog": {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "s3://lake"},
        "glue": {"region": "us-east-1", "catalog_id": "1"},
        "snowflake": {
            **dict.fromkeys(("account", "user", "role", "warehouse", "database", "aws_role_arn"), "x"),
            **{"glue_catalog_id": "1", "region": "us-east-1", "private_key_path": "k"},
        },
    }
    file.write_text(json.dumps({"namespace": "shop", "topics": {}, "environments": {"prod": systems}}))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(file))
    monkeypatch.setenv("LAKEHOUSE_ENV", "prod")
    result = CliRunner().invoke(main, ["plan", "--json"])
    assert (result.exit_code, result.output) == (0, "[]\n"), result.output


def test_plan_against_a_file_needs_a_schema_file(monkeypatch):
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(PROJECT / "lakehouse.yaml"))
    current = str(PROJECT / "schemas/stock_trades.avsc")
    result = CliRunner().invoke(main, ["plan", "stock_trades", "--against", current])
    assert result.exit_code == 2
    assert "--against needs SCHEMA_FILE" in result.output


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
    assert "Did you mean 'stock_trades'" in result.output and "Usage:" not in result.output
    other = tmp_path / "schema.xml"
    other.write_text("<x/>")
    result = CliRunner().invoke(main, ["plan", "users", str(other), "--against", str(other)])
    assert result.exit_code == 2
    assert "must be .avsc, .json, .proto" in result.output


ROW = '{"type": "record", "name": "Row", "fields": [{"name": "total", "type": "long"}]}'
ENVELOPE = f"""{{"type": "record", "name": "Envelope", "fields": [{{"name": "before", "type": ["null", {ROW}]}},
{{"name": "after", "type": ["null", "Row"]}}, {{"name": "op", "type": "string"}}]}}"""
MESSAGES = 'syntax = "proto3"; message Other { string x = 1; } message Row { int64 total = 1; }'
OF_TABLE = {
    "a key column that only the message key has": ("orders.avsc", ROW, {"mode": "upsert", "key_format": "avro"}),
    "the row of a change event": ("orders.avsc", ENVELOPE, {"mode": "debezium", "key_format": "avro"}),
    "the message that the entry names": (
        "orders.proto",
        MESSAGES,
        {"value_format": "protobuf", "record": "Row", "key_format": "string"},
    ),
}


@pytest.mark.parametrize("case", OF_TABLE)
def test_plan_file_has_the_columns_that_ingestion_reads(tmp_path, case):
    name, text, settings = OF_TABLE[case]
    topic = Topic.model_validate({"name": "orders", "key": "id"} | settings)
    config = Config(namespace="shop", topics={"orders": topic}, environments={})
    (tmp_path / name).write_text(text)
    columns = [NestedField(1, column, LongType(), required=False) for column in ("total", "id")]
    table = table_schema(topic.metadata.names, StructType(*columns), None)

    planned = schema_plan.plan(config, topic, tmp_path / name, table)

    assert planned.is_accepted and planned.changes == (), planned.changes


def avro(**fields):
    declared = [{"name": name, "type": "int", **more} for name, more in fields.items()]
    return "avsc", json.dumps({"type": "record", "name": "R", "fields": declared})


def protobuf(fields):
    return "proto", f'syntax = "proto3"; message R {{ {fields} }}'


BETWEEN_VERSIONS = {
    "alias of another field": (
        avro(x={}, y={}),
        avro(x={"aliases": ["y"]}, y={"aliases": ["x"]}, z={}),
        ["refused", "NAME_REUSED"],
    ),
    "swapped numbers": (protobuf("int32 a = 2; int32 b = 3;"), protobuf("int32 b = 2; int32 a = 3;"), ["NAME_REUSED"]),
    "renamed number": (protobuf("int32 a = 2;"), protobuf("int32 alpha = 2;"), ["accepted", "RENAME COLUMN `a` TO"]),
    "dropped field": (avro(x={}, y={}), avro(y={}), ["accepted", "FIELD_DELETED x"]),
    "the older version again": (avro(x={}, y={}), avro(x={}, y={}), ["accepted", "No changes"]),
}


@pytest.mark.parametrize("case", BETWEEN_VERSIONS)
def test_plan_file_is_compared_as_newest_version(tmp_path, monkeypatch, case):
    (suffix, old), (_, new), expected = BETWEEN_VERSIONS[case]
    files = [tmp_path / f"{name}.{suffix}" for name in ("new", "old")]
    for file, text in zip(files, (new, old), strict=True):
        file.write_text(text)
    format_ = {"avsc": "avro", "proto": "protobuf"}[suffix]
    (tmp_path / "lakehouse.yaml").write_text(
        f"namespace: shop\ntopics:\n  orders: {{value_format: {format_}}}\nenvironments: {{}}\n"
    )
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(tmp_path / "lakehouse.yaml"))

    result = CliRunner().invoke(main, ["plan", "orders", str(files[0]), "--against", str(files[1])])

    assert result.exit_code == (0 if "accepted" in expected else 1), result.output
    assert all(text in result.output for text in expected), result.output
    assert "FIELD_DELETED a" not in result.output


class Registry:
    """A registry with one version of the values of `orders`, which refers to another schema."""

    def versions(self, subject):
        references = (("money.proto", 'syntax = "proto3"; package m; message Money { int64 units = 1; }'),)
        text = 'syntax = "proto3"; import "money.proto"; message R { m.Money paid = 1; int32 n = 2; }'
        return [RegisteredSchema(1, text, "PROTOBUF", references)] if subject == "orders-value" else []


def property_a(type_):
    return json.dumps({"type": "object", "properties": {"a": {"type": type_}}})


AGAINST_TABLE = {
    "references of the registered version": (
        {"value_format": "protobuf"},
        protobuf("m.Money paid = 1; int64 n = 2; string note = 3;"),
        ["TYPE_WIDENED", "OPTIONAL_FIELD_ADDED"],
    ),
    "in place of value_schema_file": (
        {"value_format": "json", "value_schema": property_a("integer")},
        ("json", property_a("string")),
        ["UNSUPPORTED_TYPE_CHANGE"],
    ),
}


@pytest.mark.parametrize("case", AGAINST_TABLE)
def test_plan_file_is_read_as_ingestion_reads_it_once_it_is_used(tmp_path, monkeypatch, case):
    settings, (suffix, text), expected = AGAINST_TABLE[case]
    topic = Topic.model_validate({"name": "orders"} | settings)
    catalog = declare(monkeypatch, tmp_path, namespace="shop")
    resources = SimpleNamespace(catalog=catalog, schema_registry=Registry())
    catalog.ensure_table(topic.table_in("shop"), columns(topic, resolve_schemas(Registry(), topic)))
    file = tmp_path / f"new.{suffix}"
    file.write_text(text.replace("message R", 'import "money.proto"; message R'))

    planned = schema_plan.plan_registered(Config(namespace="shop", topics={}, environments={}), topic, resources, file)

    assert (planned.invalid, [change.rule for change in planned.changes]) == (None, expected)


@pytest.mark.parametrize(
    ("settings", "suffix"),
    [({"value_format": "protobuf"}, ".proto"), ({"value_format": "string"}, ""), ({"value_format": "json"}, "")],
)
def test_plan_file_of_another_type_than_values_is_config_error(tmp_path, settings, suffix):
    topic, file = Topic.model_validate({"name": "orders"} | settings), tmp_path / "new.avsc"
    file.write_text(ROW)
    remedy = f"suffix {suffix}, or correct" if suffix else "To use it, set"
    with pytest.raises(ConfigError, match=f"values of topic 'orders' have no such schema.*{remedy} 'value_format'"):
        schema_plan.plan(Config(namespace="shop", topics={"orders": topic}, environments={}), topic, file, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"key": "idd", "mode": "dedup"},
            "key column 'idd', which its records do not have: the values have the columns id, v.",
        ),
        ({"partition_by": ["idd"]}, "no column 'idd' to partition or sort by"),
        (
            {"key": "orderid", "key_format": "string"},
            "Topic 'orders' declares the key column 'orderid', and its values have 'order_id': the message key would "
            "become a column of its own. Nothing was ingested. Write `key: order_id` in lakehouse.yaml, or a name for "
            "the message key that no field resembles, such as 'message_key'",
        ),
        ({"key": "customr", "mode": "upsert"}, "Write `key: customer` in"),
    ],
)
def test_plan_column_that_schema_lacks_is_refused(tmp_path, settings, message):
    topic = Topic.model_validate({"name": "orders"} | settings)
    config = Config(namespace="shop", topics={"orders": topic}, environments={})
    fields = {"order_id": {}, "customer": {}} if "key" in settings and "idd" not in settings["key"] else {}
    suffix, text = avro(id={}, v={}, **fields)
    (tmp_path / f"orders.{suffix}").write_text(text)

    planned = schema_plan.plan(config, topic, tmp_path / f"orders.{suffix}", None)

    assert not planned.is_accepted
    assert message in planned.invalid


def test_plan_names_the_columns_of_the_message_key(tmp_path):
    topic = Topic.model_validate({"name": "orders", "key": "user", "key_format": "string"})
    config = Config(namespace="shop", topics={"orders": topic}, environments={})
    suffix, text = avro(id={}, v={})
    (tmp_path / f"orders.{suffix}").write_text(text)
    planned = schema_plan.plan(config, topic, tmp_path / f"orders.{suffix}", None)
    assert planned.is_accepted and list(planned.lines())[-1] == "  Column 'user' comes from the message key"


@pytest.mark.parametrize(("closed", "notes"), [({}, True), ({"additionalProperties": False}, False)])
def test_plan_mentions_properties_that_are_not_stored(tmp_path, closed, notes):
    topic = Topic.model_validate({"name": "orders", "value_format": "json_schema"})
    config = Config(namespace="shop", topics={"orders": topic}, environments={})
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}, **closed}
    (tmp_path / "orders.json").write_text(json.dumps(schema))
    planned = schema_plan.plan(config, topic, tmp_path / "orders.json", None)
    sentence = "Properties that the JSON Schema does not declare, but allows, are not stored"
    assert planned.readers == ((sentence,) if notes else ())


@pytest.mark.parametrize("is_current", [True, False])
def test_plan_file_that_is_no_text_is_reported(tmp_path, monkeypatch, is_current):
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(PROJECT / "lakehouse.yaml"))
    file, good = tmp_path / "new.avsc", str(PROJECT / "schemas/stock_trades.avsc")
    file.write_bytes('{"doc": "café"}'.encode("latin-1"))
    schema, against = (good, str(file)) if is_current else (str(file), good)
    result = CliRunner().invoke(main, ["plan", "stock_trades", schema, "--against", against])
    assert result.exit_code == (2 if is_current else 1)
    assert "new.avsc is not text in UTF-8. Convert the file" in result.output


def test_plan_of_new_topic_prints_table_with_key_and_layout(tmp_path):
    file = tmp_path / "orders.avsc"
    optional = {"name": "price", "type": ["null", "double"], "default": None, "doc": "In dollars"}
    items = {
        "type": "array",
        "items": {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]},
    }
    fields = [{"name": "id", "type": "long"}, optional, {"name": "items", "type": items}]
    file.write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    settings = {"mode": "upsert", "key": "id", "partition_by": ["bucket(8, id)"], "sort_by": ["price desc"]}
    topic = Topic.model_validate({"name": "orders", **settings})
    config = Config(namespace="shop", topics={"orders": topic}, environments={})

    planned = schema_plan.plan(config, topic, file, None)

    [statement] = planned.statements
    lines = statement.splitlines()
    assert lines[0] == "CREATE TABLE `lake`.`shop`.`orders` (  -- One row per id"
    for column in (
        "`price` DOUBLE COMMENT 'In dollars'",
        "`items` ARRAY<STRUCT<`sku`: STRING>>",
        "`kafka_offset` BIGINT",
    ):
        assert any(line.strip(" ,").startswith(column) for line in lines), statement
    assert lines[-3:] == [
        ") USING iceberg",
        "PARTITIONED BY (bucket(8, id));",
        "ALTER TABLE `lake`.`shop`.`orders` WRITE ORDERED BY price desc",
    ]
    assert planned.to_json()["create_table"] == statement and statement.splitlines()[1] in "\n".join(planned.lines())
