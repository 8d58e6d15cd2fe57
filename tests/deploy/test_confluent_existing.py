"""Existing environments and clusters, which a deployment uses and never changes or deletes."""

from __future__ import annotations

import copy

import pytest

from lakehouse.config.deployment import ExistingObjects
from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.deploy.planner import plan_destroy
from resources.confluent.clusters import Clusters
from resources.confluent.organization import ApiKeys, Environments, KeyScope, RoleBindings, ServiceAccounts
from tests.support.clouds.confluent.deployment import SMALL, Lake, actions

pytestmark = pytest.mark.stack


@pytest.mark.parametrize("kind", ["Basic", "Standard", "Dedicated"])
def test_delete_existing_cluster_and_its_topics_stay(lake: Lake, kind: str):
    state = lake.vendor.state
    environment = Environments(lake.confluent.client()).create("theirs")
    cluster = Clusters(lake.confluent.client(), environment.id).create("shared", lake.region)
    while not (ready := Clusters(lake.confluent.client(), environment.id).get(cluster.id)).http_endpoint:
        continue
    state.clusters[cluster.id]["spec"]["config"] = {"kind": kind} | ({"cku": 1} if kind == "Dedicated" else {})
    owner = ServiceAccounts(lake.confluent.client()).create("theirs", "Somebody's")
    RoleBindings(lake.confluent.client()).create(owner.principal, "CloudClusterAdmin", ready.crn)
    key = ApiKeys(lake.confluent.client()).create("theirs", "", owner.id, KeyScope.cluster(cluster.id)).key
    while not state.spread(key.id):
        continue
    lake.confluent.topics(ready, key).create("stock_trades", 6)
    before = copy.deepcopy([state.environments, state.clusters, state.accounts, state.bindings, state.topics])
    lake.existing = ExistingObjects(confluent_environment=environment.id, confluent_cluster=cluster.id)
    lake.topics, lake.flink = SMALL, {}
    lake.create()
    assert actions(lake) == {} and len(state.environments) == len(state.clusters) == 1
    kafka_roles = [binding for binding in state.bindings.values() if "/kafka=" in binding["crn_pattern"]]
    assert not kafka_roles, "Basic clusters know no roles on topics and groups"

    lake.delete()

    assert [state.environments, state.clusters, state.accounts, state.bindings, state.topics] == before
    reasons = {
        resource.resource.address: resource.reason for resource in plan_destroy(lake.resources, delete_data=True)
    }
    assert reasons["confluent/cluster"] == reasons["confluent/environment"] == "existed before the deployment"


def test_deployments_in_one_environment_have_own_flink_statements(lake: Lake, other: Lake):
    environment = Environments(lake.confluent.client()).create("shared")
    for deployment in (lake, other):
        deployment.existing = ExistingObjects(confluent_environment=environment.id)
    other.flink = {"totals": lake.flink["totals"].replace("quantity * price", "price")}
    statements = lake.vendor.state.statements
    lake.create()
    [first] = statements
    other.create()
    assert len(statements) == 2 and first in statements
    assert actions(lake) == actions(other) == {}
    other.delete()
    assert list(statements) == [first]


def test_flink_statement_named_by_earlier_release_is_kept(lake: Lake, other: Lake):
    """Earlier releases named statements in an existing environment without the deployment."""
    environment = Environments(lake.confluent.client()).create("shared")
    statements = lake.vendor.state.statements
    for deployment in (other, lake):
        deployment.existing, deployment.topics = ExistingObjects(confluent_environment=environment.id), SMALL
        deployment.create()
    foreign, declared = statements
    earlier = declared.replace(f"{lake.name}.totals", "totals")
    document = statements.pop(declared)
    statements[earlier] = copy.deepcopy(document) | {"name": earlier.rpartition("/")[2]}
    assert actions(lake) == actions(other) == {}
    lake.create()
    assert [*statements] == [foreign, earlier], "a second one would write every result twice"
    statements[declared] = document
    name = earlier.rpartition("/")[2]
    assert actions(lake) == {"confluent/statement/totals": f"'{name}' runs the same SQL a second time"}
    lake.create()
    assert [*statements] == [foreign, declared] and actions(lake) == {}
    statements[earlier] = copy.deepcopy(document) | {"name": name}
    lake.delete()
    assert [*statements] == [foreign]


def test_create_connector_of_others_in_existing_cluster_is_refused(lake: Lake, other: Lake):
    environment = Environments(lake.confluent.client()).create("shared")
    cluster = Clusters(lake.confluent.client(), environment.id).create("shared", lake.region)
    while not Clusters(lake.confluent.client(), environment.id).get(cluster.id).http_endpoint:
        continue
    for deployment in (lake, other):
        deployment.existing = ExistingObjects(confluent_environment=environment.id, confluent_cluster=cluster.id)
        deployment.flink = {}
        deployment.topics = {name: {**topic, "engine": "spark"} for name, topic in SMALL.items()}
    lake.create()
    connectors = copy.deepcopy(lake.vendor.state.connectors)
    for change in (other.create, other.delete):
        with pytest.raises(UnclearState, match="connector 'datagen-stock_trades' whose service account is not that of"):
            change()
        assert lake.vendor.state.connectors == connectors
    assert actions(lake) == {}
    lake.delete()
    assert lake.vendor.state.connectors == {}
    other.create()
    assert len(lake.vendor.state.connectors) == 1


def test_plan_existing_environment_that_is_missing_is_refused(lake: Lake):
    lake.existing = ExistingObjects(confluent_environment="env-000099")
    with pytest.raises(LakehouseError, match="no access to environment 'env-000099' .*existing.confluent_environment"):
        actions(lake)
