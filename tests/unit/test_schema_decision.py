"""Decisions about a new schema: accept it, read by an older version, roll over, or refuse."""

import json
import re

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from lakehouse.config.model import Topic
from lakehouse.config.settings import Metadata
from lakehouse.core.errors import IncompatibleSchema, SchemaError
from lakehouse.core.table_protocol import SCHEMAS
from lakehouse.core.tables.layout import apply_layout
from lakehouse.formats.columns import table_schema
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.schemas import schema_fingerprints
from lakehouse.pipeline.schemas.decoding import TopicSchemas, resolve_schemas, side_schema
from lakehouse.pipeline.schemas.recorded_settings import RecordedSettings
from lakehouse.pipeline.schemas.schema_decision import columns, decide_schema, require_naming


def orders(**types):
    fields = [{"name": name, "type": type_} for name, type_ in types.items()]
    return json.dumps({"type": "record", "name": "orders", "fields": fields})


def nested(**types):
    return {"type": "record", "name": "inner", "fields": json.loads(orders(**types))["fields"]}


FIRST, WIDER, UNFIT = orders(id="int"), orders(id="long", price="double"), orders(id="string")


@pytest.fixture
def decide(tmp_path):
    """Return a function that decides about the last version, for a table with the columns of the first."""

    def decide_last(*texts, policy="stop", is_new=False, named="portable", naming="portable", layout=(), **settings):
        settings |= {"name": "orders", "on_incompatible": policy, "metadata": {"naming": naming}}
        topic = Topic.model_validate(settings)
        versions = [RegisteredSchema(id_, text) for id_, text in enumerate(texts, 1)]
        table = None
        if not is_new:
            (tmp_path / "lake").mkdir()
            catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/lake")
            catalog.create_namespace("shop")
            first = TopicSchemas(topic, side_schema("avro", versions[:1], ""), None)
            before = topic.model_copy(update={"metadata": Metadata(naming=named)})
            table = catalog.create_table(("shop", "orders"), columns(before, first))
            apply_layout(table, layout, ())
        return decide_schema(topic, TopicSchemas(topic, side_schema("avro", versions, ""), None), table)

    return decide_last


@pytest.mark.parametrize(
    "policy, action", [("stop", "refuse"), ("dead_letter", "use_older"), ("new_table", "roll_over")]
)
def test_decide_schema_with_name_of_partition_field_is_refused(decide, policy, action):
    newer = orders(id="long", id_bucket_4=["null", "long"])

    decision = decide(FIRST, newer, policy=policy, layout=["bucket(4, id)"])

    assert decision.action == action
    assert "PARTITION_FIELD id_bucket_4: a partition field has this name" in str(decision.error)


@pytest.mark.parametrize("policy", ["stop", "dead_letter", "new_table"])
def test_decide_schema_compatible_is_accepted_by_every_policy(decide, policy):
    decision = decide(FIRST, WIDER, policy=policy)

    assert decision.action == "accept" and decision.error is None
    assert {change.rule for change in decision.changes} == {"TYPE_WIDENED", "OPTIONAL_FIELD_ADDED"}


def test_decide_schema_first_of_new_table_is_accepted(decide):
    assert decide(UNFIT, is_new=True).action == "accept"


def test_decide_schema_dead_letter_policy_uses_older_version(decide):
    decision = decide(FIRST, UNFIT, policy="dead_letter")

    assert decision.action == "use_older"
    assert [version.id for version in decision.require_readable().value.schema.read_by] == [1]
    assert decision.schemas.unfit_ids == {2}


@pytest.mark.parametrize(
    ("added", "field"), [({"note": "string"}, "note"), ({}, None), ({"inner": nested(x="int", y="int")}, "inner.y")]
)
def test_decide_schema_unfit_version_with_more_fields_is_conflict(decide, added, field):
    first, unfit = orders(id="int", inner=nested(x="int")), orders(id="string", **{"inner": nested(x="int")} | added)
    decision = decide(first, unfit, policy="dead_letter")

    reasons = {2: f"the table has no column for its field '{field}'"} if field else {}
    assert (decision.action, decision.schemas.conflicts) == ("use_older", reasons)


def naming(column):
    """Return settings that name a column."""
    checks = {"type": "range", "column": column, "min": 0}, {"type": "unique", "columns": ["kafka_offset", column]}
    return [
        {"partition_by": [f"bucket(4, {column})"]},
        {"sort_by": ["kafka_offset", f"{column} desc"]},
        {"sensitive": [column]},
        *({"checks": {"checked": check}} for check in checks),
    ]


RENAMED = json.dumps(
    {"type": "record", "name": "orders", "fields": [{"name": "number", "type": "long", "aliases": ["id"]}]}
)
IS_REFUSED = "Nothing was (ingested|changed).* Correct .* in lakehouse.yaml"


@pytest.mark.parametrize("settings", naming("prise"))
@pytest.mark.parametrize("is_new", [True, False])
def test_decide_schema_setting_that_names_no_column_is_refused(decide, settings, is_new):
    with pytest.raises(SchemaError, match=f"'prise'.*{IS_REFUSED}"):
        decide(FIRST, WIDER, is_new=is_new, **settings)


@pytest.mark.parametrize("settings", naming("id"))
def test_decide_schema_setting_may_name_dropped_column_of_table(decide, settings):
    assert decide(FIRST, orders(price="int"), **settings).action == "accept"


@pytest.mark.parametrize("settings", naming("number"))
def test_decide_schema_setting_names_column_as_renamed(decide, settings):
    assert decide(FIRST, RENAMED, **settings).action == "accept"


@pytest.mark.parametrize("settings", [one for one in naming("id") if "sensitive" not in one])
def test_decide_schema_setting_with_former_name_is_refused(decide, settings):
    with pytest.raises(SchemaError, match=f"'id'.*{IS_REFUSED}"):
        decide(FIRST, RENAMED, **settings)


@pytest.mark.parametrize(("policy", "action"), [("stop", "refuse"), ("new_table", "roll_over")])
def test_decide_schema_incompatible_cannot_be_read(decide, policy, action):
    decision = decide(FIRST, UNFIT, policy=policy)

    assert decision.action == action
    with pytest.raises(IncompatibleSchema, match="shop.orders: UNSUPPORTED_TYPE_CHANGE id"):
        decision.require_readable()


def test_require_naming_of_table_with_both_names_is_refused():
    topic = Topic(name="orders", metadata=Metadata(naming="confluent_portable"))
    after, before = (table_schema(names, StructType(), None) for names in (topic.metadata.names, Metadata().names))
    others = [field.model_copy(update={"field_id": 100 + field.field_id}) for field in before.fields]
    with pytest.raises(SchemaError, match="column 'kafka_offset'.*Nothing was changed. Choose another `table`"):
        require_naming(topic, Schema(*after.fields, *others), "shop.orders")


def test_decide_schema_field_named_like_a_metadata_column_is_accepted(decide):
    assert decide(orders(kafka_offset="long"), policy="stop", naming="confluent", named="confluent").action == "accept"


def json_schema(**properties):
    return json.dumps({"type": "object", "properties": {name: {"type": type_} for name, type_ in properties.items()}})


def protobuf(fields):
    return f'syntax = "proto3"; message orders {{ {fields} }}'


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('"a": {"properties": {"b": {}}}', '"a.b": {}'),
        ('"a": {"type": "array", "items": {"type": "string"}}', '"A.element": {}'),
        ('"a": {"additionalProperties": {"properties": {"b": {}}}, "type": "object"}', '"a.value.b": {}'),
    ],
)
def test_decide_schema_columns_of_one_path_are_refused(tmp_path, first, second):
    versions = Catalog(tmp_path, "json_schema", "stop")
    versions.texts = [f'{{"properties": {{{first}, {second}}}}}']
    with pytest.raises(SchemaError, match=r"path 'a\.[a-z.]+'.*Rename one"):
        versions.decide()


@pytest.mark.parametrize("names", ["µμ", "sſ", "kK", "iİ", "σς"])
def test_decide_schema_names_alike_for_spark_are_refused(tmp_path, names):
    versions = Catalog(tmp_path, "json_schema", "stop")
    versions.texts = [json_schema(**dict.fromkeys(names, "integer"))]
    with pytest.raises(SchemaError, match="differ by case only"):
        versions.decide()


CONFLICTS = {
    "JSON, case": (
        "json_schema",
        json_schema(id="integer", name="string"),
        json_schema(id="integer", Name="string"),
        "'name'.*'Name'.*CASE_COLLISION",
    ),
    "JSON, map": (
        "json_schema",
        '{"properties": {"id": {"type": "integer"}, "m": {"type": "object", "additionalProperties": true}}}',
        '{"properties": {"id": {"type": "integer"}, "m": {"properties": {"x": {"type": "integer"}}}}}',
        "'m'.*TYPE_MISMATCH",
    ),
    "Protobuf, swapped numbers": (
        "protobuf",
        protobuf("int32 id = 1; string a = 2; string b = 3;"),
        protobuf("int32 id = 1; string b = 2; string a = 3;"),
        "'b' has number 2, which was 'a'.*NAME_REUSED",
    ),
    "Protobuf, case": (
        "protobuf",
        protobuf("int32 id = 1; string a = 2;"),
        protobuf("int32 id = 1; string A = 3;"),
        "'a'.*'A'.*CASE_COLLISION",
    ),
    "Protobuf, first message": (
        "protobuf",
        'syntax = "proto3"; message orders { int32 id = 1; } message refunds { int32 id = 1; }',
        'syntax = "proto3"; message refunds { int32 id = 1; } message orders { int32 id = 1; }',
        "'refunds', but was 'orders'.*TYPE_MISMATCH",
    ),
    "Avro, reused name": (
        "avro",
        orders(id="int", price="int"),
        '{"type": "record", "name": "orders", "fields": [{"name": "id", "type": "int"}, '
        '{"name": "cents", "type": "int", "aliases": ["price"]}, {"name": "price", "type": "int"}]}',
        "'cents'.*'price'.*NAME_REUSED",
    ),
    "Avro, default of another branch": (
        "avro",
        orders(id="int", x=["string", "bytes"]),
        '{"type": "record", "name": "orders", "fields": '
        '[{"name": "id", "type": "int"}, {"name": "x", "type": ["bytes", "string"], "default": "a"}]}',
        "'x'.*BRANCH_CHANGED",
    ),
}
"""Pairs of versions that cannot share columns, with the field and rule in the refusal."""
CASES = [pytest.param(*case, id=name) for name, case in CONFLICTS.items()]


class Catalog:
    """A catalog with a table that has the columns of the first version, and a registry of the versions."""

    def __init__(self, folder, value_format, policy):
        self.topic = Topic(name="orders", value_format=value_format, on_incompatible=policy)
        self.texts = []
        self.catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
        self.catalog.create_namespace("shop")
        self.table = None

    def versions(self, subject):
        type_ = {"avro": "AVRO", "json_schema": "JSON", "protobuf": "PROTOBUF"}[self.topic.value_format]
        return [RegisteredSchema(id_, text, type_) for id_, text in enumerate(self.texts, 1)]

    def decide(self):
        return decide_schema(self.topic, resolve_schemas(self, self.topic), self.table)

    def ingest(self):
        """Write a row of the present schemas."""
        schemas = self.decide().require_readable()
        if self.table is None:
            settings = RecordedSettings.of(self.topic).properties()
            table_columns = columns(self.topic, schemas)
            self.table = self.catalog.create_table(("shop", "orders"), table_columns, properties=settings)
        row = self.table.schema().as_arrow().empty_table()
        with self.table.transaction() as transaction:
            transaction.set_properties(schema_fingerprints.properties(self.table, schemas))
            transaction.append(row)


@pytest.mark.parametrize(("value_format", "first", "second", "field_and_rule"), CASES)
def test_decide_schema_conflicting_versions_stop(tmp_path, value_format, first, second, field_and_rule):
    versions = Catalog(tmp_path, value_format, "stop")
    versions.texts = [first]
    versions.ingest()
    versions.texts.append(second)
    assert versions.decide().action == "refuse"
    with pytest.raises(IncompatibleSchema, match=rf"shop\.orders.*{field_and_rule}.*on_incompatible"):
        versions.decide().require_readable()


def test_decide_schema_version_after_conflict_that_fits_is_accepted(tmp_path):
    versions = Catalog(tmp_path, "json_schema", "stop")
    versions.texts = [json_schema(id="integer", name="string")]
    versions.ingest()
    versions.texts += [json_schema(id="integer", Name="string"), json_schema(id="integer", name="string", x="integer")]
    decision = versions.decide()
    assert (decision.action, decision.error, set(decision.schemas.conflicts)) == ("accept", None, {2})
    assert [version.id for version in decision.schemas.value.versions] == [1, 3]


@pytest.mark.parametrize(("value_format", "first", "second", "field_and_rule"), CASES)
def test_decide_schema_conflicting_versions_of_new_table_are_refused(
    tmp_path, value_format, first, second, field_and_rule
):
    versions = Catalog(tmp_path, value_format, "stop")
    versions.texts = [first, second]
    with pytest.raises(SchemaError, match=field_and_rule):
        versions.decide()


@pytest.mark.parametrize(("value_format", "first", "second", "field_and_rule"), CASES)
def test_decide_schema_conflict_by_dead_letter_keeps_columns(tmp_path, value_format, first, second, field_and_rule):
    versions = Catalog(tmp_path, value_format, "dead_letter")
    versions.texts = [first]
    versions.ingest()
    before = versions.table.schema()
    versions.texts.append(second)

    decision = versions.decide()
    assert decision.action == "use_older" and re.search(f"cannot share columns.*{field_and_rule}", str(decision.error))
    schemas = decision.require_readable()
    assert (set(schemas.conflicts), [version.id for version in schemas.value.versions]) == ({2}, [1])
    assert columns(versions.topic, schemas).as_struct() == before.as_struct()
    versions.ingest()
    assert versions.decide().action == "use_older"


@pytest.mark.parametrize(("value_format", "first", "second", "field_and_rule"), CASES)
def test_decide_schema_conflict_by_new_table_rolls_over(tmp_path, value_format, first, second, field_and_rule):
    versions = Catalog(tmp_path, value_format, "new_table")
    versions.texts = [first]
    versions.ingest()
    versions.texts.append(second)
    decision = versions.decide()
    assert decision.action == "roll_over" and re.search(field_and_rule, str(decision.error))

    versions.table = None
    versions.catalog.drop_table(("shop", "orders"))
    versions.ingest()
    decision = versions.decide()
    assert decision.action == "accept" and set(decision.schemas.conflicts) == {1}
    assert [version.id for version in decision.schemas.value.versions] == [2]


def test_decide_schema_newest_without_columns_keeps_older(tmp_path):
    recursive = '{"properties": {"id": {"type": "integer"}, "x": {"$ref": "#"}}}'
    for policy in ("dead_letter", "stop", "new_table"):
        folder = tmp_path / policy
        folder.mkdir()
        versions = Catalog(folder, "json_schema", policy)
        versions.texts = [json_schema(id="integer")]
        versions.ingest()
        versions.texts.append(recursive)
        if policy == "dead_letter":
            assert versions.decide().action == "use_older"
            assert set(versions.decide().schemas.conflicts) == {2}
        else:
            with pytest.raises(SchemaError, match="refers to itself"):
                versions.decide()


def test_decide_schema_conflict_of_unknown_version_is_refused(tmp_path):
    versions = Catalog(tmp_path, "protobuf", "stop")
    versions.texts = [protobuf("string a = 2; string b = 3;")]
    versions.ingest()
    with versions.table.transaction() as transaction:
        transaction.remove_properties(SCHEMAS)
    versions.texts.append(protobuf("string b = 2; string a = 3;"))
    assert versions.decide().action == "refuse"


def test_decide_schema_refuses_key_that_neither_values_nor_keys_have():
    class Registry:
        def versions(self, subject):
            row = json.loads(orders(invoice_no="int"))
            event = [{"name": "after", "type": ["null", row]}, {"name": "op", "type": "string"}]
            value = {"type": "record", "name": "E", "fields": event}
            return [RegisteredSchema(1, orders(invoice_no="int") if subject.endswith("-key") else json.dumps(value))]

    topic = Topic.model_validate({"name": "invoices", "mode": "debezium", "key": "id", "key_format": "avro"})
    expected = "key column 'id', which its records do not have: .* columns invoice_no and the keys invoice_no. Nothing"
    with pytest.raises(SchemaError, match=expected):
        decide_schema(topic, resolve_schemas(Registry(), topic), None)
    right = topic.model_copy(update={"key": ("invoice_no",)})
    assert decide_schema(right, resolve_schemas(Registry(), right), None).action == "accept"


@pytest.mark.parametrize("key", [["id"], ["id", "at"]])
@pytest.mark.parametrize(
    ("key_format", "type_", "text"),
    [
        ("json_schema", "JSON", '{"type": "array", "items": {"type": "string"}}'),
        ("avro", "AVRO", '{"type": "array", "items": "string"}'),
        ("protobuf", "PROTOBUF", 'syntax = "proto3"; message Key {}'),
    ],
)
def test_resolve_schemas_keys_without_columns_are_refused_with_remedy(key, key_format, type_, text):
    class Registry:
        def versions(self, subject):
            is_key = subject.endswith("-key")
            return [RegisteredSchema(1, text, type_) if is_key else RegisteredSchema(2, orders(id="int", at="long"))]

    settings = {"name": "orders", "mode": "upsert", "key": key}
    with pytest.raises(SchemaError, match="keys of topic 'orders' .* columns.*, or write 'key_format: none' .*'key'$"):
        resolve_schemas(Registry(), Topic.model_validate(settings | {"key_format": key_format}))
    topic = Topic.model_validate(settings | {"key_format": "none"})
    assert decide_schema(topic, resolve_schemas(Registry(), topic), None).action == "accept"
