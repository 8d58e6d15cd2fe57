"""Handlers for Kafka clusters, Schema Registries, Flink regions and compute pools."""

from __future__ import annotations

from werkzeug.routing import Rule
from werkzeug.wrappers import Request

from tests.support.clouds.confluent.state import ORGANIZATION, Problem, State


def of_environment(request: Request):
    environment_id = request.args["environment"]
    return lambda document: document["spec"]["environment"]["id"] == environment_id


def list_clusters(state: State, request: Request):
    state.environment(request.args["environment"])
    return state.listed(state.clusters, of_environment(request))


def create_cluster(state: State, request: Request):
    spec = request.json["spec"]
    environment_id = spec["environment"]["id"]
    state.environment(environment_id)
    cluster_id = state.new_id("lkc")
    crn = f"{ORGANIZATION}/environment={environment_id}/cloud-cluster={cluster_id}/kafka={cluster_id}"
    endpoints = {
        "http_endpoint": state.url,
        "kafka_bootstrap_endpoint": f"SASL_SSL://{cluster_id}.{spec['region']}.aws.confluent.cloud:9092",
    }
    document = {
        "api_version": "cmk/v2",
        "kind": "Cluster",
        "id": cluster_id,
        "metadata": state.metadata(f"/cmk/v2/clusters/{cluster_id}", crn),
        "spec": spec | {"environment": state.reference(environment_id)},
        "status": {"phase": "PROVISIONING"},
    }

    def provisioned() -> None:
        document["spec"] |= endpoints
        document["status"]["phase"] = "PROVISIONED"

    state.after_polls(cluster_id, provisioned)
    if not state.registry_of(environment_id):
        start_registry(state, environment_id, spec["region"])
    return 202, state.add(state.clusters, cluster_id, document)


def start_registry(state: State, environment_id: str, region: str) -> None:
    registry_id = state.new_id("lsrc")
    crn = f"{ORGANIZATION}/environment={environment_id}/schema-registry={registry_id}"
    document = {
        "api_version": "srcm/v3",
        "kind": "Cluster",
        "id": registry_id,
        "metadata": state.metadata(f"/srcm/v3/clusters/{registry_id}", crn),
        "spec": {
            "display_name": "Stream Governance Package",
            "package": "ESSENTIALS",
            "http_endpoint": f"{state.url}/registry/{registry_id}",
            "environment": state.reference(environment_id),
            "region": region,
            "cloud": "AWS",
        },
        "status": {"phase": "PROVISIONING"},
    }
    state.add(state.registries, registry_id, document)
    state.become(state.registries, registry_id, "PROVISIONED")


def get_cluster(state: State, request: Request, thing_id: str):
    state.look(thing_id)
    return 200, state.cluster(request.args["environment"], thing_id)


def delete_cluster(state: State, request: Request, thing_id: str):
    cluster = state.cluster(request.args["environment"], thing_id)
    if cluster["spec"].get("deletion_protection"):
        raise Problem(409, "Deletion protection is on", "conflict")
    state.after_polls(thing_id, lambda: state.remove_cluster(thing_id))
    return 204, None


def list_registries(state: State, request: Request):
    state.environment(request.args["environment"])
    shown = state.listed(state.registries, of_environment(request))
    for document in shown:
        state.look(document["id"])
    return shown


def list_regions(state: State, request: Request):
    regions = ("eu-west-1", "us-east-1", "us-east-2", "us-west-2")
    documents = [
        {
            "api_version": "fcpm/v2",
            "kind": "Region",
            "id": f"aws.{region}",
            "metadata": {"self": ""},
            "display_name": region,
            "cloud": "AWS",
            "region_name": region,
            "http_endpoint": state.url,
        }
        for region in regions
    ]
    region_name = request.args.get("region_name")
    return [document for document in documents if region_name in (None, document["region_name"])]


def list_pools(state: State, request: Request):
    state.environment(request.args["environment"])
    return state.listed(state.pools, of_environment(request))


def create_pool(state: State, request: Request):
    spec = request.json["spec"]
    environment_id = spec["environment"]["id"]
    state.environment(environment_id)
    pool_id = state.new_id("lfcp")
    crn = f"{ORGANIZATION}/environment={environment_id}/flink-region=aws.{spec['region']}/compute-pool={pool_id}"
    document = {
        "api_version": "fcpm/v2",
        "kind": "ComputePool",
        "id": pool_id,
        "metadata": state.metadata(f"/fcpm/v2/compute-pools/{pool_id}", crn),
        "spec": spec
        | {"environment": state.reference(environment_id), "config": {"kind": "Standard"}, "http_endpoint": state.url},
        "status": {"phase": "PROVISIONING", "current_cfu": 0},
    }
    state.become(state.pools, pool_id, "PROVISIONED")
    return 202, state.add(state.pools, pool_id, document)


def get_pool(state: State, request: Request, thing_id: str):
    state.look(thing_id)
    if thing_id not in state.pools:
        raise Problem(403, "Forbidden Access", "forbidden_access")
    return 200, state.pools[thing_id]


def delete_pool(state: State, request: Request, thing_id: str):
    if thing_id not in state.pools:
        raise Problem(403, "Forbidden Access", "forbidden_access")
    state.vanish(state.pools, thing_id)
    return 204, None


RULES = [
    Rule("/cmk/v2/clusters", methods=["GET"], endpoint=list_clusters),
    Rule("/cmk/v2/clusters", methods=["POST"], endpoint=create_cluster),
    Rule("/cmk/v2/clusters/<thing_id>", methods=["GET"], endpoint=get_cluster),
    Rule("/cmk/v2/clusters/<thing_id>", methods=["DELETE"], endpoint=delete_cluster),
    Rule("/srcm/v3/clusters", methods=["GET"], endpoint=list_registries),
    Rule("/fcpm/v2/regions", methods=["GET"], endpoint=list_regions),
    Rule("/fcpm/v2/compute-pools", methods=["GET"], endpoint=list_pools),
    Rule("/fcpm/v2/compute-pools", methods=["POST"], endpoint=create_pool),
    Rule("/fcpm/v2/compute-pools/<thing_id>", methods=["GET"], endpoint=get_pool),
    Rule("/fcpm/v2/compute-pools/<thing_id>", methods=["DELETE"], endpoint=delete_pool),
]
