"""Repair of a Confluent deployment after external changes, failures and deletions."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from datetime import timedelta

import boto3
import pytest

from lakehouse.core.errors import ConfigError, LakehouseError, UnclearState
from lakehouse.deploy.waiting import Failed
from resources.confluent.organization import ApiKeys, KeyScope, ServiceAccounts
from tests.support.clouds.confluent.deployment import (
    LARGE,
    REGION,
    SMALL,
    SQL,
    Lake,
    account,
    actions,
    inventory,
    left,
)

pytestmark = pytest.mark.stack

PATH = "/confluent_cloud_resource/lake"


def test_create_changed_statement_is_replaced(lake: Lake):
    lake.create()
    [before] = lake.vendor.state.statements
    lake.flink = {"totals": lake.flink["totals"] + " WHERE quantity > 1"}
    assert list(actions(lake)) == ["confluent/statement/totals"]
    lake.create()
    [after] = lake.vendor.state.statements
    assert after != before and actions(lake) == {}


PLAIN = SQL.replace("IF NOT EXISTS ", "")


def fail(lake: Lake) -> None:
    [statement] = lake.vendor.state.statements.values()
    statement["status"] |= {"phase": "FAILED", "detail": "out of luck"}


def change_sql(lake: Lake) -> None:
    lake.flink = {"totals": PLAIN + " WHERE quantity > 1"}


def remove(lake: Lake) -> None:
    lake.vendor.state.statements.clear()


@pytest.mark.parametrize("happens", [fail, change_sql, remove])
def test_create_table_that_exists_leaves_statement_unchanged(lake: Lake, happens: Callable[[Lake], None]):
    lake.flink = {"totals": PLAIN}
    lake.create()
    assert actions(lake) == {}
    happens(lake)
    before = inventory(lake.vendor)
    for do in (lake.create, lambda: actions(lake)):
        with pytest.raises(UnclearState, match=r"topic 'totals', which exists.* It was not started\. .*IF NOT EXISTS"):
            do()
    assert inventory(lake.vendor) == before
    lake.flink = {"totals": SQL}
    lake.create()
    [statement] = lake.vendor.state.statements.values()
    assert statement["status"]["phase"] == "RUNNING" and statement["spec"]["statement"] == SQL
    assert actions(lake) == {}


@pytest.mark.parametrize("table", ["shared.totals", "`lakehouse-lake`.`shared`.totals", "`a`.`lakehouse-lake`.totals"])
def test_plan_refuses_table_of_statement_in_another_cluster(lake: Lake, table: str):
    lake.flink = {"totals": SQL.replace("`totals`", table, 1)}
    with pytest.raises(ConfigError, match=r"flink.totals: .* not in cluster 'lakehouse-lake'.* not started\. Write"):
        actions(lake)
    lake.flink = {"totals": SQL}
    lake.create()
    lake.flink = {"totals": SQL.replace("`totals`", table, 1)}
    with pytest.raises(ConfigError, match="not in cluster 'lakehouse-lake'"):
        actions(lake)
    cluster = next(iter(lake.vendor.state.clusters))
    lake.flink = {"totals": SQL.replace("`totals`", f"`lakehouse-lake`.`{cluster}`.totals", 1)}
    assert list(actions(lake)) == ["confluent/statement/totals"]


def test_create_failed_statement_is_replaced(lake: Lake):
    lake.create()
    [statement] = lake.vendor.state.statements.values()
    statement["status"] |= {"phase": "FAILED", "detail": "out of luck"}
    assert actions(lake) == {"confluent/statement/totals": "it is FAILED (out of luck)"}
    lake.create()
    assert actions(lake) == {}


def test_create_deleted_resources_are_restored(lake: Lake):
    for _ in range(2):
        lake.create()
    before, state = inventory(lake.vendor), lake.vendor.state
    state.acls.popitem()
    state.bindings.popitem()
    state.connectors.clear()
    state.tableflow_topics.popitem()
    assert len(actions(lake)) > 3
    for _ in range(2):
        lake.create()
    assert actions(lake) == {} and inventory(lake.vendor) == before


def test_delete_after_removed_environment_leaves_no_secrets(lake: Lake):
    lake.create()
    state = lake.vendor.state
    state.remove_environment(next(iter(state.environments)))
    lake.delete()
    assert left(lake.vendor) == [] and lake.secrets() == {}


def test_create_after_removed_environment_makes_new_keys(lake: Lake):
    lake.create()
    state = lake.vendor.state
    state.remove_environment(next(iter(state.environments)))
    lake.create()
    assert actions(lake) == {}
    [cluster] = state.clusters
    written = json.loads(lake.secrets()[f"{PATH}/kafka_cluster/spark/python_client"])
    assert state.keys[written["sasl.username"]]["spec"]["resource"]["id"] == cluster
    lake.delete()
    assert left(lake.vendor) == [] and lake.secrets() == {}


def test_create_abandoned_key_in_no_secret_is_deleted(lake: Lake):
    lake.create()
    keys, state, owner = ApiKeys(lake.confluent.client()), lake.vendor.state, account(lake, "spark")
    [cluster] = state.clusters
    [stored] = keys.list(owner, KeyScope.cluster(cluster))
    name, description = stored.name, stored.description
    stray = keys.create(name, description, owner, KeyScope.cluster(cluster))
    foreign = keys.create(name, description.replace("us-east-1", "eu-west-1"), owner, KeyScope.cluster(cluster))
    manual = keys.create("by hand", "", owner, KeyScope.cluster(cluster))
    assert actions(lake) == {}, "another command may store it yet"
    lake.age_keys(timedelta(hours=4))
    assert actions(lake) == {"confluent/key/spark/kafka": f"API key {stray.id} is in no secret and will be deleted"}
    lake.create()
    assert stray.id not in state.keys
    assert {manual.id, foreign.id, stored.id} <= state.keys.keys()


def test_create_missing_secret_with_live_keys_is_unclear(lake: Lake):
    lake.create()
    name, state = f"{PATH}/kafka_cluster/spark/python_client", lake.vendor.state
    before = set(state.keys)
    boto3.client("secretsmanager", REGION).delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)
    lake.age_keys(timedelta(hours=2))
    for do in (lambda: actions(lake), lake.create):
        with pytest.raises(UnclearState, match=f"no secret '{name}'.* programs may use them. They were left unchanged"):
            do()
    assert set(state.keys) == before and name not in lake.secrets()
    lake.delete()
    assert left(lake.vendor) == []


def test_create_recent_key_without_secret_is_kept_until_abandoned(lake: Lake):
    lake.create()
    name, state = f"{PATH}/kafka_cluster/spark/python_client", lake.vendor.state
    recent = json.loads(lake.secrets()[name])["sasl.username"]
    boto3.client("secretsmanager", REGION).delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)
    assert actions(lake) == {"confluent/key/spark/kafka": "does not exist"}
    lake.create()
    # Another `create` may have made it, and may have stored it since the secret was read.
    assert recent in state.keys and actions(lake) == {}
    lake.age_keys(timedelta(hours=4))
    assert actions(lake) == {"confluent/key/spark/kafka": f"API key {recent} is in no secret and will be deleted"}
    lake.create()
    assert recent not in state.keys and actions(lake) == {}


@pytest.mark.parametrize("elsewhere", [{"account": "999999999999"}, {"region": "eu-west-1"}])
def test_create_same_name_from_elsewhere_is_refused(lake: Lake, elsewhere):
    lake.create()
    before, secrets, calls = inventory(lake.vendor), lake.secrets(), len(lake.vendor.calls)
    other = dataclasses.replace(lake, reported=[], things=set(), **elsewhere)
    for do in (other.create, other.delete, lambda: actions(other)):
        with pytest.raises(UnclearState, match="'lakehouse-lake-app-manager' .* of another deployment"):
            do()
    assert inventory(lake.vendor) == before and lake.secrets() == secrets
    assert {method for method, _ in lake.vendor.calls[calls:]} == {"GET"}


def test_create_deleted_key_is_replaced_and_stored(lake: Lake):
    lake.create()
    name, state = f"{PATH}/kafka_cluster/app_manager/python_client", lake.vendor.state
    before = json.loads(lake.secrets()[name])["sasl.username"]
    del state.keys[before], state.secrets[before]
    lake.create()
    after = json.loads(lake.secrets()[name])
    assert state.secrets[after["sasl.username"]] == after["sasl.password"]
    assert actions(lake) == {}


def test_create_secret_of_other_layout_is_refused(lake: Lake):
    lake.create()
    name = f"{PATH}/flink"
    boto3.client("secretsmanager", REGION).put_secret_value(SecretId=name, SecretString='{"hidden": "hidden"}')
    with pytest.raises(UnclearState, match=f"'{name}' has no field 'api.key'.*The secret was left as it is"):
        lake.create()
    assert lake.secrets()[name] == '{"hidden": "hidden"}'


def test_create_fields_beside_key_are_updated(lake: Lake):
    lake.create()
    state = lake.vendor.state
    before = json.loads(lake.secrets()[f"{PATH}/flink"])
    state.pools.clear()
    state.statements.clear()
    lake.create()
    after = json.loads(lake.secrets()[f"{PATH}/flink"])
    assert after["api.key"] == before["api.key"]
    assert [after["compute.pool.id"]] == list(state.pools) != [before["compute.pool.id"]]


def test_create_connector_of_deleted_account_is_repaired(lake: Lake):
    lake.create()
    ServiceAccounts(lake.confluent.client()).delete(account(lake, "app_connector"))
    lake.create()
    [connector] = lake.vendor.state.connectors.values()
    assert connector["config"]["kafka.service.account.id"] == account(lake, "app_connector")
    assert actions(lake) == {}


def test_plan_topic_with_too_few_partitions_stops(lake: Lake):
    lake.create()
    lake.topics = LARGE | {"orders": LARGE["orders"] | {"partitions": 12}}
    with pytest.raises(UnclearState, match="'orders' has 6 partitions and lakehouse.yaml declares 12"):
        actions(lake)


def test_create_tableflow_settings_are_updated_or_refused(lake: Lake):
    lake.topics, lake.flink, days = SMALL, {}, 86_400_000
    lake.create()
    table = SMALL["stock_trades"] | {"retention": {"snapshots": "3d", "rows": "60d"}, "errors": "skip"}
    lake.topics = {"stock_trades": table}
    assert actions(lake) == {
        "confluent/tableflow/stock_trades": f"retention_ms is '{7 * days}' instead of '{3 * days}'; "
        "error_handling is {'mode': 'SUSPEND'} instead of {'mode': 'SKIP'}; "
        f"data_retention_ms is None instead of '{60 * days}'"
    }
    lake.create()
    assert actions(lake) == {}
    [kept] = lake.vendor.state.tableflow_topics.values()
    assert kept["spec"]["config"]["error_handling"] == {"mode": "SKIP"}

    before, naming = copy.deepcopy(kept), "metadata_column_naming_scheme"
    lake.topics = {"stock_trades": table | {"metadata": {"naming": "confluent"}, "errors": "suspend"}}
    assert f"{naming} is 'PORTABLE' instead of 'DEFAULT'" in actions(lake)["confluent/tableflow/stock_trades"]
    with pytest.raises(LakehouseError, match=f"differs in {naming}, .*left unchanged.*disable Tableflow"):
        lake.create()
    assert kept == before


def test_create_tableflow_topic_without_schema_fails(lake: Lake):
    lake.topics = SMALL | {"orders": {"engine": "tableflow"}}
    with pytest.raises(LakehouseError, match="'orders' has no schema yet .*'orders-value'.*write a first record"):
        lake.create()
    [environment] = lake.vendor.state.environments
    lake.vendor.state.write_schema(environment, "orders")
    lake.create()
    assert actions(lake) == {}


def test_create_failed_connector_has_its_reason(lake: Lake):
    lake.create()
    [connector] = lake.vendor.state.connectors.values()
    connector["status"]["connector"] |= {"state": "FAILED", "trace": "no such quickstart"}
    with pytest.raises(Failed, match="no such quickstart"):
        lake.create()
