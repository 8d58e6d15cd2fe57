"""Settings that a table stores with its rows, compared with those that lakehouse.yaml declares."""

import json
import re
from functools import partial

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse.config.model import Topic
from lakehouse.core.errors import IncompatibleSettings, NewerFormat, SchemaError
from lakehouse.core.table_protocol import SETTINGS
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.schemas import recorded_settings
from lakehouse.pipeline.schemas.decoding import resolve_schemas
from lakehouse.pipeline.schemas.recorded_settings import RecordedSettings
from lakehouse.pipeline.schemas.schema_decision import columns, decide_schema

KEY = json.dumps({"type": "record", "name": "Key", "fields": [{"name": "id", "type": "string"}]})
FIELDS = {"id": "string", "user": "string", "amount": "long"}
DEDUP, UPSERT = {"mode": "dedup", "key": ["id"]}, {"mode": "upsert", "key": ["id"], "key_format": "string"}
BOTH = {"mode": "dedup", "key": ["id", "user"]}
DELETING = UPSERT | {"delete": {"column": "user", "value": "gone"}}
CONFLUENT = {"metadata": {"naming": "confluent"}}


def topic_of(settings):
    return Topic.model_validate({"name": "orders", **settings})


def schemas_of(topic, fields, aliases=()):
    fields = [{"name": name, "type": type_} for name, type_ in fields.items()]
    fields[0] |= {"aliases": [*aliases]} if aliases else {}
    text = json.dumps({"type": "record", "name": topic.record or "shop.Order", "fields": fields})
    return resolve_schemas(Registry(topic, {"value": text, "key": KEY if topic.key_format == "avro" else ""}), topic)


class Registry:
    """A schema registry with a version of the values, and perhaps of the keys, of a topic."""

    def __init__(self, topic, texts):
        self.texts = {topic.subject(side): text for side, text in texts.items() if text}

    def versions(self, subject):
        return [RegisteredSchema(1, self.texts[subject])] if subject in self.texts else []


class Shop:
    """A table with one row that was made with some settings."""

    def __init__(self, folder, settings, properties=None):
        catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
        catalog.create_namespace("shop")
        topic = topic_of(settings)
        stored = RecordedSettings.of(topic).properties() if properties is None else properties
        schema = columns(topic, schemas_of(topic, FIELDS))
        self.table = catalog.create_table(("shop", "orders"), schema, properties=stored)
        self.table.append(self.table.schema().as_arrow().empty_table())

    def decide(self, settings, fields=FIELDS, aliases=(), **how):
        topic = topic_of(settings)
        return decide_schema(topic, schemas_of(topic, fields, aliases), self.table, **how)


@pytest.fixture
def shop(tmp_path):
    return partial(Shop, tmp_path)


@pytest.mark.parametrize(
    ("original", "declared"),
    [
        ({}, {}),
        ({}, {"key": ["id"]}),
        ({"key": ["id"]}, {"key": ["user"], "key_format": "string"}),
        ({}, {"record": "shop.Order"}),
        ({}, {"name": "shop.Orders"}),
        (BOTH, BOTH | {"key": ["user", "id"]}),
        (UPSERT, {"mode": "upsert", "key": ["id"]}),
        (UPSERT, UPSERT | {"key_format": "avro"}),
        (CONFLUENT, CONFLUENT),
        (DELETING, DELETING),
        ({}, {"errors": "log", "retention": {"rows": "30d"}, "max_records_per_batch": 1, "partition_by": ["user"]}),
    ],
)
def test_settings_that_keep_meaning_of_rows_are_accepted(shop, original, declared):
    assert shop(original).decide(declared).action == "accept"


@pytest.mark.parametrize(
    ("original", "declared", "before", "after"),
    [
        ({}, UPSERT, "`mode: append`, no `key`", "`mode: upsert`, `key: id`"),
        ({"key": ["id"]}, DEDUP, "`mode: append`", "`mode: dedup`"),
        (DEDUP, {}, "`mode: dedup`, `key: id`", "`mode: append`, no `key`"),
        (UPSERT, {"key": ["id"]}, "`mode: upsert`", "`mode: append`"),
        (DEDUP, DEDUP | {"key": ["user"]}, "`key: id`", "`key: user`"),
        (DEDUP, BOTH, "`key: id`", "`key: id, user`"),
        (UPSERT, DELETING, "no `delete`", "`delete: {column: user, value: gone}`"),
        (DELETING, UPSERT, "`delete: {column: user, value: gone}`", "no `delete`"),
        (
            DELETING,
            UPSERT | {"delete": {"column": "amount", "value": 0}},
            "`delete: {column: user, value: gone}`",
            "`delete: {column: amount, value: 0}`",
        ),
        ({"record": "shop.Order"}, {"record": "shop.Refund"}, "`record: shop.Order`", "`record: shop.Refund`"),
        ({"record": "shop.Order"}, {}, "`record: shop.Order`", "no `record`"),
    ],
)
def test_settings_that_change_meaning_of_rows_are_refused(shop, original, declared, before, after):
    with_rows = shop(original)
    for policy, action in (("stop", "refuse"), ("dead_letter", "refuse"), ("new_table", "roll_over")):
        decision = with_rows.decide(declared | {"on_incompatible": policy})

        assert decision.action == action
        with pytest.raises(IncompatibleSettings) as refused:
            decision.require_readable()
        message = str(refused.value)
        assert f"shop.orders were made with {before}, but 'orders' declares {after}. Nothing was changed" in message
        remedy = "Restore the settings, .*or set `on_incompatible: new_table` to continue in orders__v2"
        assert re.search("next batch continues in orders__v2" if action == "roll_over" else remedy, message)


def test_other_key_format_of_key_not_in_values_is_refused(shop):
    by_number = {"mode": "upsert", "key": ["number"], "key_format": "string"}
    decision = shop(by_number).decide(by_number | {"key_format": "bytes"})

    assert decision.action == "refuse"
    with pytest.raises(IncompatibleSettings, match="`key_format: string`, but 'orders' declares `key_format: bytes`"):
        decision.require_readable()


@pytest.mark.parametrize("policy", ["stop", "dead_letter", "new_table"])
def test_other_metadata_names_are_refused_by_every_policy(shop, policy):
    decision = shop(DEDUP).decide(CONFLUENT | BOTH | {"on_incompatible": policy, "name": "carts"})

    assert decision.action == "refuse"
    with pytest.raises(IncompatibleSettings, match="by entry 'orders' with `naming: portable`, `key: id`, but 'carts'"):
        decision.require_readable()
    assert "new_table" not in str(decision.error)


def test_renamed_key_column_is_the_same_key(shop):
    renamed = {"order_id": "string", "user": "string", "amount": "long"}
    declared, table = DEDUP | {"key": ["order_id"]}, shop(DEDUP)

    assert table.decide(declared, renamed, aliases=["id"]).action == "accept"
    assert table.decide(declared, renamed).action == "refuse"
    # A program was killed after it renamed the column.
    with table.table.update_schema() as update:
        update.rename_column("id", "order_id")
    assert table.decide(declared, renamed, aliases=["id"]).action == "accept"
    with table.table.update_schema() as update:
        update.add_column("id", table.table.schema().find_type("order_id"))
    assert table.decide(declared, renamed, aliases=["id"]).action == "refuse"


def test_renamed_column_of_deletions_marks_the_same_deletions(shop):
    renamed = {"state": "string", "id": "string", "amount": "long"}
    declared, table = UPSERT | {"delete": {"column": "state", "value": "gone"}}, shop(DELETING)

    assert table.decide(declared, renamed, aliases=["user"]).action == "accept"
    assert table.decide(declared, renamed).action == "refuse"


def test_table_without_rows_gets_declared_settings(shop):
    table, topic = shop({}).table, topic_of(DEDUP)
    stored = RecordedSettings.of(topic_of({})).properties()
    empty = table.catalog.create_table(("shop", "empty"), table.schema(), properties=stored)

    assert decide_schema(topic, schemas_of(topic, FIELDS), empty).action == "accept"
    assert json.loads(recorded_settings.changed(topic, empty)[SETTINGS])["mode"] == "dedup"


def test_rows_of_unknown_settings_are_refused_until_adopted(shop):
    unknown = shop({}, properties={})

    assert unknown.decide({"on_incompatible": "new_table"}).action == "refuse"
    with pytest.raises(IncompatibleSettings, match="no record of the settings.*`lakehouse resume orders --at POSITION"):
        unknown.decide({}).require_readable()
    assert unknown.decide({}, is_adopted=True).action == "accept"
    with pytest.raises(SchemaError, match="column 'kafka_offset'.*Set `naming: portable`"):
        unknown.decide(CONFLUENT, is_adopted=True)


def test_settings_of_another_release_are_refused(shop):
    with pytest.raises(NewerFormat, match="Another release stored the settings"):
        shop({}, properties={SETTINGS: '{"mode": "append", "ordering": "time"}'}).decide({})
