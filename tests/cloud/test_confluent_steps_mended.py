"""A deployment in Confluent Cloud in which something was changed, has failed or was deleted by somebody."""

from __future__ import annotations

import copy
import json

import boto3
import pytest
from confluent_deployment import LARGE, REGION, SMALL, Lake, account, inventory, left, verbs

from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.deploy.planner import plan
from resources.confluent.api_keys import Scope
from resources.confluent.waiting import Failed

pytest_plugins = ["confluent_fixtures", "confluent_lakes"]
pytestmark = pytest.mark.stack

PATH = "/confluent_cloud_resource/lake"


def test_a_changed_statement_takes_the_place_of_the_old_one(lake: Lake):
    lake.create()
    [before] = lake.vendor.state.statements
    lake.flink = {"totals": lake.flink["totals"] + " WHERE quantity > 1"}
    assert list(verbs(lake)) == ["confluent/statement/totals"]
    lake.create()
    [after] = lake.vendor.state.statements
    assert after != before and verbs(lake) == {}


def test_a_failed_statement_is_made_anew(lake: Lake):
    lake.create()
    [statement] = lake.vendor.state.statements.values()
    statement["status"] |= {"phase": "FAILED", "detail": "out of luck"}
    assert verbs(lake) == {"confluent/statement/totals": "it has failed: out of luck"}
    lake.create()
    assert verbs(lake) == {}


def test_what_somebody_deleted_is_made_again(lake: Lake):
    for _ in range(2):
        lake.create()
    before, state = inventory(lake.vendor), lake.vendor.state
    state.acls.popitem()
    state.bindings.popitem()
    state.connectors.clear()
    state.tableflow_topics.popitem()
    assert len(verbs(lake)) > 3
    for _ in range(2):
        lake.create()
    assert verbs(lake) == {} and inventory(lake.vendor) == before


def test_an_environment_that_somebody_deleted_leaves_no_secrets(lake: Lake):
    lake.create()
    state = lake.vendor.state
    state.remove_environment(next(iter(state.environments)))
    lake.delete()
    assert left(lake.vendor) == [] and lake.secrets() == {}


def test_a_cluster_that_somebody_deleted_is_made_again_with_new_keys(lake: Lake):
    lake.create()
    state = lake.vendor.state
    state.remove_environment(next(iter(state.environments)))
    lake.create()
    assert verbs(lake) == {}
    [cluster] = state.clusters
    written = json.loads(lake.secrets()[f"{PATH}/kafka_cluster/spark/python_client"])
    assert state.keys[written["sasl.username"]]["spec"]["resource"]["id"] == cluster
    lake.delete()
    assert left(lake.vendor) == [] and lake.secrets() == {}


def test_a_key_that_is_in_no_secret_is_deleted(lake: Lake):
    lake.create()
    keys, state, owner = lake.confluent.api_keys(), lake.vendor.state, account(lake, "spark")
    [cluster] = state.clusters
    [stored] = keys.list(owner, Scope.cluster(cluster))
    stray = keys.create("lakehouse-lake-spark-kafka", "", owner, Scope.cluster(cluster))
    theirs = keys.create("by hand", "", owner, Scope.cluster(cluster))
    assert verbs(lake) == {"confluent/key/spark/kafka": f"API key {stray.id} is in no secret"}
    lake.create()
    assert stray.id not in state.keys
    assert theirs.id in state.keys and stored.id in state.keys


def test_a_key_that_somebody_deleted_is_made_anew_and_stored(lake: Lake):
    lake.create()
    name, state = f"{PATH}/kafka_cluster/app_manager/python_client", lake.vendor.state
    before = json.loads(lake.secrets()[name])["sasl.username"]
    del state.keys[before], state.secrets[before]
    lake.create()
    after = json.loads(lake.secrets()[name])
    assert state.secrets[after["sasl.username"]] == after["sasl.password"]
    assert verbs(lake) == {}


def test_a_secret_of_another_layout_is_left_alone(lake: Lake):
    lake.create()
    name = f"{PATH}/flink"
    boto3.client("secretsmanager", REGION).put_secret_value(SecretId=name, SecretString='{"hidden": "hidden"}')
    with pytest.raises(UnclearState, match=f"'{name}' has no field 'api.key'.*Nothing was changed"):
        lake.create()
    assert lake.secrets()[name] == '{"hidden": "hidden"}'


def test_what_stands_beside_a_key_is_brought_up_to_date(lake: Lake):
    lake.create()
    state = lake.vendor.state
    before = json.loads(lake.secrets()[f"{PATH}/flink"])
    state.pools.clear()
    state.statements.clear()
    lake.create()
    after = json.loads(lake.secrets()[f"{PATH}/flink"])
    assert after["api.key"] == before["api.key"]
    assert [after["compute.pool.id"]] == list(state.pools) != [before["compute.pool.id"]]


def test_a_connector_of_an_account_that_is_gone_is_set_right(lake: Lake):
    lake.create()
    lake.confluent.service_accounts().delete(account(lake, "app_connector"))
    lake.create()
    [connector] = lake.vendor.state.connectors.values()
    assert connector["config"]["kafka.service.account.id"] == account(lake, "app_connector")
    assert verbs(lake) == {}


def test_a_topic_with_too_few_partitions_is_for_somebody_to_decide(lake: Lake):
    lake.create()
    lake.topics = LARGE | {"orders": LARGE["orders"] | {"partitions": 12}}
    with pytest.raises(UnclearState, match="'orders' has 6 partitions and lakehouse.yaml declares 12"):
        verbs(lake)


def test_a_topics_retention_is_set_as_declared_and_its_partitions_stay(lake: Lake):
    lake.topics, lake.flink = SMALL | {"orders": {"retention": {"records": "30d"}}}, {}
    lake.create()
    [cluster] = lake.vendor.state.clusters
    configs = lake.vendor.state.topic_configs
    month, week = str(30 * 86_400_000), str(7 * 86_400_000)
    assert configs[f"{cluster}/orders"] == {"retention.ms": month}
    configs[f"{cluster}/orders"]["retention.ms"] = week
    configs[f"{cluster}/stock_trades"]["retention.ms"] = "1"
    assert verbs(lake) == {"confluent/topic/orders": f"retention.ms is {week} instead of {month}"}
    lake.topics["orders"]["partitions"] = 3
    lake.create()
    assert configs[f"{cluster}/orders"] == {"retention.ms": month}
    assert configs[f"{cluster}/stock_trades"] == {"retention.ms": "1"}, "nothing is declared of it"
    said = {action.step.name: action.why for action in plan(lake.steps)}
    assert said["confluent/topic/orders"] == "has 6 partitions, not 3: Kafka takes none away, and all are read"


def test_what_is_declared_of_a_tableflow_table_is_changed_in_place_or_refused(lake: Lake):
    lake.topics, lake.flink, days = SMALL, {}, 86_400_000
    lake.create()
    table = SMALL["stock_trades"] | {"retention": {"snapshots": "3d", "rows": "60d"}, "errors": "skip"}
    lake.topics = {"stock_trades": table}
    assert verbs(lake) == {
        "confluent/tableflow/stock_trades": f"retention_ms is '{7 * days}' instead of '{3 * days}'; "
        "error_handling is {'mode': 'SUSPEND'} instead of {'mode': 'SKIP'}; "
        f"data_retention_ms is None instead of '{60 * days}'"
    }
    lake.create()
    assert verbs(lake) == {}
    [kept] = lake.vendor.state.tableflow_topics.values()
    assert kept["spec"]["config"]["error_handling"] == {"mode": "SKIP"}

    before, naming = copy.deepcopy(kept), "metadata_column_naming_scheme"
    lake.topics = {"stock_trades": table | {"metadata": {"naming": "confluent"}, "errors": "suspend"}}
    assert f"{naming} is 'PORTABLE' instead of 'DEFAULT'" in verbs(lake)["confluent/tableflow/stock_trades"]
    with pytest.raises(LakehouseError, match=f"differs in {naming}, .*left as it is.*turn Tableflow off"):
        lake.create()
    assert kept == before


def test_tableflow_of_a_topic_without_a_schema(lake: Lake):
    lake.topics = SMALL | {"orders": {"engine": "tableflow"}}
    with pytest.raises(LakehouseError, match="'orders' has no schema yet .*'orders-value'.*write a first record"):
        lake.create()
    [environment] = lake.vendor.state.environments
    lake.vendor.state.write_schema(environment, "orders")
    lake.create()
    assert verbs(lake) == {}


def test_a_connector_that_fails_says_why(lake: Lake):
    lake.create()
    [connector] = lake.vendor.state.connectors.values()
    connector["status"]["connector"] |= {"state": "FAILED", "trace": "no such quickstart"}
    with pytest.raises(Failed, match="no such quickstart"):
        lake.create()
