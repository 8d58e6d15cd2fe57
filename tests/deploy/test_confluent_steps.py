"""Creation, lookup, repair and deletion of a deployment in the simulated Confluent Cloud and moto."""

from __future__ import annotations

import json
import logging
import traceback

import pytest

from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.confluent.key_rotation import rotate
from lakehouse.deploy.planner import plan, plan_destroy, read_all
from resources.confluent.clusters import Acl, Clusters
from resources.confluent.flink import ComputePools
from resources.confluent.organization import RoleBindings
from resources.confluent.tableflow import ProviderIntegrations
from tests.support.clouds.confluent.deployment import LARGE, REGION, SMALL, Lake, account, actions, inventory, left
from tests.support.clouds.confluent.server import Fault
from tests.support.clouds.confluent.state import ORGANIZATION

pytestmark = pytest.mark.stack

PATH = "/confluent_cloud_resource/lake"


def spec(document: dict) -> dict:
    return document["spec"]


def of(lake: Lake, purpose: str) -> str:
    return f"User:{account(lake, purpose)}"


def test_create_again_changes_nothing_and_delete_removes_all(lake: Lake):
    state = lake.vendor.state
    state.polls, state.key_lag, state.role_lag, state.list_lag = 3, 3, 3, 1
    lake.create()
    state.list_lag = 0
    calls = len(lake.vendor.calls)
    assert actions(lake) == {}
    before = inventory(lake.vendor)
    lake.create()
    assert {method for method, _ in lake.vendor.calls[calls:]} == {"GET"}
    assert inventory(lake.vendor) == before

    [environment], [cluster] = state.environments.values(), state.clusters.values()
    assert environment["display_name"] == spec(cluster)["display_name"] == "lakehouse-lake"
    assert spec(cluster)["region"] == REGION
    partitions = {topic["topic_name"]: topic["partitions_count"] for topic in state.topics.values()}
    assert partitions == dict.fromkeys(["stock_trades", "totals", "flagged", "orders", "orders.dead"], 6)
    [table] = [table for table in state.tableflow_topics.values() if spec(table)["display_name"] == "stock_trades"]
    assert spec(table)["storage"]["bucket_name"] == lake.names.tableflow_bucket
    assert spec(table)["config"] == {
        "retention_ms": "604800000",
        "error_handling": {"mode": "SUSPEND"},
        "metadata_column_naming_scheme": "PORTABLE",
    }
    [integration] = state.integrations.values()
    assert integration["config"]["customer_iam_role_arn"] == lake.names.role_arn("confluent")

    lake.delete()
    assert left(lake.vendor) == [] and lake.secrets() == {}
    assert {change.action for change in plan_destroy(lake.resources, delete_data=True)} == {"absent"}


def test_create_topic_retention_is_applied_partitions_kept(lake: Lake):
    lake.topics, lake.flink = SMALL | {"orders": {"retention": {"records": "30d"}}}, {}
    lake.create()
    [cluster] = lake.vendor.state.clusters
    configs = lake.vendor.state.topic_configs
    month, week = str(30 * 86_400_000), str(7 * 86_400_000)
    assert configs[f"{cluster}/orders"] == {"retention.ms": month}
    configs[f"{cluster}/orders"]["retention.ms"] = week
    configs[f"{cluster}/stock_trades"]["retention.ms"] = "1"
    assert actions(lake) == {"confluent/topic/orders": f"retention.ms is {week} instead of {month}"}
    lake.topics["orders"]["partitions"] = 3
    lake.create()
    assert configs[f"{cluster}/orders"] == {"retention.ms": month}
    assert configs[f"{cluster}/stock_trades"] == {"retention.ms": "1"}, "nothing is declared of it"
    reasons = {change.resource.address: change.reason for change in plan(lake.resources)}
    assert reasons["confluent/topic/orders"] == "has 6 partitions, not 3: Kafka cannot remove any, and all are read"


def test_create_roles_are_minimal(lake: Lake):
    lake.create()
    state = lake.vendor.state
    [environment], [cluster], [registry] = state.environments, state.clusters, state.registries
    inside = f"{ORGANIZATION}/environment={environment}/"
    kafka = f"cloud-cluster={cluster}/kafka={cluster}/"
    subjects = f"schema-registry={registry}/subject="
    bindings = {
        purpose: {
            (
                binding["role_name"],
                binding["crn_pattern"].removeprefix(inside).replace(kafka, "").replace(subjects, "subject="),
            )
            for binding in state.bindings.values()
            if binding["principal"] == of(lake, purpose)
        }
        for purpose in ("app_manager", "schema_registry", "flink", "spark", "app_consumer")
    }
    [integration] = state.integrations
    assert bindings == {
        "app_manager": {
            ("CloudClusterAdmin", f"cloud-cluster={cluster}"),
            ("DeveloperRead", "subject=*"),
            ("Assigner", f"provider-integration={integration}"),
        },
        "schema_registry": {("DeveloperRead", "subject=*"), ("DeveloperWrite", "subject=*")},
        "flink": {
            ("FlinkDeveloper", f"{ORGANIZATION}/environment={environment}"),
            ("ResourceOwner", "topic=*"),
            ("ResourceOwner", "transactional-id=*"),
            ("ResourceOwner", "subject=*"),
            ("Assigner", f"{ORGANIZATION}/service-account={account(lake, 'flink')}"),
        },
        "spark": {
            ("DeveloperRead", "subject=*"),
            ("DeveloperWrite", "subject=flagged-key"),
            ("DeveloperWrite", "subject=flagged-value"),
        },
        "app_consumer": set(),
    }
    acls = {
        (acl["principal"], acl["operation"], acl["resource_type"], acl["resource_name"]) for acl in state.acls.values()
    }
    assert acls == {
        *((of(lake, "app_producer"), "WRITE", "TOPIC", topic) for topic in ("stock_trades", "orders")),
        *((of(lake, "app_consumer"), "READ", "TOPIC", topic) for topic in LARGE),
        (of(lake, "app_consumer"), "READ", "GROUP", "lakehouse-lake"),
        (of(lake, "app_connector"), "WRITE", "TOPIC", "stock_trades"),
        (of(lake, "app_connector"), "DESCRIBE", "CLUSTER", "kafka-cluster"),
        (of(lake, "spark"), "DESCRIBE", "CLUSTER", "kafka-cluster"),
        *((of(lake, "spark"), "READ", "TOPIC", topic) for topic in LARGE),
        *((of(lake, "spark"), "READ", "GROUP", group) for group in ("lakehouse", "spark-kafka-relation")),
        *((of(lake, "spark"), operation, "TOPIC", "lakehouse.bookmarks") for operation in ("CREATE", "READ", "WRITE")),
        *((of(lake, "spark"), operation, "TRANSACTIONAL_ID", "lakehouse") for operation in ("DESCRIBE", "WRITE")),
        *(
            (of(lake, "spark"), operation, "TOPIC", topic)
            for operation in ("WRITE", "READ", "DESCRIBE_CONFIGS")
            for topic in ("flagged", "orders.dead")
        ),
    }


def test_create_keys_are_in_the_kickstarters_secrets(lake: Lake):
    lake.create()
    state, secrets = lake.vendor.state, {name: json.loads(text) for name, text in lake.secrets().items()}
    [environment], [cluster], [pool] = state.environments, state.clusters, state.pools
    kafka = {"sasl.username", "sasl.password", "bootstrap.servers"}
    for purpose in ("app_manager", "app_consumer", "app_producer", "spark"):
        secret = secrets.pop(f"{PATH}/kafka_cluster/{purpose}/python_client")
        assert set(secret) == kafka
        assert state.secrets[secret["sasl.username"]] == secret["sasl.password"]
        assert secret["bootstrap.servers"] == f"{cluster}.us-east-1.aws.confluent.cloud:9092"
    for path in ("schema_registry_cluster", "schema_registry_cluster/spark"):
        secret = secrets.pop(f"{PATH}/{path}/python_client")
        key_id, _, key_secret = secret.pop("schema.registry.basic.auth.user.info").partition(":")
        assert state.secrets[key_id] == key_secret
        [registry] = state.registries.values()
        assert secret == {
            "schema.registry.basic.auth.credentials.source": "USER_INFO",
            "schema.registry.url": spec(registry)["http_endpoint"],
        }
    tableflow, flink = secrets.pop(f"{PATH}/tableflow"), secrets.pop(f"{PATH}/flink")
    for secret in (tableflow, flink):
        assert state.secrets[secret.pop("api.key")] == secret.pop("api.key.secret")
    assert tableflow == {"environment.id": environment, "kafka.cluster.id": cluster}
    assert flink == {"compute.pool.id": pool, "principal.id": account(lake, "flink")}
    # Of the account that replaces keys, which the kickstarter does not have.
    assert list(secrets) == [f"{PATH}/rotation"]


def test_create_without_tableflow_and_flink_omits_them(lake: Lake):
    lake.topics, lake.flink = {"orders": {}}, {}
    lake.create()
    state = lake.vendor.state
    assert not (state.integrations or state.catalogs or state.pools or state.connectors)
    assert not any("flink" in name or "tableflow" in name for name in lake.secrets())
    assert len(state.accounts) == 7


def test_delete_cluster_with_foreign_data_is_kept(lake: Lake):
    lake.create()
    lake.delete(delete_data=False)
    state = lake.vendor.state
    assert left(lake.vendor) == ["environments", "clusters", "registries", "topics"]
    assert [topic["topic_name"] for topic in state.topics.values()] == ["orders"]
    assert lake.secrets() == {}
    lake.create()
    assert actions(lake) == {}


def test_delete_without_foreign_data_leaves_nothing(lake: Lake):
    lake.topics = {name: topic for name, topic in LARGE.items() if name != "orders"}
    lake.create()
    lake.delete(delete_data=False)
    assert left(lake.vendor) == [] and lake.secrets() == {}


@pytest.mark.parametrize("kind", ["cluster", "pool", "integration"])
def test_delete_environment_with_foreign_resource_is_kept(lake: Lake, kind: str):
    lake.create()
    [environment] = lake.vendor.state.environments
    make = {
        "cluster": lambda: Clusters(lake.confluent.client(), environment).create("theirs", REGION),
        "pool": lambda: ComputePools(lake.confluent.client(), environment).create("theirs", REGION, 5),
        "integration": lambda: ProviderIntegrations(lake.confluent.client(), environment).create(
            "theirs", lake.names.role_arn("x")
        ),
    }
    make[kind]()
    changes = plan_destroy(lake.resources, delete_data=True)
    [planned] = [change for change in changes if change.resource.address == "confluent/environment"]
    assert planned.action == "retain" and "'theirs'" in planned.reason
    lake.delete()
    assert "environments" in left(lake.vendor)
    assert "lakehouse-lake" not in {spec(cluster)["display_name"] for cluster in lake.vendor.state.clusters.values()}


def test_delete_protected_cluster_is_kept(lake: Lake):
    lake.create()
    [cluster] = lake.vendor.state.clusters.values()
    spec(cluster)["deletion_protection"] = True
    lake.delete()
    assert {"environments", "clusters"} <= set(left(lake.vendor))
    spec(cluster)["deletion_protection"] = False
    lake.delete()
    assert left(lake.vendor) == []


def test_apply_and_destroy_leave_second_deployment_unchanged(lake: Lake, other: Lake):
    for _ in range(2):
        lake.create()
    mine, secrets = inventory(lake.vendor), lake.secrets()
    other.create()
    assert not set(secrets.items()) - set(lake.secrets().items())
    assert actions(lake) == actions(other) == {}
    other.delete()
    assert inventory(lake.vendor) == mine and lake.secrets() == secrets
    assert actions(lake) == {}


def test_deploy_output_contains_no_secret(lake: Lake, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    lake.create()
    state, shown = lake.vendor.state, []
    hidden = {lake.vendor.admin_secret, *state.secrets.values()}
    lake.vendor.faults.append(Fault(times=1000, on=lambda method, path: "/topics" in path, response=(401, {}, "no")))
    for begin in (lambda: actions(lake), lake.create, lake.delete):
        with pytest.raises(LakehouseError) as refused:
            begin()
        shown += [str(refused.value), repr(refused.value), "".join(traceback.format_exception(refused.value))]
    lake.vendor.faults.clear()
    list(rotate(lake.resources, day_count=0, clock=lake.sleepless.clock))
    lake.delete()
    hidden |= set(state.secrets.values())
    shown += [caplog.text, repr(lake.reported), repr(lake.resources), *(resource.label for resource in lake.resources)]
    for secret in hidden:
        assert not any(secret in text for text in shown)


def test_plan_foreign_permissions_are_reported_and_kept(lake: Lake):
    lake.create()
    [kept] = [change for change in plan(lake.resources) if change.resource.address == "confluent/permissions"]
    assert (kept.action, kept.reason) == ("no-op", "is as it should be")
    state = lake.vendor.state
    consumer, connector = of(lake, "app_consumer"), of(lake, "app_connector")
    binding = RoleBindings(lake.confluent.client()).create(consumer, "OrganizationAdmin", ORGANIZATION)
    outputs, by_address = read_all(lake.resources), {resource.address: resource for resource in lake.resources}
    acls = lake.confluent.acls(
        outputs[by_address["confluent/cluster"]], outputs[by_address["confluent/key/app_manager/kafka"]]
    )
    acls.create(Acl(connector, "ALL", "TOPIC", "stock", "PREFIXED"))
    before, calls = inventory(lake.vendor), len(lake.vendor.calls)

    [change_of_permissions] = [
        change for change in plan(lake.resources) if change.resource.address == "confluent/permissions"
    ]

    assert change_of_permissions.action == "no-op"
    assert f"'app_consumer': role OrganizationAdmin on {ORGANIZATION} ({binding.id})" in change_of_permissions.reason
    assert "'app_connector': ACL ALLOW ALL on TOPIC 'stock' (PREFIXED, host *)" in change_of_permissions.reason
    assert change_of_permissions.reason.count("role ") == change_of_permissions.reason.count("ACL ") == 1
    lake.create()
    assert inventory(lake.vendor) == before
    assert {method for method, _ in lake.vendor.calls[calls:]} == {"GET"}
    lake.delete()
    assert state.bindings == {} and state.acls == {}
