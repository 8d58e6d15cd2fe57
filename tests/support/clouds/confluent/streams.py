"""Handlers for topics, ACLs, subjects, connectors and Flink statements."""

from __future__ import annotations

import re

from werkzeug.routing import Rule
from werkzeug.wrappers import Request

from tests.support.clouds.confluent.state import ORGANIZATION_ID, Problem, State

ACL_FIELDS = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
REQUIRED_SETTINGS = ("name", "kafka.topic", "output.data.format", "max.interval", "tasks.max", "quickstart")
KAFKA = "/kafka/v3/clusters/<cluster_id>"
CONNECT = "/connect/v1/environments/<environment_id>/clusters/<cluster_id>"
STATEMENTS = "/sql/v1/organizations/<organization_id>/environments/<environment_id>/statements"


def list_topics(state: State, request: Request, cluster_id: str):
    topics = state.listed(state.topics, lambda topic: topic["cluster_id"] == cluster_id)
    path = f"{state.url}/kafka/v3/clusters/{cluster_id}/topics"
    return 200, {"kind": "KafkaTopicList", "metadata": {"self": path, "next": None}, "data": topics}


def new_topic(state: State, cluster_id: str, name: str, partitions: int):
    path = f"{state.url}/kafka/v3/clusters/{cluster_id}/topics/{name}"
    document = {
        "kind": "KafkaTopic",
        "metadata": {"self": path, "resource_name": f"crn:///kafka={cluster_id}/topic={name}"},
        "cluster_id": cluster_id,
        "topic_name": name,
        "is_internal": False,
        "replication_factor": 3,
        "partitions_count": partitions,
        "partitions": {"related": f"{path}/partitions"},
        "configs": {"related": f"{path}/configs"},
        "partition_reassignments": {"related": f"{path}/partitions/-/reassignment"},
    }
    return state.add(state.topics, f"{cluster_id}/{name}", document)


def create_topic(state: State, request: Request, cluster_id: str):
    body = request.json
    existing = state.topics.get(f"{cluster_id}/{body['topic_name']}")
    if existing:
        reason = "is marked for deletion" if existing.get("deleting") else "already exists"
        raise Problem(400, f"Topic '{body['topic_name']}' {reason}.", 40002, shape="error_code")
    configs = {config["name"]: config["value"] for config in body.get("configs", ())}
    state.topic_configs[f"{cluster_id}/{body['topic_name']}"] = {"retention.ms": "604800000"} | configs
    return 201, new_topic(state, cluster_id, body["topic_name"], body.get("partitions_count", 6))


def config_of(state: State, cluster_id: str, name: str, setting: str) -> dict:
    path = f"{state.url}/kafka/v3/clusters/{cluster_id}/topics/{name}/configs/{setting}"
    return {
        "kind": "KafkaTopicConfig",
        "metadata": {"self": path, "resource_name": f"crn:///kafka={cluster_id}/topic={name}/config={setting}"},
        "cluster_id": cluster_id,
        "topic_name": name,
        "name": setting,
        "value": state.topic_configs[f"{cluster_id}/{name}"][setting],
        "is_default": False,
        "is_read_only": False,
        "is_sensitive": False,
        "source": "DYNAMIC_TOPIC_CONFIG",
        "synonyms": [],
    }


def get_config(state: State, request: Request, cluster_id: str, name: str, setting: str):
    get_topic(state, request, cluster_id, name)
    return 200, config_of(state, cluster_id, name, setting)


def put_config(state: State, request: Request, cluster_id: str, name: str, setting: str):
    get_topic(state, request, cluster_id, name)
    state.topic_configs[f"{cluster_id}/{name}"][setting] = request.json["value"]
    return 204, None


def get_topic(state: State, request: Request, cluster_id: str, name: str):
    state.look(f"{cluster_id}/{name}")
    if f"{cluster_id}/{name}" not in state.topics:
        raise Problem(404, "This server does not host this topic-partition.", 40403, shape="error_code")
    return 200, state.topics[f"{cluster_id}/{name}"]


def delete_topic(state: State, request: Request, cluster_id: str, name: str):
    _, topic = get_topic(state, request, cluster_id, name)
    topic["deleting"] = True
    state.vanish(state.topics, f"{cluster_id}/{name}")
    return 204, None


def acl_of(cluster_id: str, fields: dict) -> dict:
    return {
        "kind": "KafkaAcl",
        "metadata": {"self": f"crn:///kafka={cluster_id}"},
        "cluster_id": cluster_id,
    } | {name: fields[name] for name in ACL_FIELDS}


def matching(state: State, cluster_id: str, query: dict) -> list[str]:
    wanted = {name: query[name] for name in ACL_FIELDS if query.get(name) not in (None, "ANY")}
    return [
        acl_id
        for acl_id, acl in state.acls.items()
        if acl["cluster_id"] == cluster_id and wanted.items() <= acl.items()
    ]


def acl_list(state: State, documents: list[dict]) -> dict:
    return {"kind": "KafkaAclList", "metadata": {"self": f"{state.url}/acls", "next": None}, "data": documents}


def list_acls(state: State, request: Request, cluster_id: str):
    documents = [state.acls[acl_id] for acl_id in matching(state, cluster_id, request.args)]
    if "principal" not in request.args:
        documents = [document | {"principal": f"User:{100 + n}"} for n, document in enumerate(documents)]
    return 200, acl_list(state, documents)


def create_acl(state: State, request: Request, cluster_id: str):
    acl_id = "/".join([cluster_id, *(request.json[name] for name in ACL_FIELDS)])
    state.acls[acl_id] = acl_of(cluster_id, request.json)
    return 201, None


def delete_acls(state: State, request: Request, cluster_id: str):
    removed = [state.acls.pop(acl_id) for acl_id in matching(state, cluster_id, request.args)]
    return 200, acl_list(state, removed)


def list_subjects(state: State, request: Request):
    return 200, sorted(state.subjects[request.environ["registry_id"]])


def in_cluster(state: State, environment_id: str, cluster_id: str) -> None:
    if cluster_id not in state.clusters or environment_id not in state.environments:
        raise Problem(404, "cluster not found", 404, shape="connect")


def list_connectors(state: State, request: Request, environment_id: str, cluster_id: str):
    in_cluster(state, environment_id, cluster_id)
    connectors = {}
    for connector_id, connector in state.connectors.items():
        if connector_id.startswith(f"{cluster_id}/"):
            state.look(connector_id)
            info = {"name": connector["name"], "type": "source", "config": connector["config"], "tasks": []}
            connectors[connector["name"]] = {
                "status": connector["status"],
                "info": info,
                "id": {"id": connector["id"], "id_type": "ID"},
            }
    return 200, connectors


def put_connector(state: State, request: Request, environment_id: str, cluster_id: str, name: str):
    in_cluster(state, environment_id, cluster_id)
    connector_id, config = f"{cluster_id}/{name}", request.json
    existing = state.connectors.get(connector_id)
    connector = {
        "id": existing["id"] if existing else state.new_id("lcc"),
        "name": name,
        "config": config
        | {
            "cloud.environment": "prod",
            "cloud.provider": "aws",
            "kafka.endpoint": f"SASL_SSL://{cluster_id}.confluent.cloud:9092",
            "kafka.region": "us-east-1",
            "kafka.api.key": "****************",
            "kafka.api.secret": "****************",
        },
        "status": {
            "name": name,
            "connector": {"state": "PROVISIONING", "worker_id": name, "trace": ""},
            "tasks": [],
            "type": "unknown",
        },
    }
    state.connectors[connector_id] = connector

    def started() -> None:
        inner, topic = connector["status"]["connector"], config["kafka.topic"]
        if f"{cluster_id}/{topic}" not in state.topics:
            inner |= {"state": "FAILED", "trace": f"Topic '{topic}' does not exist"}
            return
        inner["state"] = "RUNNING"
        connector["status"]["tasks"] = [{"id": 0, "state": "RUNNING", "worker_id": name, "msg": ""}]
        state.write_schema(environment_id, topic)

    state.after_polls(connector_id, started)
    return 200, {"name": name, "config": connector["config"], "tasks": [], "type": "source"}


def connector_of(state: State, cluster_id: str, name: str) -> dict:
    state.look(f"{cluster_id}/{name}")
    if f"{cluster_id}/{name}" not in state.connectors:
        raise Problem(404, "resource not found", 404, shape="connect")
    return state.connectors[f"{cluster_id}/{name}"]


def connector_status(state: State, request: Request, environment_id: str, cluster_id: str, name: str):
    return 200, connector_of(state, cluster_id, name)["status"]


def delete_connector(state: State, request: Request, environment_id: str, cluster_id: str, name: str):
    connector_of(state, cluster_id, name)
    del state.connectors[f"{cluster_id}/{name}"]
    return 200, {"error": None}


def setting_errors(config: dict[str, str], name: str) -> list[str]:
    if name == "quickstart" and config.get("schema.string"):
        return ['"quickstart" cannot be used along with "schema.string"'] if config.get(name) else []
    if name == "max.interval":
        return [] if int(config.get(name, "1000")) >= 10 else [f'"{name}" must be at least 10']
    return [] if config.get(name) else [f'"{name}" is required']


def validate_connector(state: State, request: Request, environment_id: str, cluster_id: str, plugin: str):
    values = [
        {
            "name": name,
            "value": request.json.get(name, ""),
            "recommended_values": [],
            "errors": setting_errors(request.json, name),
            "visible": True,
        }
        for name in REQUIRED_SETTINGS
    ]
    return 200, {
        "name": plugin,
        "groups": ["Common"],
        "error_count": sum(bool(value["errors"]) for value in values),
        "configs": [{"definition": {"name": value["name"]}, "value": value} for value in values],
    }


def list_statements(state: State, request: Request, organization_id: str, environment_id: str):
    return state.listed(state.statements, lambda statement: statement["environment_id"] == environment_id)


def create_statement(state: State, request: Request, organization_id: str, environment_id: str):
    body = request.json
    state.environment(environment_id)
    statement_id = f"{environment_id}/{body['name']}"
    if organization_id != ORGANIZATION_ID:
        raise Problem(403, "Forbidden Access", "forbidden_access")
    if statement_id in state.statements:
        raise Problem(409, f"Statement {body['name']} already exists", "conflict")
    path = f"/sql/v1/organizations/{organization_id}/environments/{environment_id}/statements/{body['name']}"
    document = {
        "api_version": "sql/v1",
        "kind": "Statement",
        "name": body["name"],
        "organization_id": organization_id,
        "environment_id": environment_id,
        "metadata": state.metadata(path, "") | {"uid": "8b9c49bb-7351-416d-98d5-d5f29f6de980", "resource_version": "1"},
        "spec": body["spec"] | {"stopped": False},
        "status": {"phase": "PENDING", "detail": ""},
    }
    del document["metadata"]["resource_name"]
    state.after_polls(statement_id, lambda: run(state, environment_id, document))
    return 201, state.add(state.statements, statement_id, document)


def run(state: State, environment_id: str, document: dict) -> None:
    """Execute a statement, as far as it creates or drops tables."""
    spec, status = document["spec"], document["status"]
    database = spec["properties"]["sql.current-database"]
    cluster_id = next((k for k, cluster in state.clusters.items() if cluster["spec"]["display_name"] == database), None)
    if_exists, table = re.search(r"TABLE (IF (?:NOT )?EXISTS )?`?([\w-]+)`?", spec["statement"]).groups()
    source = re.search(r"FROM\s+`?([\w-]+)`?", spec["statement"])
    if spec["compute_pool_id"] not in state.pools:
        status |= {"phase": "FAILED", "detail": f"Compute pool {spec['compute_pool_id']} does not exist"}
    elif spec["statement"].startswith("CREATE") and not if_exists and f"{cluster_id}/{table}" in state.topics:
        status |= {"phase": "FAILED", "detail": f"Table (or view) {table} already exists in Catalog {environment_id}"}
    elif spec["statement"].startswith("DROP"):
        state.topics.pop(f"{cluster_id}/{table}", None)
        state.subjects[state.registry_of(environment_id)].discard(f"{table}-value")
        status["phase"] = "COMPLETED"
    elif source and f"{source[1]}-value" not in state.subjects[state.registry_of(environment_id)]:
        status |= {"phase": "FAILED", "detail": f"Table '{source[1]}' does not exist"}
    else:
        options = dict(re.findall(r"'([\w.-]+)'\s*=\s*'([^']*)'", spec["statement"]))
        policy = {"cleanup.policy": options.get("kafka.cleanup-policy", "delete").replace("-", ",")}
        state.topic_configs.setdefault(f"{cluster_id}/{table}", policy)
        if f"{cluster_id}/{table}" not in state.topics:
            new_topic(state, cluster_id, table, 6)
        state.write_schema(environment_id, table)
        status["phase"] = "RUNNING"


def get_statement(state: State, request: Request, organization_id: str, environment_id: str, name: str):
    state.look(f"{environment_id}/{name}")
    if f"{environment_id}/{name}" not in state.statements:
        raise Problem(404, f"Statement resource={name} does not exist")
    return 200, state.statements[f"{environment_id}/{name}"]


def delete_statement(state: State, request: Request, organization_id: str, environment_id: str, name: str):
    get_statement(state, request, organization_id, environment_id, name)
    statement_id = f"{environment_id}/{name}"
    state.statements[statement_id]["status"]["phase"] = "DELETING"
    state.vanish(state.statements, statement_id)
    return 202, None


RULES = [
    Rule(f"{KAFKA}/topics", methods=["GET"], endpoint=list_topics),
    Rule(f"{KAFKA}/topics", methods=["POST"], endpoint=create_topic),
    Rule(f"{KAFKA}/topics/<name>", methods=["GET"], endpoint=get_topic),
    Rule(f"{KAFKA}/topics/<name>", methods=["DELETE"], endpoint=delete_topic),
    Rule(f"{KAFKA}/topics/<name>/configs/<setting>", methods=["GET"], endpoint=get_config),
    Rule(f"{KAFKA}/topics/<name>/configs/<setting>", methods=["PUT"], endpoint=put_config),
    Rule(f"{KAFKA}/acls", methods=["GET"], endpoint=list_acls),
    Rule(f"{KAFKA}/acls", methods=["POST"], endpoint=create_acl),
    Rule(f"{KAFKA}/acls", methods=["DELETE"], endpoint=delete_acls),
    Rule("/subjects", methods=["GET"], endpoint=list_subjects),
    Rule(f"{CONNECT}/connectors", methods=["GET"], endpoint=list_connectors),
    Rule(f"{CONNECT}/connectors/<name>", methods=["DELETE"], endpoint=delete_connector),
    Rule(f"{CONNECT}/connectors/<name>/config", methods=["PUT"], endpoint=put_connector),
    Rule(f"{CONNECT}/connectors/<name>/status", methods=["GET"], endpoint=connector_status),
    Rule(f"{CONNECT}/connector-plugins/<plugin>/config/validate", methods=["PUT"], endpoint=validate_connector),
    Rule(STATEMENTS, methods=["GET"], endpoint=list_statements),
    Rule(STATEMENTS, methods=["POST"], endpoint=create_statement),
    Rule(f"{STATEMENTS}/<name>", methods=["GET"], endpoint=get_statement),
    Rule(f"{STATEMENTS}/<name>", methods=["DELETE"], endpoint=delete_statement),
]
