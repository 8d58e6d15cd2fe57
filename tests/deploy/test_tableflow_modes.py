"""Write modes of Tableflow and names of metadata columns that `create` sets."""

from __future__ import annotations

import pytest

from lakehouse.core.errors import LakehouseError
from tests.support.clouds.confluent.deployment import Lake

pytestmark = pytest.mark.stack

USERS = {
    "engine": "tableflow",
    "mode": "upsert",
    "key": "userid",
    "source": {"type": "datagen", "quickstart": "USERS", "schema_file": ""},
}


@pytest.fixture
def users(lake: Lake) -> Lake:
    lake.topics, lake.flink = {"users": USERS}, {}
    return lake


def test_create_upsert_compacts_topic(users: Lake):
    users.create()
    [config] = users.vendor.state.topic_configs.values()
    assert config["cleanup.policy"] == "compact"
    [table] = users.vendor.state.tableflow_topics.values()
    assert table["status"]["write_mode"] == "UPSERT"
    users.create()


def test_create_append_leaves_cleanup_policy_to_cluster(users: Lake):
    users.topics = {"users": USERS | {"mode": "append"}}
    users.create()
    [config] = users.vendor.state.topic_configs.values()
    assert "cleanup.policy" not in config


@pytest.mark.parametrize(("before", "after"), [("append", "upsert"), ("upsert", "append")])
def test_create_other_mode_of_existing_table_is_refused(users: Lake, before: str, after: str):
    users.topics = {"users": USERS | {"mode": before}}
    users.create()
    users.topics = {"users": USERS | {"mode": after}}
    with pytest.raises(LakehouseError, match="differs in write_mode, .*left unchanged"):
        users.create()


def test_create_table_over_topic_with_other_policy_is_refused(users: Lake):
    """Change the topic's policy before Tableflow is enabled, after which rows would always be appended."""
    users.create()
    [(topic_id, config)] = users.vendor.state.topic_configs.items()
    config["cleanup.policy"] = "delete"
    del users.vendor.state.tableflow_topics[topic_id]
    with pytest.raises(LakehouseError, match="write mode APPEND, but lakehouse.yaml declares UPSERT.*to compact"):
        users.create()


@pytest.mark.parametrize(
    ("metadata", "scheme"),
    [({}, "PORTABLE"), ({"naming": "confluent_portable"}, "PORTABLE"), ({"naming": "confluent"}, "DEFAULT")],
)
def test_create_sets_naming_scheme(users: Lake, metadata: dict[str, str], scheme: str):
    users.topics = {"users": USERS | {"metadata": metadata}}
    users.create()
    [table] = users.vendor.state.tableflow_topics.values()
    assert table["spec"]["config"]["metadata_column_naming_scheme"] == scheme
