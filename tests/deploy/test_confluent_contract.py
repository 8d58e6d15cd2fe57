"""Validation of requests and recorded responses by the vendor's documents, including invalid ones."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qsl

import pytest

from resources.confluent.api_client import error_message
from resources.confluent.clusters import Acl, Cluster, Connector, KafkaTopic, SchemaRegistryCluster
from resources.confluent.flink import ComputePool, Statement
from resources.confluent.organization import ApiKey, Environment, RoleBinding, ServiceAccount
from resources.confluent.tableflow import CatalogIntegration, ProviderIntegration, TableflowTopic
from tests.support.clouds.confluent.contract import SPECS, find
from tests.support.clouds.openapi import Operation

REQUESTS = sorted((SPECS / "requests").glob("*.json"))
EXAMPLES = {entry["file"]: entry for entry in json.loads((SPECS / "examples" / "index.json").read_text())}
MEDIA_TYPES = {"json": "application/json", "html": "text/html;charset=utf-8"}
STATEMENTS = "/sql/v1/organizations/x/environments/x/statements"


def operation(method: str, path: str) -> Operation:
    plain, _, query = path.partition("?")
    match = find(method, re.sub("{.*?}", "x", plain), dict(parse_qsl(query)))
    assert match
    return match


def example(name: str) -> str:
    return (SPECS / "examples" / name).read_text()


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_contract_requests_of_provider_are_valid(path: Any):
    request = json.loads(path.read_text())
    assert operation(request["method"], request["path"]).request_faults({}, request["body"]) == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_contract_recorded_responses_are_valid(name: str):
    entry = EXAMPLES[name]
    media_type = MEDIA_TYPES[name.rpartition(".")[2]]
    if entry["path"].startswith("/subjects"):
        media_type = "application/vnd.schemaregistry.v1+json"
    assert operation(entry["method"], entry["path"]).response_faults(entry["status"], media_type, example(name)) == []


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
def test_contract_invalid_request_is_reported(method: str, path: str, query: dict[str, str], body: Any, fault: str):
    match = find(method, path, query)
    assert match and any(fault in message for message in match.request_faults(query, body))


@pytest.mark.parametrize(
    ("status", "media_type", "text", "fault"),
    [
        (200, "application/json", "{}", "status 200 is not in the document"),
        (201, "text/plain", "{}", "'text/plain' is not in the document"),
        (201, "application/json", "{", "not JSON"),
        (201, "application/json", '{"api_version": "v3"}', "'v3' is not one of"),
    ],
)
def test_contract_invalid_response_is_reported(status: int, media_type: str, text: str, fault: str):
    faults = operation("POST", "/org/v2/environments").response_faults(status, media_type, text)
    assert any(fault in message for message in faults)


@pytest.mark.parametrize("keys", [{}, {"kafka.api.key": "k"}, {"kafka.auth.mode": "SERVICE_ACCOUNT"}])
def test_contract_connector_without_identity_is_reported(keys: dict[str, str]):
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
        (KafkaTopic.of, "kafka_topic/read_created_kafka_topic", {"name": "test_topic_name", "partitions": 4}),
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
def test_client_reads_recorded_responses(read: Any, name: str, facts: dict[str, Any]):
    document = read(json.loads(example(f"{name}.json")))
    assert {fact: getattr(document, fact) for fact in facts} == facts


def test_client_reads_recorded_acls():
    [response] = json.loads(example("kafka_acl/search_created_kafka_acls.json"))["data"]
    assert Acl.of(response) == Acl("User:sa-abc123", "READ", "CLUSTER", "kafka-cluster")


@pytest.mark.parametrize(
    ("name", "code", "detail"),
    [
        ("kafka/read_deleted_kafka.json", "forbidden_access", "Forbidden Access"),
        ("role_binding/read_deleted_role_binding.json", "40301", "Either unauthorized to access role binding or"),
        ("connector/read_deleted_connector.json", "404", "resource not found"),
        ("apikey/read_list_topics_401.html", "", "Error 401 Unauthorized"),
    ],
)
def test_client_reads_recorded_errors(name: str, code: str, detail: str):
    error = error_message(MEDIA_TYPES[name.rpartition(".")[2]], example(name))
    assert error.code == code and error.detail.startswith(detail)


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
def test_client_reads_errors_of_other_formats(content_type: str, text: str, words: str):
    assert str(error_message(content_type, text)) == words
