"""Deletion of a Confluent deployment after one of its resources was remove by hand."""

from __future__ import annotations

import copy
import json
from typing import Any

import boto3
import pytest

from lakehouse.config.deployment import DEPLOYMENT_TAG
from lakehouse.deploy.planner import read_all
from resources.confluent.organization import ServiceAccounts
from tests.support.clouds.confluent.deployment import KINDS, REGION, SMALL, Lake, left

pytestmark = pytest.mark.stack

HELD = (*KINDS, "secrets", "subjects", "topic_configs")


def remove(lake: Lake, name: str, resource: Any) -> None:
    """Remove a resource, and what the vendor deletes with resource, from Confluent Cloud."""
    state = lake.vendor.state
    [cluster], [environment] = state.clusters, state.environments
    match name.split("/")[1:]:
        case ["environment"]:
            state.remove_environment(environment)
        case ["cluster"]:
            state.remove_cluster(cluster)
        case ["schema_registry"]:
            state.registries.clear()
        case ["account", _]:
            ServiceAccounts(lake.confluent.client()).delete(resource.id)
        case ["roles", *_]:
            for binding in resource:
                del state.bindings[binding.id]
        case ["key", *_]:
            del state.keys[resource.id], state.secrets[resource.id]
        case ["acls", _]:
            principal = resource[0].principal
            state.acls = {key: acl for key, acl in state.acls.items() if acl["principal"] != principal}
        case ["topic", _]:
            del state.topics[f"{cluster}/{resource.name}"]
        case ["connector", _]:
            del state.connectors[f"{cluster}/{resource.name}"]
        case ["compute_pool"]:
            del state.pools[resource.pool_id]
        case ["statement", _]:
            for statement in resource:
                del state.statements[f"{environment}/{statement.name}"]
        case ["provider_integration"]:
            del state.integrations[resource.id]
        case ["catalog_integration"] | ["open_catalog"]:
            del state.catalogs[f"{cluster}/{resource.id}"]
        case ["tableflow", _]:
            del state.tableflow_topics[f"{cluster}/{resource.name}"]
        case ["permissions"]:
            """This resource reports foreign permissions and creates none."""
        case _:
            raise AssertionError(f"not of Confluent: {name}")


def test_delete_after_manual_removal_leaves_nothing(lake: Lake):
    lake.topics = SMALL
    lake.create()
    lake.create()
    state, secrets, things = lake.vendor.state, lake.secrets(), set(lake.things)
    content = copy.deepcopy({kind: getattr(state, kind) for kind in HELD})
    outputs, resources = read_all(lake.resources), lake.resources
    existing = {
        resource.address: outputs[resource] for resource in resources if resource.address.startswith("confluent/")
    }
    client = boto3.client("secretsmanager", region_name=REGION)
    for name in existing:
        remove(lake, name, existing[name])
        began = lake.sleepless.clock.now()

        lake.delete()

        assert left(lake.vendor) == [], f"without {name}"
        assert lake.things == set(), f"without {name}"
        assert lake.sleepless.clock.now() - began < 300, f"without {name} it waited for what cannot come"
        # `aws/secrets` deletes the remaining secrets by the deployment's tag.
        kept = {secret["Name"]: secret["Tags"] for secret in client.list_secrets()["SecretList"]}
        assert all(tag["Key"] == DEPLOYMENT_TAG for tags in kept.values() for tag in tags), f"without {name}"

        for kind, things_of_it in copy.deepcopy(content).items():
            setattr(state, kind, things_of_it)
        lake.things |= things
        for secret in secrets.keys() - kept.keys():
            client.restore_secret(SecretId=secret)
    assert json.dumps(lake.secrets(), sort_keys=True) == json.dumps(secrets, sort_keys=True)
