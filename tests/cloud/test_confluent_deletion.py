"""A deployment in Confluent Cloud of which somebody removed one thing by hand: its deletion finds all the rest."""

from __future__ import annotations

import copy
import json
from typing import Any

import boto3
import pytest
from confluent_deployment import KINDS, REGION, SMALL, Lake, left

from lakehouse.deploy.planner import all_found
from resources.secrets_manager import TAG

pytest_plugins = ["confluent_fixtures", "confluent_lakes"]
pytestmark = pytest.mark.stack

HELD = (*KINDS, "secrets", "subjects", "topic_configs")


def removed(lake: Lake, name: str, it: Any) -> None:
    """Take away what a step found, and what the vendor takes along; nothing of other clouds."""
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
            lake.confluent.service_accounts().delete(it.id)
        case ["roles", *_]:
            for binding in it:
                del state.bindings[binding.id]
        case ["key", *_]:
            del state.keys[it.id], state.secrets[it.id]
        case ["acls", _]:
            principal = it[0].principal
            state.acls = {key: each for key, each in state.acls.items() if each["principal"] != principal}
        case ["topic", _]:
            del state.topics[f"{cluster}/{it.name}"]
        case ["connector", _]:
            del state.connectors[f"{cluster}/{it.name}"]
        case ["compute_pool"]:
            del state.pools[it.id]
        case ["statement", _]:
            for statement in it:
                del state.statements[f"{environment}/{statement.name}"]
        case ["provider_integration"]:
            del state.integrations[it.id]
        case ["catalog_integration"]:
            del state.catalogs[f"{cluster}/{it.id}"]
        case ["tableflow", _]:
            del state.tableflow_topics[f"{cluster}/{it.name}"]
        case ["permissions"]:
            """It only looks at what others made."""
        case _:
            raise AssertionError(f"not of Confluent: {name}")


def test_whatever_was_removed_by_hand_nothing_of_ours_is_left(lake: Lake):
    lake.topics = SMALL
    lake.create()
    lake.create()
    state, secrets, things = lake.vendor.state, lake.secrets(), set(lake.things)
    whole = copy.deepcopy({kind: getattr(state, kind) for kind in HELD})
    found = {name: it for name, it in all_found(lake.steps).items() if name.startswith("confluent/")}
    assert len(found) == len([step for step in lake.steps if step.name.startswith("confluent/")])
    client = boto3.client("secretsmanager", region_name=REGION)
    for name in found:
        removed(lake, name, found[name])
        began = lake.sleepless.clock.now()

        lake.delete()

        assert left(lake.vendor) == [], f"without {name}"
        assert lake.things == set(), f"without {name}"
        assert lake.sleepless.clock.now() - began < 300, f"without {name} it waited for what cannot come"
        # The rest goes with `aws/secrets`, by the deployment's tag.
        kept = {each["Name"]: each["Tags"] for each in client.list_secrets()["SecretList"]}
        assert all(tag["Key"] == TAG for tags in kept.values() for tag in tags), f"without {name}"

        for kind, things_of_it in copy.deepcopy(whole).items():
            setattr(state, kind, things_of_it)
        lake.things |= things
        for secret in secrets.keys() - kept.keys():
            client.restore_secret(SecretId=secret)
    assert json.dumps(lake.secrets(), sort_keys=True) == json.dumps(secrets, sort_keys=True)
