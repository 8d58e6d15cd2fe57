"""Handlers for provider integrations, catalog integrations and Tableflow topics."""

from __future__ import annotations

import copy
import uuid

from werkzeug.routing import Rule
from werkzeug.wrappers import Request

from tests.support.clouds.confluent.state import ORGANIZATION, Problem, State

CATALOG_TYPES = {"AwsGlue": "AWS_GLUE", "Snowflake": "SNOWFLAKE"}
NAMING = "metadata_column_naming_scheme"
CATALOGS, TOPICS = "/tableflow/v1/catalog-integrations", "/tableflow/v1/tableflow-topics"


def usages(state: State, integration_id: str) -> list[str]:
    users = [
        *((catalog["metadata"], catalog["spec"]["config"]) for catalog in state.catalogs.values()),
        *((table["metadata"], table["spec"]["storage"]) for table in state.tableflow_topics.values()),
    ]
    return [
        metadata["resource_name"] for metadata, part in users if part.get("provider_integration_id") == integration_id
    ]


def list_integrations(state: State, request: Request):
    environment_id = request.args["environment"]
    state.environment(environment_id)
    shown = state.listed(state.integrations, lambda integration: integration["environment"]["id"] == environment_id)
    return [catalog | {"usages": usages(state, catalog["id"])} for catalog in shown]


def create_integration(state: State, request: Request):
    body = request.json
    state.environment(body["environment"]["id"])
    integration_id = state.new_id("cspi")
    issued = {
        "iam_role_arn": f"arn:aws:iam::000000000000:role/{integration_id}",
        "external_id": str(uuid.uuid4()),
    }
    document = {
        "api_version": "pim/v1",
        "kind": "Integration",
        "id": integration_id,
        "display_name": body["display_name"],
        "provider": "AWS",
        "config": body["config"] | issued,
        "usages": [],
        "environment": state.reference(body["environment"]["id"]),
    }
    return 201, state.add(state.integrations, integration_id, document)


def delete_integration(state: State, request: Request, thing_id: str):
    if thing_id not in state.integrations:
        raise Problem(404, f"Provider Integration {thing_id} not found", 404, shape="error_code")
    if usages(state, thing_id):
        raise Problem(400, f"Provider Integration {thing_id} is in use", "in_use")
    del state.integrations[thing_id]
    return 204, None


def document_of(state: State, request: Request, kind: str, path: str, crn_part: str, thing_id: str) -> dict:
    spec = request.json["spec"]
    environment_id, cluster_id = spec["environment"]["id"], spec["kafka_cluster"]["id"]
    state.cluster(environment_id, cluster_id)
    crn = f"{ORGANIZATION}/environment={environment_id}/{crn_part}={thing_id}"
    references = {
        "environment": state.reference(environment_id),
        "kafka_cluster": state.cluster_reference(environment_id, cluster_id),
    }
    return {
        "api_version": "tableflow/v1",
        "kind": kind,
        "metadata": state.metadata(f"{path}/{thing_id}", crn),
        "spec": spec | references | {"suspended": False},
        "status": {"phase": "PENDING"},
    }


def may_use(state: State, request: Request, environment_id: str, integration_id: str) -> None:
    crn = f"{ORGANIZATION}/environment={environment_id}/provider-integration={integration_id}"
    state.require_role(request.environ["owner_id"], ("ResourceOwner", "Assigner"), crn)


def list_catalogs(state: State, request: Request):
    cluster_id = request.args["spec.kafka_cluster"]
    shown = state.listed(state.catalogs, lambda catalog: catalog["spec"]["kafka_cluster"]["id"] == cluster_id)
    return [open_clients(state, catalog) for catalog in shown]


def open_clients(state: State, document: dict) -> dict:
    """Set a catalog to connected once a topic of its cluster is a table, and return it without its secret."""
    secret = document["spec"]["config"].get("client_secret")
    shown = copy.deepcopy(document)
    shown["spec"]["config"] |= {"client_secret": "****"} if secret else {}
    if secret and state.open_catalog_secret not in (None, secret):
        shown["status"] |= {"phase": "FAILED", "error_message": "unauthorized_client"}
        return shown
    cluster_id = document["spec"]["kafka_cluster"]["id"]
    tables = [table for k, table in state.tableflow_topics.items() if k.startswith(f"{cluster_id}/")]
    if shown["status"]["phase"] == "PENDING" and any(table["status"]["phase"] == "RUNNING" for table in tables):
        shown["status"]["phase"] = "CONNECTED"
    return shown


def create_catalog(state: State, request: Request):
    spec = request.json["spec"]
    if spec["config"]["kind"] == "AwsGlue":
        may_use(state, request, spec["environment"]["id"], spec["config"]["provider_integration_id"])
    catalog_id = state.new_id("tci")
    document = document_of(state, request, "CatalogIntegration", CATALOGS, "catalog-integration", catalog_id)
    document["id"] = catalog_id
    return 202, open_clients(state, state.add(state.catalogs, f"{spec['kafka_cluster']['id']}/{catalog_id}", document))


def change_catalog(state: State, request: Request, thing_id: str):
    spec = request.json["spec"]
    catalog = state.catalogs.get(f"{spec['kafka_cluster']['id']}/{thing_id}")
    if not catalog:
        raise Problem(404, "Not Found", "resource_not_found")
    if spec["config"]["kind"] != catalog["spec"]["config"]["kind"]:
        raise Problem(400, "config.kind cannot be changed", "invalid_field")
    catalog["spec"]["config"] |= spec["config"]
    return 200, open_clients(state, catalog)


def get_catalog(state: State, request: Request, thing_id: str):
    catalog = state.catalogs.get(f"{request.args['spec.kafka_cluster']}/{thing_id}")
    if not catalog:
        raise Problem(404, "Not Found", "resource_not_found")
    return 200, open_clients(state, catalog)


def delete_catalog(state: State, request: Request, thing_id: str):
    get_catalog(state, request, thing_id)
    del state.catalogs[f"{request.args['spec.kafka_cluster']}/{thing_id}"]
    return 204, None


def list_topics(state: State, request: Request):
    cluster_id = request.args["spec.kafka_cluster"]
    return state.listed(state.tableflow_topics, lambda table: table["spec"]["kafka_cluster"]["id"] == cluster_id)


def create_topic(state: State, request: Request):
    spec = request.json["spec"]
    environment_id, cluster_id, name = spec["environment"]["id"], spec["kafka_cluster"]["id"], spec["display_name"]
    topic_id = f"{cluster_id}/{name}"
    if topic_id in state.tableflow_topics:
        raise Problem(409, f"Tableflow is already enabled on topic {name}", "conflict")
    if topic_id not in state.topics:
        raise Problem(422, f"Topic {name} does not exist", "invalid_topic")
    if spec["storage"]["kind"] == "ByobAws":
        may_use(state, request, environment_id, spec["storage"]["provider_integration_id"])
    document = document_of(state, request, "TableflowTopic", TOPICS, "tableflow-topic", name)
    compacted = "compact" in state.topic_configs.get(topic_id, {}).get("cleanup.policy", "delete")
    document["status"]["write_mode"] = "UPSERT" if compacted else "APPEND"

    def materialized() -> None:
        if f"{name}-value" not in state.subjects[state.registry_of(environment_id)]:
            document["status"] |= {"phase": "FAILED", "error_message": f"Topic {name} has no schema"}
            return
        storage = document["spec"]["storage"]
        path = f"10011010/11101100/org/{environment_id}/{cluster_id}/v1/{name}"
        is_managed = storage["kind"] == "Managed"
        storage["table_path"] = f"s3://{storage.get('bucket_name', 'managed')}/{path}"
        document["status"] |= {
            "phase": "RUNNING",
            "catalog_sync_statuses": [
                {
                    "catalog_integration_id": catalog["id"],
                    "catalog_type": CATALOG_TYPES[catalog["spec"]["config"]["kind"]],
                    "sync_status": "SYNCED",
                }
                for catalog in state.catalogs.values()
                if catalog["spec"]["kafka_cluster"]["id"] == cluster_id and not is_managed
            ],
        }

    state.after_polls(topic_id, materialized)
    return 202, state.add(state.tableflow_topics, topic_id, document)


def get_topic(state: State, request: Request, thing_id: str):
    topic_id = f"{request.args['spec.kafka_cluster']}/{thing_id}"
    state.look(topic_id)
    if topic_id not in state.tableflow_topics:
        raise Problem(404, "Not Found", "resource_not_found")
    return 200, state.tableflow_topics[topic_id]


def change_topic(state: State, request: Request, thing_id: str):
    spec = request.json["spec"]
    topic_id = f"{spec['kafka_cluster']['id']}/{thing_id}"
    if topic_id not in state.tableflow_topics:
        raise Problem(404, "Not Found", "resource_not_found")
    config = state.tableflow_topics[topic_id]["spec"].setdefault("config", {})
    if spec["config"].get(NAMING, config.get(NAMING)) != config.get(NAMING):
        raise Problem(400, f"{NAMING} cannot be changed", "invalid_field")
    config |= spec["config"]
    return 200, state.tableflow_topics[topic_id]


def delete_topic(state: State, request: Request, thing_id: str):
    get_topic(state, request, thing_id)
    state.vanish(state.tableflow_topics, f"{request.args['spec.kafka_cluster']}/{thing_id}")
    return 204, None


def list_regions(state: State, request: Request):
    region = {"api_version": "tableflow/v1", "kind": "Region", "id": "r-1", "metadata": {"self": ""}, "cloud": "AWS"}
    return [region | {"region": "us-east-1"}]


RULES = [
    Rule("/tableflow/v1/regions", methods=["GET"], endpoint=list_regions),
    Rule("/pim/v1/integrations", methods=["GET"], endpoint=list_integrations),
    Rule("/pim/v1/integrations", methods=["POST"], endpoint=create_integration),
    Rule("/pim/v1/integrations/<thing_id>", methods=["DELETE"], endpoint=delete_integration),
    Rule(CATALOGS, methods=["GET"], endpoint=list_catalogs),
    Rule(CATALOGS, methods=["POST"], endpoint=create_catalog),
    Rule(f"{CATALOGS}/<thing_id>", methods=["GET"], endpoint=get_catalog),
    Rule(f"{CATALOGS}/<thing_id>", methods=["PATCH"], endpoint=change_catalog),
    Rule(f"{CATALOGS}/<thing_id>", methods=["DELETE"], endpoint=delete_catalog),
    Rule(TOPICS, methods=["GET"], endpoint=list_topics),
    Rule(TOPICS, methods=["POST"], endpoint=create_topic),
    Rule(f"{TOPICS}/<thing_id>", methods=["GET"], endpoint=get_topic),
    Rule(f"{TOPICS}/<thing_id>", methods=["PATCH"], endpoint=change_topic),
    Rule(f"{TOPICS}/<thing_id>", methods=["DELETE"], endpoint=delete_topic),
]
