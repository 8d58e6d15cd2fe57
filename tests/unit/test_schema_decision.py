"""Decisions about a new schema: accept it, read by an older version, roll over, or refuse."""

import json

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse.config.topic import Topic
from lakehouse.core.errors import IncompatibleSchema
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.schemas.decoding import TopicSchemas, side_schema
from lakehouse.pipeline.schemas.schema_decision import columns, decide_schema


def orders(**types):
    fields = [{"name": name, "type": type_} for name, type_ in types.items()]
    return json.dumps({"type": "record", "name": "orders", "fields": fields})


FIRST, WIDER, UNFIT = orders(id="int"), orders(id="long", price="double"), orders(id="string")


@pytest.fixture
def decide(tmp_path):
    """Return a function that decides about the last version, for a table with the columns of the first."""

    def decide_last(*texts, policy="stop", is_new=False):
        topic = Topic(name="orders", on_incompatible=policy)
        versions = [RegisteredSchema(id_, text) for id_, text in enumerate(texts, 1)]
        table = None
        if not is_new:
            (tmp_path / "lake").mkdir()
            catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/lake")
            catalog.create_namespace("shop")
            first = TopicSchemas(topic, side_schema("avro", versions[:1], ""), None)
            table = catalog.create_table(("shop", "orders"), columns(topic, first))
        return decide_schema(topic, TopicSchemas(topic, side_schema("avro", versions, ""), None), table)

    return decide_last


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


@pytest.mark.parametrize(("policy", "action"), [("stop", "refuse"), ("new_table", "roll_over")])
def test_decide_schema_incompatible_cannot_be_read(decide, policy, action):
    decision = decide(FIRST, UNFIT, policy=policy)

    assert decision.action == action
    with pytest.raises(IncompatibleSchema, match="shop.orders: UNSUPPORTED_TYPE_CHANGE id"):
        decision.require_readable()
