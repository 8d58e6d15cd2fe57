"""Behaviour of every type of check."""

import dagster as dg
import pytest

from assets.topics.topic_chain import topic_definitions
from lakehouse.config.checks import RESERVED, RowCount, Scope, registered
from lakehouse.config.environment import SYSTEMS
from lakehouse.config.model import Config, Topic


@pytest.mark.parametrize("continuous", [True, False])
def test_reserved_names_include_every_built_in_check(continuous):
    topic = Topic(name="orders", continuous=continuous, errors="log", dead_letter_topic="letters")
    config = Config(namespace="shop", topics={"orders": topic}, environments={})
    resources = dg.Definitions(resources=dict.fromkeys(SYSTEMS, dg.ResourceDefinition.none_resource()))
    graph = dg.Definitions.merge(topic_definitions(config, topic), resources).resolve_asset_graph()

    assert {key.name for key in graph.asset_check_keys if key.asset_key.path[1] == "iceberg"} <= set(RESERVED)


@pytest.mark.parametrize("type_", registered())
def test_failing_query_has_all_placeholders_filled(type_):
    settings = {"column": "a", "columns": ["a"], "values": [1], "pattern": "x", "table": "orders", "min": 1}
    settings |= {"sql": "a > 1" if type_ == "expression" else "SELECT * FROM {rows}"}
    fields = {field.alias or name for name, field in registered()[type_].model_fields.items()}
    arguments = {name: value for name, value in settings.items() if name in fields}
    check = Topic.model_validate({"checks": {"one": {"type": type_, **arguments}}}).checks["one"]

    if not isinstance(check, RowCount):
        scope = Scope("(SELECT * FROM here)", "here", {"orders": "there"})
        assert check.failing_rows(scope).startswith("SELECT ") and "{" not in check.failing_rows(scope)
    assert not list(check.faults({"orders"}))
