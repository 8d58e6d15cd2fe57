"""Ingestion decides once about a new schema: accept it, read by an older version, roll over, or refuse."""

import json

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse.config.topic import Topic
from lakehouse.core.errors import DoesNotFit
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.codecs import Formats, side
from lakehouse.pipeline.schema_decision import columns, decide_schema


def orders(**types):
    fields = [{"name": name, "type": type_} for name, type_ in types.items()]
    return json.dumps({"type": "record", "name": "orders", "fields": fields})


FIRST, WIDER, UNFIT = orders(id="int"), orders(id="long", price="double"), orders(id="string")


@pytest.fixture
def decide(tmp_path):
    """Decide about the last of several versions, of which the table has the columns of the first."""

    def decided(*texts, policy="stop", is_new=False):
        topic = Topic(name="orders", on_incompatible=policy)
        versions = [RegisteredSchema(id_, text) for id_, text in enumerate(texts, 1)]
        table = None
        if not is_new:
            (tmp_path / "lake").mkdir()
            catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/lake")
            catalog.create_namespace("shop")
            first = Formats(topic, side("avro", versions[:1], ""), None)
            table = catalog.create_table(("shop", "orders"), columns(topic, first))
        return decide_schema(topic, Formats(topic, side("avro", versions, ""), None), table)

    return decided


@pytest.mark.parametrize("policy", ["stop", "dead_letter", "new_table"])
def test_schema_that_fits_is_accepted_whatever_the_policy(decide, policy):
    decision = decide(FIRST, WIDER, policy=policy)

    assert decision.action == "accept" and decision.error is None
    assert {change.rule for change in decision.changes} == {"TYPE_WIDENED", "OPTIONAL_FIELD_ADDED"}


def test_first_schema_of_a_new_table_is_accepted(decide):
    assert decide(UNFIT, is_new=True).action == "accept"


def test_older_version_is_used_where_records_become_dead_letters(decide):
    decision = decide(FIRST, UNFIT, policy="dead_letter")

    assert decision.action == "use_older"
    assert [version.id for version in decision.require_readable().value.schema.read_by] == [1]
    assert decision.formats.unfit == {2}


@pytest.mark.parametrize(("policy", "action"), [("stop", "refuse"), ("new_table", "roll_over")])
def test_records_are_not_read_into_a_table_that_their_schema_does_not_fit(decide, policy, action):
    decision = decide(FIRST, UNFIT, policy=policy)

    assert decision.action == action
    with pytest.raises(DoesNotFit, match="shop.orders: UNSUPPORTED_TYPE_CHANGE id"):
        decision.require_readable()
