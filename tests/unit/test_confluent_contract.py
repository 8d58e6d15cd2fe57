"""The vendor's documents, requests and recorded answers: what holds, and that the check finds what does not."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qsl

import pytest
from contract import SPECS, Operation

from resources.confluent.api_keys import ApiKey
from resources.confluent.clusters import Cluster, SchemaRegistryCluster
from resources.confluent.connectors import Connector
from resources.confluent.errors import complaint
from resources.confluent.flink import ComputePool, Statement
from resources.confluent.kafka import Acl, Topic
from resources.confluent.organization import Environment, RoleBinding, ServiceAccount
from resources.confluent.tableflow import CatalogIntegration, ProviderIntegration, TableflowTopic

REQUESTS = sorted((SPECS / "requests").glob("*.json"))
EXAMPLES = {entry["file"]: entry for entry in json.loads((SPECS / "examples" / "index.json").read_text())}
MEDIA_TYPES = {"json": "application/json", "html": "text/html;charset=utf-8"}
STATEMENTS = "/sql/v1/organizations/x/environments/x/statements"


def operation(method: str, path: str) -> Operation:
    plain, _, query = path.partition("?")
    found = Operation.find(method, re.sub("{.*?}", "x", plain), dict(parse_qsl(query)))
    assert found
    return found


def example(name: str) -> str:
    return (SPECS / "examples" / name).read_text()


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_what_the_vendors_provider_sends_is_allowed(path: Any):
    request = json.loads(path.read_text())
    assert operation(request["method"], request["path"]).request_faults({}, request["body"]) == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_the_vendor_answered_is_allowed(name: str):
    entry = EXAMPLES[name]
    media_type = MEDIA_TYPES[name.rpartition(".")[2]]
    if entry["path"].startswith("/subjects"):
        media_type = "application/vnd.schemaregistry.v1+json"
    assert operation(entry["method"], entry["path"]).answer_faults(entry["status"], media_type, example(name)) == []


@pytest.mark.parametrize(
    ("method", "path", "query", "body", "fault"),
    [
        ("POST", "/org/v2/environments", {}, {}, "'display_name' is a required property"),
        ("POST", "/org/v2/environments", {}, {"display_name": "a", "displayname": "b"}, "'displayname' is not in"),
        ("POST", "/org/v2/environments", {}, {"display_name": "a", "id": "env-1"}, "read-only"),
        ("POST", "/org/v2/environments", {"dry_run": "true"}, {"display_name": "a"}, "query: 'dry_run' is not in"),
        ("GET", "/cmk/v2/clusters", {}, None, "query: 'environment' is required"),
        ("GET", "/org/v2/environments", {"page_size": "101"}, None, "101 is greater than the maximum of 100"),
        ("GET", "/org/v2/environments", {}, {"display_name": "a"}, "body: the operation takes none"),
        ("POST", STATEMENTS, {}, {"name": "x" * 101, "spec": {"statement": "s"}}, "is too long"),
        ("POST", STATEMENTS, {}, {"name": "x", "spec": {"sql": "s"}}, "'sql' is not in the document"),
    ],
)
def test_what_is_not_allowed_is_found(method: str, path: str, query: dict[str, str], body: Any, fault: str):
    found = Operation.find(method, path, query)
    assert found and any(fault in each for each in found.request_faults(query, body))


@pytest.mark.parametrize(
    ("status", "media_type", "text", "fault"),
    [
        (200, "application/json", "{}", "status 200 is not in the document"),
        (201, "text/plain", "{}", "'text/plain' is not in the document"),
        (201, "application/json", "{", "not JSON"),
        (201, "application/json", '{"api_version": "v3"}', "'v3' is not one of"),
    ],
)
def test_an_answer_that_is_not_allowed_is_found(status: int, media_type: str, text: str, fault: str):
    found = operation("POST", "/org/v2/environments").answer_faults(status, media_type, text)
    assert any(fault in each for each in found)


@pytest.mark.parametrize("keys", [{}, {"kafka.api.key": "k"}, {"kafka.auth.mode": "SERVICE_ACCOUNT"}])
def test_a_connector_must_say_as_whom_it_writes(keys: dict[str, str]):
    put = operation("PUT", "/connect/v1/environments/x/clusters/x/connectors/x/config")
    assert put.request_faults({}, {"connector.class": "DatagenSource", "name": "x"} | keys)


@pytest.mark.parametrize(
    ("read", "name", "facts"),
    [
        (Environment.of, "environment/create_env", {"id": "env-1jrymj", "organization_id": "foo"}),
        (
            Cluster.of,
            "kafka/read_created_kafka_standard",
            {
                "phase": "PROVISIONED",
                "http_endpoint": "https://pkc-0wg55.us-central1.gcp.confluent.cloud:443",
                "crn": "crn://confluent.cloud/organization=1111aaaa-11aa-11aa-11aa-111111aaaaaa"
                "/environment=env-1jrymj/cloud-cluster=lkc-19ynpv",
            },
        ),
        (SchemaRegistryCluster.of, "schema_registry_cluster/read_provisioned_cluster", {"id": "lsrc-755ogo"}),
        (ServiceAccount.of, "service_account/create_sa", {"principal": "User:sa-1jjv26"}),
        (RoleBinding.of, "role_binding/read_created_role_binding", {"role": "CloudClusterAdmin"}),
        (ApiKey.of, "apikey/create_flink_api_key", {"scope_id": "aws.us-east-1", "environment_id": "env-3732nw"}),
        (ApiKey.of, "apikey/read_created_kafka_api_key", {"secret": None}),
        (Topic.of, "kafka_topic/read_created_kafka_topic", {"name": "test_topic_name", "partitions": 4}),
        (Connector.of, "connector/read_provisioning_connector", {"phase": "PROVISIONING", "detail": ""}),
        (ComputePool.of, "compute_pool/read_provisioning_compute_pool", {"phase": "PROVISIONING"}),
        (Statement.of, "flink_statement/read_running_flink_statement", {"sql": "SELECT CURRENT_TIMESTAMP;"}),
        (Statement.of, "flink_statement/create_flink_statement", {"phase": "PENDING"}),
        (ProviderIntegration.of, "provider_integration/create_aws_provider_integration", {"usages": ()}),
        (CatalogIntegration.of, "catalog_integration/create_aws_glue_ci", {"phase": "PENDING", "detail": ""}),
        (TableflowTopic.of, "tableflow_topic/create_error_handling", {"phase": "PENDING", "synced": False}),
        (TableflowTopic.of, "tableflow_topic/create_managed_storage_tt", {"phase": "PENDING"}),
        (TableflowTopic.of, "tableflow_topic/read_created_byob_aws_tt", {"phase": "RUNNING"}),
    ],
)
def test_the_vendors_answers_are_read(read: Any, name: str, facts: dict[str, Any]):
    document = read(json.loads(example(f"{name}.json")))
    assert {fact: getattr(document, fact) for fact in facts} == facts


def test_the_vendors_acls_are_read():
    [answer] = json.loads(example("kafka_acl/search_created_kafka_acls.json"))["data"]
    assert Acl.of(answer) == Acl("User:sa-abc123", "READ", "CLUSTER", "kafka-cluster")


@pytest.mark.parametrize(
    ("name", "code", "detail"),
    [
        ("kafka/read_deleted_kafka.json", "forbidden_access", "Forbidden Access"),
        ("role_binding/read_deleted_role_binding.json", "40301", "Either unauthorized to access role binding or"),
        ("connector/read_deleted_connector.json", "404", "resource not found"),
        ("apikey/read_list_topics_401.html", "", "Error 401 Unauthorized"),
    ],
)
def test_the_vendors_complaints_are_read(name: str, code: str, detail: str):
    said = complaint(MEDIA_TYPES[name.rpartition(".")[2]], example(name))
    assert said.code == code and said.detail.startswith(detail)


@pytest.mark.parametrize(
    ("content_type", "text", "words"),
    [
        ("application/json", '{"error": {"code": 404, "message": "account not found"}}', "404: account not found"),
        ("application/json", '{"code": 400, "message": "bad"}', "400: bad"),
        ("application/json", "<html>no JSON at all</html>", "no JSON at all"),
        ("application/json", "[1]", "[1]"),
        ("", "", ""),
    ],
)
def test_complaints_of_other_shapes_are_read(content_type: str, text: str, words: str):
    assert str(complaint(content_type, text)) == words
