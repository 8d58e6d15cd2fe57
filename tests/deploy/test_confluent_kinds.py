"""Special behavior of each kind of resource in the simulated Confluent Cloud."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import pytest

from lakehouse.core.errors import OutcomeUnknownError
from lakehouse.deploy.confluent.confluent_resource import wait_until_accepted
from lakehouse.deploy.waiting import Failed, wait
from resources.confluent.api_client import Conflict, ConfluentError, Forbidden, InvalidRequest, Key, NotFound
from resources.confluent.clusters import Acl, Cluster, Clusters
from resources.confluent.confluent_cloud import ConfluentCloud
from resources.confluent.flink import ComputePools, Regions
from resources.confluent.organization import (
    ApiKeys,
    Environment,
    Environments,
    KeyScope,
    RoleBindings,
    ServiceAccount,
    ServiceAccounts,
)
from resources.confluent.tableflow import ProviderIntegrations, glue
from tests.support.clouds.confluent.server import ConfluentServer, Fault
from tests.support.sleepless import Sleepless

CONFIG = {
    "connector.class": "DatagenSource",
    "name": "Source of trades",
    "kafka.auth.mode": "SERVICE_ACCOUNT",
    "kafka.service.account.id": "sa-1",
    "kafka.topic": "trades",
    "output.data.format": "AVRO",
    "quickstart": "STOCK_TRADES",
    "tasks.max": "1",
}


@dataclass
class Lake:
    """A provisioned cluster, and an account with keys for it."""

    environment: Environment
    cluster: Cluster
    account: ServiceAccount
    kafka_key: Key
    tableflow_key: Key
    flink_key: Key


@pytest.fixture
def lake(vendor: ConfluentServer, confluent: ConfluentCloud) -> Lake:
    vendor.state.polls = 0
    environment = Environments(confluent.client()).create("lake")
    created = Clusters(confluent.client(), environment.id).create("lake", "us-east-1")
    cluster = Clusters(confluent.client(), environment.id).get(created.id)
    account = ServiceAccounts(confluent.client()).create("manager", "Manages")

    def key(scope: KeyScope) -> Key:
        return ApiKeys(confluent.client()).create("key", "A key", account.id, scope).key

    scopes = KeyScope.cluster(cluster.id), KeyScope.tableflow(), KeyScope.flink("aws.us-east-1", environment.id)
    return Lake(environment, cluster, account, *map(key, scopes))


def test_find_new_resource_is_delayed(vendor: ConfluentServer, confluent: ConfluentCloud):
    vendor.state.list_lag = 2
    environment = Environments(confluent.client()).create("lake")
    environments = [Environments(confluent.client()).find("lake") for _ in range(4)]
    assert environments == [None, None, environment, environment]


def test_find_service_account_by_exact_name(confluent: ConfluentCloud):
    accounts = ServiceAccounts(confluent.client())
    created = accounts.create("manager", "Manages")
    assert accounts.find("manager") == created
    assert accounts.find("manage") is None
    with pytest.raises(Conflict, match="already in use"):
        accounts.create("manager", "Manages")


def test_delete_service_account_deletes_keys_and_bindings(
    vendor: ConfluentServer, confluent: ConfluentCloud, lake: Lake
):
    RoleBindings(confluent.client()).create(lake.account.principal, "CloudClusterAdmin", lake.cluster.crn)
    ServiceAccounts(confluent.client()).delete(lake.account.id)
    assert (vendor.state.keys, vendor.state.bindings) == ({}, {})


def test_list_role_bindings_of_exact_pattern(confluent: ConfluentCloud, lake: Lake):
    bindings, principal = RoleBindings(confluent.client()), lake.account.principal
    whole = bindings.create(principal, "ResourceOwner", lake.cluster.kafka_crn)
    part = bindings.create(principal, "ResourceOwner", f"{lake.cluster.kafka_crn}/topic=*")
    assert bindings.on(lake.cluster.kafka_crn) == [whole]
    assert bindings.find(principal, "ResourceOwner", f"{lake.cluster.kafka_crn}/topic=*") == part
    assert bindings.find(principal, "DeveloperRead", lake.cluster.kafka_crn) is None
    with pytest.raises(Conflict):
        bindings.create(principal, "ResourceOwner", lake.cluster.kafka_crn)
    bindings.delete(part)
    bindings.delete(part)


def test_delete_refused_of_each_kind_is_an_error(vendor: ConfluentServer, confluent: ConfluentCloud, lake: Lake):
    environment, pattern = lake.environment.id, lake.cluster.crn
    account = ServiceAccounts(confluent.client()).create("another", "Reads")
    pool = ComputePools(confluent.client(), environment).create("pool", "us-east-1", 5)
    binding = RoleBindings(confluent.client()).create(account.principal, "CloudClusterAdmin", pattern)
    key = ApiKeys(confluent.client()).create("key", "A key", account.id, KeyScope.tableflow())
    topics = confluent.topics(lake.cluster, lake.kafka_key)
    topics.create("trades", 1)
    deletions = [
        lambda: topics.delete("trades"),
        lambda: ApiKeys(confluent.client()).delete(key.id, account.id),
        lambda: RoleBindings(confluent.client()).delete(binding),
        lambda: ComputePools(confluent.client(), environment).delete(pool.id),
        lambda: ServiceAccounts(confluent.client()).delete(account.id),
        lambda: Clusters(confluent.client(), environment).delete(lake.cluster.id),
        lambda: Environments(confluent.client()).delete(environment),
    ]
    vendor.faults = [Fault(times=100, on=lambda method, _: method == "DELETE", response=(403, {}, "Forbidden Access"))]
    for delete in deletions:
        with pytest.raises(Forbidden, match="The call changed nothing"):
            delete()
    vendor.faults = []
    for delete in deletions:
        delete()
    assert not vendor.state.environments and list(vendor.state.accounts) == [lake.account.id]


def test_list_keys_oldest_first_without_secrets(vendor: ConfluentServer, confluent: ConfluentCloud, lake: Lake):
    keys, scope = ApiKeys(confluent.client()), KeyScope.flink("aws.us-east-1", lake.environment.id)
    second = keys.create("second", "", lake.account.id, scope)
    keys.create("elsewhere", "", lake.account.id, KeyScope.flink("aws.us-east-1", "env-other"))
    assert [key.id for key in keys.list(lake.account.id, scope)] == [lake.flink_key.id, second.id]
    vendor.state.keys[second.id]["metadata"]["created_at"] = "2020-01-01T00:00:00Z"
    listed = keys.list(lake.account.id, scope)
    assert [key.id for key in listed] == [second.id, lake.flink_key.id]
    with pytest.raises(ValueError, match="shown only when a key is created"):
        assert listed[0].key


def test_new_key_is_refused_until_it_is_known(
    vendor: ConfluentServer, confluent: ConfluentCloud, lake: Lake, sleepless: Sleepless
):
    vendor.state.key_lag = 3
    key = ApiKeys(confluent.client()).create("new", "", lake.account.id, KeyScope.cluster(lake.cluster.id)).key
    topics = confluent.topics(lake.cluster, key)
    with pytest.raises(Forbidden):
        topics.list()
    wait_until_accepted("the key", topics.list, deadline_seconds=600, clock=sleepless.clock)
    assert len(sleepless.pauses) == 3
    ApiKeys(confluent.client()).delete(key.id, lake.account.id)
    with pytest.raises(Forbidden):
        topics.list()


def test_create_topic_of_same_name_is_a_conflict(vendor: ConfluentServer, confluent: ConfluentCloud, lake: Lake):
    vendor.state.polls = 2
    topics = confluent.topics(lake.cluster, lake.kafka_key)
    topics.create("trades", 6)
    with pytest.raises(Conflict, match="already exists"):
        topics.create("trades", 6)
    topics.delete("trades")
    with pytest.raises(Conflict, match="marked for deletion"):
        topics.create("trades", 6)


def test_delete_acl_keeps_other_acls(vendor: ConfluentServer, confluent: ConfluentCloud, lake: Lake):
    acls = confluent.acls(lake.cluster, lake.kafka_key)
    read, write = (Acl(lake.account.principal, operation, "TOPIC", "trades") for operation in ("READ", "WRITE"))
    for acl in (read, write):
        acls.create(acl)
    acls.delete(read)
    acls.delete(read)
    assert acls.list(lake.account.principal) == [write]


def test_delete_protected_cluster_is_refused(vendor: ConfluentServer, confluent: ConfluentCloud, lake: Lake):
    vendor.state.clusters[lake.cluster.id]["spec"]["deletion_protection"] = True
    clusters = Clusters(confluent.client(), lake.environment.id)
    assert clusters.get(lake.cluster.id).protected
    with pytest.raises(Conflict):
        clusters.delete(lake.cluster.id)


def test_delete_environment_deletes_its_resources(vendor: ConfluentServer, confluent: ConfluentCloud, lake: Lake):
    confluent.topics(lake.cluster, lake.kafka_key).create("trades", 6)
    confluent.connectors(lake.cluster).put(CONFIG)
    ComputePools(confluent.client(), lake.environment.id).create("pool", "us-east-1", 5)
    other = Environments(confluent.client()).create("other")
    Environments(confluent.client()).delete(lake.environment.id)
    state = vendor.state
    assert set(state.environments) == {other.id}
    assert not any((state.clusters, state.registries, state.topics, state.connectors, state.pools))
    assert Clusters(confluent.client(), lake.environment.id).get(lake.cluster.id) is None
    with pytest.raises(Forbidden):
        Clusters(confluent.client(), lake.environment.id).list()
    with pytest.raises(NotFound):
        confluent.connectors(lake.cluster).list()


def test_connector_without_topic_fails_with_trace(confluent: ConfluentCloud, lake: Lake, sleepless: Sleepless):
    connectors = confluent.connectors(lake.cluster)
    connectors.put(CONFIG)
    with pytest.raises(Failed, match="Topic 'trades' does not exist"):
        wait(
            "connector",
            lambda: connectors.find("Source of trades"),
            {"RUNNING"},
            deadline_seconds=600,
            clock=sleepless.clock,
        )


def test_put_connector_updates_in_place(vendor: ConfluentServer, confluent: ConfluentCloud, lake: Lake):
    connectors = confluent.connectors(lake.cluster)
    connectors.put(CONFIG)
    [before] = vendor.state.connectors.values()
    connectors.put(CONFIG | {"tasks.max": "2"})
    [after] = vendor.state.connectors.values()
    assert after["id"] == before["id"] and after["config"]["tasks.max"] == "2"


def test_validate_connector_reports_setting_errors(confluent: ConfluentCloud, lake: Lake):
    wrong: dict[str, Any] = {name: value for name, value in CONFIG.items() if name != "quickstart"}
    with pytest.raises(InvalidRequest, match='quickstart: "quickstart" is required'):
        confluent.connectors(lake.cluster).validate(wrong)


def test_delete_connector_error_in_response_raises(vendor: ConfluentServer, confluent: ConfluentCloud, lake: Lake):
    vendor.faults = [Fault(response=(200, {}, '{"error": "busy"}'))]
    with pytest.raises(ConfluentError, match="did not delete connector 'Source': busy"):
        confluent.connectors(lake.cluster).delete("Source")


def test_create_catalog_without_role_is_refused_until_granted(
    vendor: ConfluentServer, confluent: ConfluentCloud, lake: Lake, sleepless: Sleepless
):
    integrations = ProviderIntegrations(confluent.client(), lake.environment.id)
    catalogs = confluent.catalog_integrations(lake.cluster, lake.tableflow_key)
    integration = integrations.create("aws", "arn:aws:iam::123456789012:role/lake")
    with pytest.raises(Forbidden, match="ResourceOwner or Assigner on the provider integration"):
        catalogs.create("glue", glue(integration.id))
    vendor.state.role_lag = 2
    pattern = f"{lake.environment.crn}/provider-integration={integration.id}"
    RoleBindings(confluent.client()).create(lake.account.principal, "Assigner", pattern)
    created = []
    wait_until_accepted(
        "the role",
        lambda: created.append(catalogs.create("glue", glue(integration.id))),
        deadline_seconds=600,
        in_a_row=1,
        clock=sleepless.clock,
    )
    assert created == [catalogs.find("glue")]
    assert len(sleepless.pauses) == 2
    assert len(integrations.find("aws").usages) == 1
    with pytest.raises(InvalidRequest, match="in use"):
        integrations.delete(integration.id)
    catalogs.delete(created[0].id)
    integrations.delete(integration.id)
    assert integrations.find("aws") is None


def test_statement_failure_has_its_reason(confluent: ConfluentCloud, lake: Lake, sleepless: Sleepless):
    region = Regions(confluent.client()).find("us-east-1")
    statements = confluent.statements(region, lake.environment, lake.flink_key)
    pool = ComputePools(confluent.client(), lake.environment.id).create("pool", "us-east-1", 5)
    run = {"pool_id": pool.id, "principal_id": lake.account.id, "catalog": "lake", "database": "lake"}
    statements.create("ctas", "CREATE TABLE totals AS SELECT * FROM nothing", **run)
    with pytest.raises(Failed, match="Table 'nothing' does not exist"):
        wait("ctas", lambda: statements.find("ctas"), {"RUNNING"}, deadline_seconds=600, clock=sleepless.clock)
    with pytest.raises(Conflict):
        statements.create("ctas", "DROP TABLE totals", **run)
    assert [statement.name for statement in statements.list()] == ["ctas"]


def test_find_region_without_flink_is_none(confluent: ConfluentCloud):
    assert Regions(confluent.client()).find("nowhere-1") is None


@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 7))
def test_set_up_after_lost_response_creates_no_duplicates(
    vendor: ConfluentServer, confluent: ConfluentCloud, nth: int, cut: str
):
    def set_up() -> None:
        environments, accounts = Environments(confluent.client()), ServiceAccounts(confluent.client())
        environment = environments.find("lake") or environments.create("lake")
        clusters = Clusters(confluent.client(), environment.id)
        cluster = clusters.find("lake") or clusters.create("lake", "us-east-1")
        account = accounts.find("manager") or accounts.create("manager", "Manages")
        bindings, about = RoleBindings(confluent.client()), (account.principal, "CloudClusterAdmin", cluster.crn)
        bindings.find(*about) or bindings.create(*about)
        integrations = ProviderIntegrations(confluent.client(), environment.id)
        integrations.find("aws") or integrations.create("aws", "arn:aws:iam::123456789012:role/lake")
        pools = ComputePools(confluent.client(), environment.id)
        pools.find("pool") or pools.create("pool", "us-east-1", 5)

    fault = Fault(nth=nth, on=lambda method, path: method == "POST", cut=cut)
    vendor.faults = [fault]
    with contextlib.suppress(OutcomeUnknownError):
        set_up()
    set_up()
    state = vendor.state
    kinds = (state.environments, state.clusters, state.accounts, state.bindings, state.integrations, state.pools)
    assert fault.matched >= nth and [len(kind) for kind in kinds] == [1] * 6
