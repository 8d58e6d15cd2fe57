"""lakehouse.yaml: what is right loads, and each fault is answered with file, line, key and remedy."""

import json
from pathlib import Path

import pytest

from lakehouse.config import loader
from lakehouse.core.errors import ConfigError

ENVIRONMENTS = "environments: {local: {}}\n"
CHECKED = "  a:\n    checks: {c: {type: "


def load(tmp_path: Path, text: str) -> loader.Config:
    file = tmp_path / "lakehouse.yaml"
    file.write_text(text)
    return loader.load(file)


def fault(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, text)
    return str(raised.value)


def test_the_projects_own_file_loads():
    loaded = loader.load(loader.PROJECT / "lakehouse.yaml")
    assert list(loaded.topics) == ["stock_trades", "users", "stock_trades_with_totals", "flagged_stock_trades"]
    assert loaded.topics["stock_trades_with_totals"].source.from_topic == "stock_trades"
    assert set(loaded.environments) == {"local", "aws"}


def test_a_topic_needs_no_more_than_its_name(tmp_path):
    topic = load(tmp_path, "namespace: n\ntopics:\n  My.Orders-1:\n" + ENVIRONMENTS).topics["My.Orders-1"]
    assert (topic.name, topic.table, topic.mode, topic.source.type) == (
        "My.Orders-1",
        "my_orders_1",
        "append",
        "existing",
    )


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        ("  a:\n    mod: upsert\n", "lakehouse.yaml:4: topics.a.mod: no such key. Did you mean 'mode'?"),
        (
            "  a:\n    mode: upset\n",
            "lakehouse.yaml:4: topics.a.mode: input should be 'append', 'dedup', 'upsert' or 'debezium'",
        ),
        ("  derived: {mod: upsert}\n", "lakehouse.yaml:3: topics.derived.mod: no such key. Did you mean 'mode'?"),
        ("  a: {partitions: 0}\n", "lakehouse.yaml:3: topics.a.partitions: input should be greater than or equal to 1"),
        (
            "  a: {mode: upsert}\n",
            "lakehouse.yaml:3: topics.a: upsert needs to know which row a record belongs to. Add 'key:",
        ),
        ("  a: {mode: upsert, key: [x, y]}\n", "topics.a.key: a string message key is one column"),
        (
            "  a.b: {}\n  a-b: {}\n",
            "lakehouse.yaml:4: topics.a-b: becomes table 'a_b', and so does topic 'a.b'. Rename",
        ),
        ("  'a b': {}\n", "lakehouse.yaml:3: topics.a b: not a Kafka topic name"),
        ("  a: {}\n  a: {}\n", "lakehouse.yaml:3: topics.a: stands twice; again in line 4. Remove one"),
        ("  a__dead_letters: {}\n", "names dead-letter tables. Rename the topic"),
        ("  a: {on_incompatible: new_table}\n  a__v2: {}\n", "topics.a__v2: table 'a__v2' is where 'a' may continue"),
        ("  a__v3: {}\n  a: {on_incompatible: new_table}\n", "topics.a: table 'a__v3' is where 'a' may continue"),
        ("  a: {retention: {snapshots: 59m}}\n", "topics.a.retention.snapshots: readers that are not stale may need"),
        (
            "  a: {retention: {snapshots: 1d}, max_lag_seconds: 50000}\n",
            "topics.a.retention.snapshots: readers that are not stale may need a snapshot for 1667 minutes",
        ),
        (f"  {'a' * 240}: {{}}\n", "a table's name has at most 235 characters"),
        (
            "  a:\n    key: k\n    source:\n      type: datagen\n      schema_file: none.avsc\n",
            "lakehouse.yaml:7: topics.a.source.schema_file: file 'none.avsc' does not exist in",
        ),
        (
            "  a:\n    source:\n      type: datagen\n      schema_fil: x\n",
            "lakehouse.yaml:6: topics.a.source.schema_fil: no such key. Did you mean 'schema_file'?",
        ),
        ("  a: {name: b}\n", "lakehouse.yaml:3: topics.a.name: no such key. Remove it"),
        ("  a: {key: [x, x]}\n", "lakehouse.yaml:3: topics.a.key: names a column twice"),
        ("  a: {key: ''}\n", "lakehouse.yaml:3: topics.a.key.0: string should have at least 1 character"),
        ("  a: 5\n", "lakehouse.yaml:3: topics.a: input should be a valid dictionary"),
        ("  a:\n    source: {type: magic}\n", "lakehouse.yaml:4: topics.a.source.type: 'magic' is none. Known types: "),
        (
            f"{CHECKED}rang, column: b}}}}\n",
            "lakehouse.yaml:4: topics.a.checks.c.type: 'rang' is none. Did you mean 'range'?",
        ),
        (f"{CHECKED}range, column: b, mn: 1}}}}\n", "topics.a.checks.c.mn: no such key. Did you mean 'min'?"),
        (f"{CHECKED}range, column: b}}}}\n", "topics.a.checks.c: a range without ends. Add 'min' or 'max'"),
        (
            f"{CHECKED}unique, columns: [b], severity: quarantine}}}}\n",
            "topics.a.checks.c.severity: unique compares rows",
        ),
        (
            f"{CHECKED}expression, sql: at <= current_timestamp(), severity: quarantine}}}}\n",
            "topics.a.checks.c: 'current_timestamp' does not always give the same answer for a record",
        ),
        (
            f"{CHECKED}range, column: b, max: today, severity: quarantine}}}}\n",
            "topics.a.checks.c: ''today'' does not always give the same answer for a record",
        ),
        (f"{CHECKED}references, column: b, table: x}}}}\n", "topics.a.checks.c.table: 'x' is the table of no topic"),
        (
            "  a:\n    checks: {fresh: {type: not_null, column: b}}\n",
            "checks.fresh: every table has a check of that name",
        ),
        ("  a: {sensitive: [b, B]}\n", "lakehouse.yaml:3: topics.a.sensitive: names a column twice"),
        (
            "  a: {sensitive: [Kafka_Raw_Value], metadata: {columns: [raw_value]}}\n",
            "topics.a.sensitive: 'kafka_raw_value' is a metadata column",
        ),
        (
            "  a: {sensitive: [SSN], partition_by: ['truncate(3, ssn)']}\n",
            "topics.a.partition_by: names of files would hold values of the sensitive 'ssn'. Write bucket(16, ssn)",
        ),
        ("  a:\n    checks: {c: {column: b}}\n", "topics.a.checks.c: has no 'type'. Add one of accepted_values, "),
    ],
)
def test_each_fault_names_file_line_key_and_remedy(tmp_path, topics, said):
    assert said in fault(tmp_path, f"namespace: n\ntopics:\n{topics}{ENVIRONMENTS}")


def test_a_derived_topic_must_come_from_a_declared_append_topic(tmp_path):
    (tmp_path / "s.avsc").write_text('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}')
    derived = (
        "  totals:\n    mode: upsert\n    key: [a]\n    key_format: avro\n    source:\n      type: derived\n"
        "      from: {source}\n      transform: m:f\n      group_by: [a]\n"
        "      key_schema_file: s.avsc\n      value_schema_file: s.avsc\n"
    )
    start = "namespace: n\ntopics:\n  trades: {}\n  users: {mode: upsert, key: u}\n"
    text = start + derived + ENVIRONMENTS
    assert load(tmp_path, text.replace("{source}", "trades")).topics["totals"].source.from_topic == "trades"
    assert (
        "lakehouse.yaml:11: topics.totals.source.from: 'trade' is not a topic declared in this file. Did you mean"
        in fault(tmp_path, text.replace("{source}", "trade"))
    )
    assert "'users' is not an append table" in fault(tmp_path, text.replace("{source}", "users"))


SOURCES = {
    "datagen": "    key: userid\n    source: {type: datagen, schema_file: s.avsc}\n",
    "derived": "    source: {type: derived, from: b, transform: 'm:f', value_schema_file: s.avsc}\n  b: {}\n",
    "json": "    value_format: json\n    value_schema_file: s.json\n",
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_sensitive_column_must_be_one_of_the_schema_file(tmp_path, source):
    fields = [{"name": "userid", "type": "string", "aliases": ["user"]}, {"name": "ssn", "type": "long"}]
    (tmp_path / "s.avsc").write_text(json.dumps({"type": "record", "name": "R", "fields": fields}))
    properties = {"userid": {"type": "string"}, "ssn": {"type": "integer"}}
    (tmp_path / "s.json").write_text(json.dumps({"type": "object", "properties": properties}))
    text = f"namespace: n\ntopics:\n  a:\n    sensitive: [SSN, %s]\n{SOURCES[source]}{ENVIRONMENTS}"
    assert load(tmp_path, text % "userid").topics["a"].sensitive == ("SSN", "userid")
    said = fault(tmp_path, text % "usrid")
    assert said.startswith("lakehouse.yaml:4: topics.a.sensitive: 's.") and "Did you mean 'userid'?" in said
    if source != "json":
        assert load(tmp_path, text % "user").topics["a"].sensitive == ("SSN", "user")


def test_a_key_must_be_a_field_of_its_schema(tmp_path):
    schema = tmp_path / "s.avsc"
    source = "  a:\n    key: usrid\n    source:\n      type: datagen\n      schema_file: s.avsc\n"
    text = f"namespace: n\ntopics:\n{source}{ENVIRONMENTS}"
    schema.write_text('{"type": "record", "name": "R", "fields": [{"name": "userid", "type": "string"}]}')
    said = (
        "lakehouse.yaml:7: topics.a.source.schema_file: 's.avsc' has no field 'usrid', which 'key' names. Did you mean"
    )
    assert said in fault(tmp_path, text)
    for broken in ("{", '"string"'):
        schema.write_text(broken)
        assert "lakehouse.yaml:7: topics.a.source.schema_file: 's.avsc' is not an Avro record" in fault(tmp_path, text)


@pytest.mark.parametrize(
    "text", ["? [a]\n: 1\n", "a: b: c\n", "\tx\n", "n: !!python/object:os.system x\n", "\0", "a: 1\n---\na: 2\n"]
)
def test_what_yaml_refuses_is_one_sentence(tmp_path, text):
    said = fault(tmp_path, text)
    assert "not valid YAML" in said and "\n" not in said


@pytest.mark.parametrize(
    "text", ["", "hello\n", "[a]\n", "namespace: n\ntopics:\n", "namespace: n\ntopics: [a]\n", "1: 2\n"]
)
def test_a_file_of_another_shape_is_explained(tmp_path, text):
    assert all(line.startswith("lakehouse.yaml:") for line in fault(tmp_path, text).splitlines())


def test_a_missing_key_a_wrong_file_and_broken_yaml(tmp_path):
    assert "lakehouse.yaml:1: namespace: missing. Add it" in fault(tmp_path, "topics: {}\n" + ENVIRONMENTS)
    assert "lakehouse.yaml:2: not valid YAML" in fault(tmp_path, "namespace: n\n topics: {}\n")
    with pytest.raises(ConfigError, match="cannot be read .* Set LAKEHOUSE_CONFIG"):
        loader.load(tmp_path / "nowhere.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        loader.load(tmp_path / "binary.yaml")


def test_every_fault_is_told_at_once(tmp_path):
    said = fault(tmp_path, "namespace: n\ntopics:\n  a: {mod: x}\n  b: {mode: y}\n" + ENVIRONMENTS)
    assert "topics.a.mod" in said and "topics.b.mode" in said


def test_an_unknown_topic_gets_the_nearest_name():
    with pytest.raises(ConfigError, match="'stock_trade' is not declared.*Did you mean 'stock_trades'"):
        loader.load(loader.PROJECT / "lakehouse.yaml").topic("stock_trade")


def test_the_published_json_schema_is_the_models():
    published = (loader.PROJECT / "docs/lakehouse.schema.json").read_text()
    assert published == loader.json_schema()
    topic = json.loads(published)["$defs"]["Topic"]["properties"]
    assert "max_lag_seconds" in topic and "name" not in topic
