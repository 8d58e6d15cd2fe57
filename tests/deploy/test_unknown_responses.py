"""Successful responses of Confluent Cloud whose JSON has another form than the vendor documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from resources.confluent.api_client import ConfluentError, Key
from resources.confluent.clusters import Cluster, Clusters, SchemaRegistryCluster, SchemaRegistryClusters, Topics
from resources.confluent.confluent_cloud import ConfluentCloud
from resources.confluent.flink import ComputePools, Region, Regions
from resources.confluent.organization import ApiKeys, Environment, Environments, KeyScope, RoleBindings, ServiceAccounts
from resources.confluent.tableflow import ProviderIntegrations
from tests.support.clouds.confluent.server import ConfluentServer, Fault

SECRET = "hunter2"
KEY = Key("key", SECRET)
PARTS: list[Any] = [None, [], "text", 7, {}, {"id": SECRET}, {"id": "a", "spec": None, "status": [], "secret": SECRET}]
ENVIRONMENT = Environment("env-1", "lake", "crn://confluent.cloud/organization=o/environment=env-1")


def cluster(vendor: ConfluentServer) -> Cluster:
    return Cluster("lkc-1", "lake", "env-1", "PROVISIONED", "crn", vendor.url, "", False)


def topics(cloud: ConfluentCloud, vendor: ConfluentServer) -> Topics:
    return cloud.topics(cluster(vendor), KEY)


LISTS: dict[str, Callable[[ConfluentCloud, ConfluentServer], object]] = {
    "/org/v2/environments": lambda cloud, _: Environments(cloud.client()).list(),
    "/cmk/v2/clusters": lambda cloud, _: Clusters(cloud.client(), "env-1").list(),
    "/srcm/v3/clusters": lambda cloud, _: SchemaRegistryClusters(cloud.client(), "env-1").find(),
    "/iam/v2/service-accounts": lambda cloud, _: ServiceAccounts(cloud.client()).find("lake"),
    "/iam/v2/role-bindings": lambda cloud, _: RoleBindings(cloud.client()).on("crn"),
    "/iam/v2/api-keys": lambda cloud, _: ApiKeys(cloud.client()).list("sa-1"),
    "/pim/v1/integrations": lambda cloud, _: ProviderIntegrations(cloud.client(), "env-1").list(),
    "/fcpm/v2/regions": lambda cloud, _: Regions(cloud.client()).find("us-east-1"),
    "/fcpm/v2/compute-pools": lambda cloud, _: ComputePools(cloud.client(), "env-1").list(),
    "/statements": lambda cloud, vendor: cloud.statements(Region("r", vendor.url), ENVIRONMENT, KEY).list(),
    "/catalog-integrations": lambda cloud, vendor: cloud.catalog_integrations(cluster(vendor), KEY).find("lake"),
    "/tableflow-topics": lambda cloud, vendor: cloud.tableflow_topics(cluster(vendor), KEY).list(),
    "/topics": lambda cloud, vendor: topics(cloud, vendor).list(),
    "/acls": lambda cloud, vendor: cloud.acls(cluster(vendor), KEY).list("User:sa-1"),
    "/connectors": lambda cloud, vendor: cloud.connectors(cluster(vendor)).list(),
}
OBJECTS: dict[str, Callable[[ConfluentCloud, ConfluentServer], object]] = {
    "GET /cmk/v2/clusters/lkc-1": lambda cloud, _: Clusters(cloud.client(), "env-1").get("lkc-1"),
    "GET /iam/v2/api-keys/key": lambda cloud, _: ApiKeys(cloud.client()).find("key"),
    "GET /fcpm/v2/compute-pools/pool": lambda cloud, _: ComputePools(cloud.client(), "env-1").get("pool"),
    "GET /connectors/c/status": lambda cloud, vendor: cloud.connectors(cluster(vendor)).find("c"),
    "GET /topics/t": lambda cloud, vendor: topics(cloud, vendor).find("t"),
    "GET /topics/t/configs/retention.ms": lambda cloud, vendor: topics(cloud, vendor).retention_ms("t"),
    "GET /tableflow-topics/t": lambda cloud, vendor: cloud.tableflow_topics(cluster(vendor), KEY).find("t"),
    "PATCH /tableflow-topics/t": lambda cloud, vendor: cloud.tableflow_topics(cluster(vendor), KEY).change("t", {}),
    "POST /topics": lambda cloud, vendor: topics(cloud, vendor).create("t", 1),
    "POST /org/v2/environments": lambda cloud, _: Environments(cloud.client()).create("lake"),
    "POST /cmk/v2/clusters": lambda cloud, _: Clusters(cloud.client(), "env-1").create("lake", "us-east-1"),
    "POST /iam/v2/service-accounts": lambda cloud, _: ServiceAccounts(cloud.client()).create("lake", ""),
    "POST /iam/v2/role-bindings": lambda cloud, _: RoleBindings(cloud.client()).create("User:a", "b", "c"),
    "POST /iam/v2/api-keys": lambda cloud, _: ApiKeys(cloud.client()).create("a", "b", "sa-1", KeyScope.cloud()),
    "POST /pim/v1/integrations": lambda cloud, _: ProviderIntegrations(cloud.client(), "env-1").create("a", "arn"),
    "PUT /validate": lambda cloud, vendor: cloud.connectors(cluster(vendor)).validate({"connector.class": "c"}),
}


def refused(cloud: ConfluentCloud, vendor: ConfluentServer, use: Callable[..., object], document: Any) -> str:
    vendor.faults = [Fault(times=9, response=(200, {}, json.dumps(document)))]
    with pytest.raises(ConfluentError) as error:
        use(cloud, vendor)
    message = str(error.value)
    assert SECRET not in message and vendor.admin_secret not in message
    assert vendor.url in message and "Check the address" in message
    return message


@pytest.mark.parametrize("path", LISTS)
def test_list_with_unknown_object_is_refused(confluent: ConfluentCloud, vendor: ConfluentServer, path: str):
    for part in PARTS:
        document = {"lake": part} if path == "/connectors" else {"data": [part]}
        message = refused(confluent, vendor, LISTS[path], document)
        assert "GET" in message and path in message and "The call changed nothing" in message


@pytest.mark.parametrize("operation", OBJECTS)
def test_unknown_object_is_refused(confluent: ConfluentCloud, vendor: ConfluentServer, operation: str):
    method, _, path = operation.partition(" ")
    for part in PARTS:
        message = refused(confluent, vendor, OBJECTS[operation], part)
        assert method in message and path in message
        assert ("The call changed nothing" if method == "GET" else "may have been executed") in message


@pytest.mark.parametrize("path", ["/topics", "/acls", "/connectors"])
def test_missing_list_is_refused(confluent: ConfluentCloud, vendor: ConfluentServer, path: str):
    for document in (None, [], "", "text", {"data": None}, {"data": {}}, {"data": ""}):
        refused(confluent, vendor, LISTS[path], document)


def test_unknown_subjects_are_refused(confluent: ConfluentCloud, vendor: ConfluentServer):
    registry = SchemaRegistryCluster("lsrc-1", "PROVISIONED", "crn", vendor.url)
    for document in (None, {}, "text", 7):
        refused(confluent, vendor, lambda cloud, _: cloud.subjects(registry, KEY).list(), document)


def test_object_with_field_of_another_type_is_refused(confluent: ConfluentCloud, vendor: ConfluentServer):
    document: dict[str, Any] = {"topic_name": "t", "partitions_count": None}
    assert "partitions is no int" in refused(confluent, vendor, lambda *args: topics(*args).find("t"), document)
