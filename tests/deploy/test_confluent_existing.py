"""Existing environments and clusters, which a deployment uses and never changes or deletes."""

from __future__ import annotations

import copy

import pytest

from lakehouse.config.deployment import Existing
from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.planning.planner import plan_destroy
from resources.confluent.api_keys import Scope
from tests.support.clouds.confluent.deployment import SMALL, Lake, actions

pytestmark = pytest.mark.stack


@pytest.mark.parametrize("kind", ["Basic", "Standard", "Dedicated"])
def test_delete_existing_cluster_and_its_topics_stay(lake: Lake, kind: str):
    state = lake.vendor.state
    environment = lake.confluent.environments().create("theirs")
    cluster = lake.confluent.clusters(environment.id).create("shared", lake.region)
    while not (ready := lake.confluent.clusters(environment.id).get(cluster.id)).http_endpoint:
        continue
    state.clusters[cluster.id]["spec"]["config"] = {"kind": kind} | ({"cku": 1} if kind == "Dedicated" else {})
    owner = lake.confluent.service_accounts().create("theirs", "Somebody's")
    lake.confluent.role_bindings().create(owner.principal, "CloudClusterAdmin", ready.crn)
    key = lake.confluent.api_keys().create("theirs", "", owner.id, Scope.cluster(cluster.id)).key
    while not state.spread(key.id):
        continue
    lake.confluent.topics(ready, key).create("stock_trades", 6)
    before = copy.deepcopy([state.environments, state.clusters, state.accounts, state.bindings, state.topics])
    lake.existing = Existing(confluent_environment=environment.id, confluent_cluster=cluster.id)
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


def test_plan_existing_environment_that_is_missing_is_refused(lake: Lake):
    lake.existing = Existing(confluent_environment="env-000099")
    with pytest.raises(LakehouseError, match="no access to environment 'env-000099' .*existing.confluent_environment"):
        actions(lake)
