"""What holds for every type of check, because nothing else lists them."""

import dagster as dg
import pytest

from assets.topic import topic_definitions
from lakehouse.config.checks import RESERVED, RowCount, Scope, registered
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from resources.build import SYSTEMS


@pytest.mark.parametrize("continuous", [True, False])
def test_the_name_of_each_check_that_a_table_has_by_itself_is_reserved(continuous):
    topic = Topic(name="orders", continuous=continuous, errors="log", dead_letter_topic="letters")
    config = Config(namespace="shop", topics={"orders": topic}, environments={})
    given = dg.Definitions(resources=dict.fromkeys(SYSTEMS, dg.ResourceDefinition.none_resource()))
    graph = dg.Definitions.merge(topic_definitions(config, topic), given).resolve_asset_graph()

    assert {key.name for key in graph.asset_check_keys if key.asset_key.path[0] == "iceberg"} <= set(RESERVED)


@pytest.mark.parametrize("type_", registered())
def test_a_check_of_rows_finds_them_by_a_query_in_which_nothing_is_left_open(type_):
    settings = {"column": "a", "columns": ["a"], "values": [1], "pattern": "x", "table": "orders", "min": 1}
    settings |= {"sql": "a > 1" if type_ == "expression" else "SELECT * FROM {rows}"}
    known = {field.alias or name for name, field in registered()[type_].model_fields.items()}
    given = {name: value for name, value in settings.items() if name in known}
    check = Topic.model_validate({"checks": {"one": {"type": type_, **given}}}).checks["one"]

    if not isinstance(check, RowCount):
        scope = Scope("(SELECT * FROM here)", "here", {"orders": "there"})
        assert check.failing(scope).startswith("SELECT ") and "{" not in check.failing(scope)
    assert not list(check.faults({"orders"}))
