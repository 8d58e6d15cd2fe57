"""Loading of lakehouse.yaml: defaults, and errors with file, line, key and remedy."""

import json
from pathlib import Path

import pytest

from lakehouse.config import loader
from lakehouse.config.environment import SYSTEMS
from lakehouse.config.known_columns import column_faults, columns_of_files
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import ConfigError
from resources.iceberg.catalog_types import registered as catalogs_registered
from resources.spark.servers import registered as servers_registered
from tools.repository import PROJECT

ENVIRONMENTS = "environments: {local: {}}\n"
CHECK = "  a:\n    checks: {c: {type: "


def load(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "lakehouse.yaml"
    file.write_text(text)
    return loader.load(file, validations=[lambda config: column_faults(config, columns_of_files(config))])


def error_message(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, text)
    return str(raised.value)


def test_load_project_file_has_topics_and_environments():
    config = loader.load(PROJECT / "lakehouse.yaml")
    assert list(config.topics) == ["stock_trades", "users", "stock_trades_with_totals", "flagged_stock_trades"]
    assert config.topics["stock_trades_with_totals"].source.from_topic == "stock_trades"
    assert set(config.environments) == {"local", "aws"}


def test_load_topic_without_settings_has_defaults(tmp_path):
    topic = load(tmp_path, "namespace: n\ntopics:\n  My.Orders-1:\n" + ENVIRONMENTS).topics["My.Orders-1"]
    assert (topic.name, topic.table, topic.mode, topic.source.type) == (
        "My.Orders-1",
        "my_orders_1",
        "append",
        "existing",
    )


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        ("", "lakehouse.yaml:2: topics: must be a mapping (`key: value`), but is empty. Write {}, or entries"),
        ("  a:\n    mod: upsert\n", "lakehouse.yaml:4: topics.a.mod: unknown key. Did you mean 'mode'?"),
        (
            "  a:\n    mode: upset\n",
            "lakehouse.yaml:4: topics.a.mode: must be 'append', 'dedup', 'upsert' or 'debezium'",
        ),
        ("  derived: {mod: upsert}\n", "lakehouse.yaml:3: topics.derived.mod: unknown key. Did you mean 'mode'?"),
        ("  a: {partitions: 0}\n", "lakehouse.yaml:3: topics.a.partitions: must be greater than or equal to 1"),
        (
            "  a: {mode: upsert}\n",
            "lakehouse.yaml:3: topics.a: 'mode: upsert' needs the columns that identify a row. Add 'key:",
        ),
        ("  a: {mode: upsert, key: [x, y]}\n", "topics.a.key: a string message key has one column"),
        (
            "  a.b: {}\n  a-b: {}\n",
            "lakehouse.yaml:4: topics.a-b: maps to table 'a_b', like topic 'a.b'. Rename",
        ),
        ("  'a b': {}\n", "lakehouse.yaml:3: topics.a b: not a valid Kafka topic name"),
        ("  a: {}\n  a: {}\n", "lakehouse.yaml:3: topics.a: the key is duplicated in line 4. Remove one"),
        ("  a__dead_letters: {}\n", "are dead-letter tables. Rename the topic"),
        (
            "  a: {on_incompatible: new_table}\n  a__v2: {}\n",
            "topics.a__v2: table 'a__v2' is where topic 'a' may continue",
        ),
        ("  a__v3: {}\n  a: {on_incompatible: new_table}\n", "topics.a: table 'a__v3' is where topic 'a' may continue"),
        ("  a: {retention: {snapshots: 59m}}\n", "topics.a.retention.snapshots: readers may need"),
        (
            "  a: {retention: {snapshots: 1d}, max_lag_seconds: 50000}\n",
            "topics.a.retention.snapshots: readers may need a snapshot for 1667 minutes",
        ),
        (
            "  a: {retention: {rows: 30d}, metadata: {columns: [schema_id]}}\n",
            "lakehouse.yaml:3: topics.a.retention.rows: no row would be deleted, because the table has no Kafka",
        ),
        (f"  {'a' * 240}: {{}}\n", "a table name has at most 235 characters"),
        (
            "  a:\n    key: k\n    source:\n      type: datagen\n      schema_file: none.avsc\n",
            "lakehouse.yaml:7: topics.a.source.schema_file: file 'none.avsc' does not exist in",
        ),
        (
            "  a:\n    source:\n      type: datagen\n      schema_fil: x\n",
            "lakehouse.yaml:6: topics.a.source.schema_fil: unknown key. Did you mean 'schema_file'?",
        ),
        ("  a: {name: b}\n", "lakehouse.yaml:3: topics.a.name: unknown key. Remove it"),
        ("  a: {when_stale: run}\n", "lakehouse.yaml:3: topics.a.when_stale: this key was renamed. Write 'on_stale'"),
        (
            "  a: {owners: trading}\n",
            "topics.a.owners: must be a list (`[a, b]`), but is 'trading'. Write [trading]. Owners",
        ),
        (
            "  a: {start: yesterday}\n",
            "topics.a.start: must be `earliest`, `latest` or a time with its zone, but is 'yesterday'. Correct",
        ),
        (
            "  a: {retention: {snapshot: 9d}}\n",
            "topics.a.retention.snapshot: unknown key. Did you mean 'snapshots'? Known keys: records, rows, ",
        ),
        ("  a: {key: [x, x]}\n", "lakehouse.yaml:3: topics.a.key: names a column twice"),
        (
            f"{CHECK}range, column: b, min: [1]}}}}\n",
            "topics.a.checks.c.min: must be text or a number, but is [1]. Corr",
        ),
        ("  a: {description: 7}\n", "topics.a.description: must be text (in quotes, as YAML reads it as a number), bu"),
        (
            "  a: {start: on}\n",
            "topics.a.start: must be text (in quotes, as YAML reads it as true or false), but is true",
        ),
        ("  on: {key: b}\n", "lakehouse.yaml:3: topics.on: YAML reads this key as true or false. Write it in quotes"),
        ("  7: {key: b}\n", "lakehouse.yaml:3: topics.7: YAML reads this key as a number. Write it in quotes"),
        ("  a: {key: ''}\n", "lakehouse.yaml:3: topics.a.key.0: must not be empty, but is ''"),
        ("  a: 5\n", "lakehouse.yaml:3: topics.a: must be a mapping"),
        (
            "  a:\n    source: {type: magic}\n",
            "lakehouse.yaml:4: topics.a.source.type: unknown type 'magic'. Known types: ",
        ),
        (
            f"{CHECK}rang, column: b}}}}\n",
            "lakehouse.yaml:4: topics.a.checks.c.type: unknown type 'rang'. Did you mean 'range'?",
        ),
        (f"{CHECK}range, column: b, mn: 1}}}}\n", "topics.a.checks.c.mn: unknown key. Did you mean 'min'?"),
        (
            f"{CHECK}accepted_values, column: b, values: [SE, NO, DK]}}}}\n",
            "topics.a.checks.c.values: YAML reads yes, no, on and off as true or false",
        ),
        (
            f"{CHECK}range, column: b}}}}\n",
            "topics.a.checks.c: the range has no bounds, so nothing would be checked. Add 'min' or 'max'",
        ),
        (
            f"{CHECK}unique, columns: [b], severity: quarantine}}}}\n",
            "topics.a.checks.c.severity: unique compares rows",
        ),
        (
            f"{CHECK}expression, sql: at <= current_timestamp(), severity: quarantine}}}}\n",
            "topics.a.checks.c: 'current_timestamp' does not always give the same result for a record",
        ),
        (
            f"{CHECK}range, column: b, max: today, severity: quarantine}}}}\n",
            "topics.a.checks.c: 'today' does not always give the same result for a record",
        ),
        (
            f"{CHECK}references, column: b, table: x}}}}\n",
            "topics.a.checks.c.table: no declared topic has the table 'x'",
        ),
        (
            "  a:\n    checks: {fresh: {type: not_null, column: b}}\n",
            "checks.fresh: every table already has a check of that name",
        ),
        ("  a: {sensitive: [b, B]}\n", "lakehouse.yaml:3: topics.a.sensitive: names a column twice"),
        (
            "  a: {sensitive: [Kafka_Raw_Value], metadata: {columns: [raw_value]}}\n",
            "topics.a.sensitive: 'kafka_raw_value' is a metadata column",
        ),
        (
            "  a: {sensitive: [SSN], partition_by: ['truncate(3, ssn)']}\n",
            "topics.a.partition_by: file names would contain values of the sensitive column 'ssn'. Write bucket(16",
        ),
        ("  a:\n    checks: {c: {column: b}}\n", "topics.a.checks.c: 'type' is required. Add one of accepted_values, "),
    ],
)
def test_load_invalid_setting_names_line_key_and_remedy(tmp_path, topics, message):
    assert message in error_message(tmp_path, f"namespace: n\ntopics:\n{topics}{ENVIRONMENTS}")


def test_load_derived_topic_needs_declared_append_source(tmp_path):
    (tmp_path / "s.avsc").write_text('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}')
    derived = (
        "  totals:\n    mode: upsert\n    key: [a]\n    key_format: avro\n    source:\n      type: derived\n"
        "      from: {source}\n      transform: m:f\n      group_by: [a]\n"
        "      key_schema_file: s.avsc\n      value_schema_file: s.avsc\n"
    )
    start = "namespace: n\ntopics:\n  trades: {}\n  users: {mode: upsert, key: u}\n  old: {retention: {rows: 9d}}\n"
    text = start + derived + ENVIRONMENTS
    assert load(tmp_path, text.replace("{source}", "trades")).topics["totals"].source.from_topic == "trades"
    assert (
        "lakehouse.yaml:12: topics.totals.source.from: 'trade' is not a topic declared in this file. Did you mean"
        in error_message(tmp_path, text.replace("{source}", "trade"))
    )
    assert "the table of 'users' has 'mode: upsert'" in error_message(tmp_path, text.replace("{source}", "users"))
    assert (
        "topics.totals.source.from: the table of 'old' has 'retention.rows', which deletes rows before they are "
        "derived, and from groups. Remove 'retention.rows' there"
    ) in error_message(tmp_path, text.replace("{source}", "old"))


SOURCES = {
    "datagen": "    key: userid\n    source: {type: datagen, schema_file: s.avsc}\n",
    "derived": "    source: {type: derived, from: b, transform: 'm:f', value_schema_file: s.avsc}\n  b: {}\n",
    "json": "    value_format: json\n    value_schema_file: s.json\n",
}


@pytest.mark.parametrize(
    "value", ["30", "1.5", "yes", "P30D", "'30'", "30 days", "0d", "-1d", "999999999d", "[30d]", "~"]
)
@pytest.mark.parametrize("key", ["rows", "records", "snapshots"])
def test_load_duration_without_unit_is_refused(tmp_path, key, value):
    """Thirty would be seconds: maintenance would delete almost all rows, or Kafka records before they are ingested."""
    text = f"namespace: n\ntopics:\n  a:\n    retention: {{{key}: {value}}}\n{ENVIRONMENTS}"
    if (key, value) in (("rows", "~"), ("records", "~")):
        assert getattr(load(tmp_path, text).topics["a"].retention, key) is None
        return
    message = error_message(tmp_path, text)
    assert f"lakehouse.yaml:4: topics.a.retention.{key}: must be days, hours or minutes such as 30d" in message


@pytest.mark.parametrize(
    ("kafka", "fault"),
    [
        ("{api_secret: [hunter2]}", "kafka.api_secret: must be text, an integer or `{env: NAME}`, but is a list"),
        ("{api_secret: {env: A, default: [hunter2]}}", "kafka.api_secret: must be text, an integer or `{env: NAME}`"),
        ("{api_secret: hunter2, api_key: 1.5}", "kafka.api_key: must be text, an integer or `{env: NAME}`"),
        ("hunter2", "kafka: must be a mapping (`key: value`), but is text"),
    ],
)
def test_load_invalid_setting_of_system_is_not_quoted(tmp_path, kafka, fault):
    message = error_message(tmp_path, f"namespace: n\ntopics: {{}}\nenvironments:\n  local:\n    kafka: {kafka}\n")
    assert f"lakehouse.yaml:5: environments.local.{fault}" in message
    assert "hunter2" not in message and len(message.splitlines()) <= 3


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("existing: {buckett: b}", "existing.buckett: unknown key. Did you mean 'bucket'? Known keys: confluent_envi"),
        ("rotation: {day_count: -1}", "is -1. Correct the value: Age in days at which a key is replaced"),
        ("tableflow: {open_catalog: {endpoint: x}}", "but is 'x'. Correct the value: Address, as `https://host/"),
    ],
)
def test_load_invalid_part_of_deployment_explains_its_key(tmp_path, setting, fault):
    text = f"namespace: n\ntopics: {{}}\n{ENVIRONMENTS}deployments:\n  aws: {{name: d, {setting}}}\n"
    assert fault in error_message(tmp_path, text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "file 's.json' does not exist in"),
        (b"", "file 's.json' has no text in UTF-8. Write the JSON Schema to it"),
        (b" \n", "file 's.json' has no text in UTF-8"),
        (b'{"title": "caf\xe9"}', "file 's.json' has no text in UTF-8"),
    ],
)
@pytest.mark.parametrize("kind", ["topics", "routes"])
def test_load_unusable_schema_file_is_refused(tmp_path, content, message, kind):
    """Without the schema, the table would silently get one column of text instead of the declared columns."""
    if content is not None:
        (tmp_path / "s.json").write_bytes(content)
    entry = "{value_format: json, value_schema_file: s.json}"
    entries = f"topics: {{a: {entry}}}\n"
    if kind == "routes":
        entries = f"topics: {{}}\nroutes: {{a: {entry.replace('{', '{pattern: x, ', 1)}}}\n"
    text = f"namespace: n\n{entries}{ENVIRONMENTS}"
    assert f"{kind}.a.value_schema_file: {message}" in error_message(tmp_path, text)


def test_load_schema_in_place_of_path_is_refused(tmp_path):
    text = json.dumps({"properties": {name * 9: {"type": "string"} for name in "abcdefghijklmnop"}})
    sources = {"source": {"type": "datagen", "schema_file": text}, "key": "a"}
    for entry, key in (({"value_format": "json", "value_schema_file": text}, "value_schema_file"), (sources, "source")):
        written = f"namespace: n\ntopics:\n  a: {json.dumps(entry | {'sensitive': ['a']})}\n{ENVIRONMENTS}"
        assert f"lakehouse.yaml:3: topics.a.{key}" in error_message(tmp_path, written)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (b"\xe9", "has no text in UTF-8. Save the file as UTF-8"),
        (b'{"type": "record", "name": "R"}', "is not an Avro record schema: The Avro schema is not valid: 'fields'"),
        (b'{"type": "record", "fields": [1]}', "is not an Avro record schema: The Avro schema is not valid: 'fields'"),
    ],
)
def test_load_avro_file_that_is_no_schema_is_refused(tmp_path, schema, problem):
    (tmp_path / "s.avsc").write_bytes(schema)
    text = f"namespace: n\ntopics:\n  a:\n    sensitive: [b]\n{SOURCES['datagen']}{ENVIRONMENTS}"
    assert f"topics.a.source.schema_file: 's.avsc' {problem}" in error_message(tmp_path, text)


@pytest.mark.parametrize("source", SOURCES)
def test_load_sensitive_column_must_be_in_schema_file(tmp_path, source):
    fields = [{"name": "userid", "type": "string", "aliases": ["user"]}, {"name": "ssn", "type": "long"}]
    (tmp_path / "s.avsc").write_text(json.dumps({"type": "record", "name": "R", "fields": fields}))
    properties = {"userid": {"type": "string"}, "ssn": {"type": "integer"}}
    (tmp_path / "s.json").write_text(json.dumps({"type": "object", "properties": properties}))
    text = f"namespace: n\ntopics:\n  a:\n    sensitive: [SSN, %s]\n{SOURCES[source]}{ENVIRONMENTS}"
    assert load(tmp_path, text % "userid").topics["a"].sensitive == ("SSN", "userid")
    message = error_message(tmp_path, text % "usrid")
    assert message.startswith("lakehouse.yaml:4: topics.a.sensitive: 's.") and "Did you mean 'userid'?" in message
    if source != "json":
        assert load(tmp_path, text % "user").topics["a"].sensitive == ("SSN", "user")


@pytest.mark.parametrize("source", SOURCES)
def test_load_column_of_check_must_be_in_schema_file(tmp_path, source):
    fields = [{"name": "userid", "type": "string"}]
    (tmp_path / "s.avsc").write_text(json.dumps({"type": "record", "name": "R", "fields": fields}))
    properties = {"userid": {"type": "string"}}
    (tmp_path / "s.json").write_text(json.dumps({"type": "object", "properties": properties}))
    checks = (
        "    checks:\n      known: {type: not_null, column: %s}\n      one: {type: unique, columns: [USERID, %s]}\n"
    )
    text = f"namespace: n\ntopics:\n  a:\n{checks}{SOURCES[source]}{ENVIRONMENTS}"
    assert load(tmp_path, text % ("userid", "kafka_offset")).topics["a"].checks.keys() == {"known", "one"}
    message = error_message(tmp_path, text % ("usrid", "kafka_ofset"))
    assert message.startswith("lakehouse.yaml:5: topics.a.checks.known: 's.") and "Did you mean 'userid'?" in message
    assert "lakehouse.yaml:6: topics.a.checks.one: 's." in message and "'kafka_ofset'" in message


def test_load_key_must_be_in_schema_file(tmp_path):
    schema = tmp_path / "s.avsc"
    source = "  a:\n    key: usrid\n    source:\n      type: datagen\n      schema_file: s.avsc\n"
    text = f"namespace: n\ntopics:\n{source}{ENVIRONMENTS}"
    schema.write_text('{"type": "record", "name": "R", "fields": [{"name": "userid", "type": "string"}]}')
    message = (
        "lakehouse.yaml:7: topics.a.source.schema_file: 's.avsc' has no field 'usrid', which is part of 'key'. Did"
    )
    assert message in error_message(tmp_path, text)
    for broken in ("{", '"string"'):
        schema.write_text(broken)
        assert "lakehouse.yaml:7: topics.a.source.schema_file: 's.avsc' is not an Avro record" in error_message(
            tmp_path, text
        )


def test_load_times_and_dates_without_quotes_are_text(tmp_path):
    checks = "checks: {c: {type: range, column: b, min: 2026-01-31, max: 2026-02-01 12:00:00}}"
    topic = load(
        tmp_path, f"namespace: n\ntopics: {{a: {{start: 2026-01-31T00:00:00Z, {checks}}}}}\n{ENVIRONMENTS}"
    ).topics["a"]
    assert topic.start == "2026-01-31T00:00:00Z"
    assert (topic.checks["c"].min, topic.checks["c"].max) == ("2026-01-31", "2026-02-01 12:00:00")


@pytest.mark.parametrize(
    "text", ["? [a]\n: 1\n", "a: b: c\n", "\tx\n", "n: !!python/object:os.system x\n", "\0", "a: 1\n---\na: 2\n"]
)
def test_load_invalid_yaml_is_explained_in_one_line(tmp_path, text):
    message = error_message(tmp_path, text)
    assert "not valid YAML" in message and "\n" not in message


@pytest.mark.parametrize(
    "text", ["", "hello\n", "[a]\n", "namespace: n\ntopics:\n", "namespace: n\ntopics: [a]\n", "1: 2\n"]
)
def test_load_unexpected_structure_is_explained(tmp_path, text):
    assert all(line.startswith("lakehouse.yaml:") for line in error_message(tmp_path, text).splitlines())


def test_load_missing_key_or_unreadable_file_is_explained(tmp_path):
    assert "lakehouse.yaml:1: namespace: this key is required. Add it" in error_message(
        tmp_path, "topics: {}\n" + ENVIRONMENTS
    )
    assert "lakehouse.yaml:2: not valid YAML" in error_message(tmp_path, "namespace: n\n topics: {}\n")
    with pytest.raises(ConfigError, match="cannot be read .* Set LAKEHOUSE_CONFIG"):
        loader.load(tmp_path / "nowhere.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not text in UTF-8"):
        loader.load(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("namespace: n\ntopics: {a: {description: café}}\n".encode("latin1"), ":2: not text in UTF-8. Save"),
        ("namespace: n\n".encode("utf-16"), ":1: not text in UTF-8. Save the file as UTF-8"),
        (b"namespace: n\nx: '\x00'\n", ":2: not valid YAML: the line has the control character 0x00. Remove it"),
        (b"\xef\xbb\xbfnamespace: n\r\ntopic: {}\r\n", ":2: topic: unknown key. Did you mean 'topics'?"),
    ],
)
def test_load_bytes_of_other_editors_are_read_or_explained(tmp_path, content, message):
    (tmp_path / "lakehouse.yaml").write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        loader.load(tmp_path / "lakehouse.yaml")
    assert f"lakehouse.yaml{message}" in str(raised.value)


def test_load_deep_or_repeated_values_are_shown_in_part(tmp_path):
    deep = f"namespace: n\ntopics: {{a: {{description: {'[' * 3000}{']' * 3000}}}}}\n"
    repeated = "a0: &a0 {x: 1, y: 2}\n" + "".join(
        f"a{n}: &a{n} {{{', '.join(f'k{i}: *a{n - 1}' for i in range(9))}}}\n" for n in range(1, 12)
    )
    for text in (deep, "namespace: n\ntopics: {a: {description: *a11}}\n"):
        message = error_message(tmp_path, (repeated if "*" in text else "") + text + ENVIRONMENTS)
        assert "topics.a.description: must be text, but is" in message and len(message) < 3000


def test_load_numbers_of_yaml_1_1_are_decimal_or_text(tmp_path):
    topics = "topics: {a: {partitions: 010, description: 1:30}}\n"
    topic = load(tmp_path, f"namespace: n\n{topics}{ENVIRONMENTS}").topics["a"]
    assert (topic.partitions, topic.description) == (10, "1:30")


@pytest.mark.parametrize(
    ("system", "fault"),
    [
        ("catalog: {type: hive}", "catalog.type: unknown type 'hive'. Known types: "),
        ("spark: {type: conect}", "spark.type: unknown type 'conect'. Did you mean 'connect'? Known types: connect"),
    ],
)
def test_load_unknown_type_of_system_is_refused_by_every_command(tmp_path, system, fault):
    text = f"namespace: n\ntopics: {{}}\nenvironments:\n  other:\n    {system}\n"
    assert f"lakehouse.yaml:5: environments.other.{fault}" in error_message(tmp_path, text)


@pytest.mark.parametrize("system", ["catalog", "spark"])
def test_types_known_at_load_are_those_of_the_system(system):
    registered = {"catalog": catalogs_registered, "spark": servers_registered}[system]
    assert {*SYSTEMS[system].types} == {*registered()}


def test_load_several_faults_reports_all(tmp_path):
    message = error_message(tmp_path, "namespace: n\ntopics:\n  a: {mod: x}\n  b: {mode: y}\n" + ENVIRONMENTS)
    assert "topics.a.mod" in message and "topics.b.mode" in message


def test_topic_unknown_name_suggests_nearest():
    file = PROJECT / "lakehouse.yaml"
    message = f"'stock_trade' is not declared in {file}. Did you mean 'stock_trades'"
    with pytest.raises(ConfigError, match=message):
        loader.load(file).topic("stock_trade")


@pytest.mark.parametrize(
    ("names", "known"),
    [
        ((), "which has no topics. Add it under `topics`"),
        (("users", "orders"), "which has orders, users. Name one of them"),
        ("abcdefg", r"which has \w(, \w){4} and 2 more. Name one of them"),
    ],
)
def test_topic_unlike_any_name_lists_declared_ones(names, known):
    config = Config(namespace="n", topics={name: Topic(name=name) for name in names}, environments={})
    with pytest.raises(ConfigError, match=rf"^Topic 'or' is not declared in lakehouse\.yaml, {known}$"):
        config.topic("or")


def test_published_json_schema_has_only_keys_of_file():
    published = (PROJECT / "docs/lakehouse.schema.json").read_text()
    topic = json.loads(published)["$defs"]["Topic"]["properties"]
    assert "max_lag_seconds" in topic and "name" not in topic
