"""Storage of Tableflow's tables, and the catalogs in which Tableflow registers them."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from lakehouse.config import loader
from lakehouse.config.deployment import Deployment, ExistingObjects, OpenCatalog, TableflowStorage
from lakehouse.core.errors import ConfigError, LakehouseError, UnclearState
from lakehouse.deploy.confluent.key_rotation import rotate
from lakehouse.deploy.names import Names
from lakehouse.deploy.planner import plan, plan_destroy
from lakehouse.deploy.waiting import Failed, TimedOut
from resources.confluent.api_client import InvalidRequest
from tests.support.clouds.confluent.deployment import ACCOUNT, REGION, SMALL, Lake, account, actions, inventory
from tests.support.clouds.confluent.server import Fault
from tests.support.clouds.confluent.state import ORGANIZATION_ID
from tests.support.documentation import block
from tools.repository import PROJECT

pytestmark = pytest.mark.stack

SECRET, CANARY = "/catalogs/open", "canary-of-the-open-catalog"
OPEN_CATALOG = OpenCatalog(endpoint="https://org-a.example/polaris/api/catalog", warehouse="lake", secret=SECRET)


@pytest.fixture
def trades(lake: Lake) -> Lake:
    """A deployment with one table of Tableflow."""
    lake.topics, lake.flink = SMALL, {}
    return lake


def storages(lake: Lake) -> list[dict[str, Any]]:
    return [table["spec"]["storage"] for table in lake.vendor.state.tableflow_topics.values()]


def store(value: dict[str, str]) -> None:
    client = boto3.client("secretsmanager", region_name=REGION)
    if SECRET in {secret["Name"] for secret in client.list_secrets()["SecretList"]}:
        client.put_secret_value(SecretId=SECRET, SecretString=json.dumps(value))
    else:
        client.create_secret(Name=SECRET, SecretString=json.dumps(value))


def test_create_stores_tables_in_their_own_bucket(trades: Lake):
    trades.create()
    [storage] = storages(trades)
    assert (storage["kind"], storage["bucket_name"]) == ("ByobAws", trades.names.tableflow_bucket)
    assert trades.names.tableflow_bucket != trades.names.bucket
    assert actions(trades) == {}


@pytest.mark.parametrize("length", [2, 20])
def test_bucket_names_fit_their_limit(length: int):
    names = Names("a" * length, ACCOUNT, "ap-southeast-1")
    assert max(len(names.bucket), len(names.tableflow_bucket)) <= 63


def test_plan_first_table_in_bucket_with_objects_is_refused(trades: Lake):
    trades.things.add("aws/tableflow_bucket")
    trades.first_object = "warehouse/theirs.parquet"
    with pytest.raises(UnclearState, match=r"not empty \(it has 'warehouse/theirs.parquet'\).*left untouched. Empty"):
        list(plan(trades.resources))
    assert inventory(trades.vendor) == []


def test_create_table_in_used_bucket_of_another_cluster_is_refused(trades: Lake):
    """Objects of an earlier cluster may be lost, too: only a table of this cluster shows that Tableflow is enabled."""
    trades.things.add("aws/tableflow_bucket")
    trades.first_object = "10011010/11101100/org/env-1/lkc-1/v1/t"
    with pytest.raises(UnclearState, match="may delete existing objects"):
        trades.create()
    assert storages(trades) == []


def test_create_second_table_in_bucket_with_first_is_allowed(lake: Lake):
    lake.topics, lake.flink = SMALL, {}
    lake.create()
    lake.first_object = "10011010/11101100/org/env/lkc/v1/stock_trades"
    lake.topics = {**SMALL, "users": {**SMALL["stock_trades"], "source": {"type": "datagen", "quickstart": "USERS"}}}
    lake.topics["users"]["source"]["schema_file"] = ""
    lake.create()
    assert len(storages(lake)) == 2


def test_create_in_storage_of_confluent_needs_nothing_in_aws(trades: Lake):
    trades.tableflow = TableflowStorage(storage="confluent")
    trades.create()
    [storage] = storages(trades)
    assert storage["kind"] == "Managed" and "bucket_name" not in storage
    state = trades.vendor.state
    assert not state.integrations and not state.catalogs and not trades.things
    assert actions(trades) == {}


def test_create_in_storage_of_confluent_lets_spark_read_the_catalog(trades: Lake):
    """Spark's account may read the table and nothing else, with a key in its own secret beside the address."""
    trades.tableflow = TableflowStorage(storage="confluent")
    trades.create()
    state = trades.vendor.state
    [environment], [cluster] = state.environments, state.clusters
    secret = json.loads(trades.secrets()[f"{trades.names.confluent_secrets}/tableflow/spark/python_client"])
    assert state.secrets[secret["api.key"]] == secret["api.key.secret"]
    key = state.keys[secret["api.key"]]["spec"]
    assert key["resource"]["id"] == "tableflow" and key["owner"]["id"] == account(trades, "spark")
    place = f"organizations/{ORGANIZATION_ID}/environments/{environment}"
    assert secret["catalog.uri"] == f"https://tableflow.us-east-1.aws.confluent.cloud/iceberg/catalog/{place}"
    roles = {
        (binding["role_name"], binding["crn_pattern"].partition(f"/kafka={cluster}/")[2])
        for binding in state.bindings.values()
        if binding["principal"] == f"User:{account(trades, 'spark')}" and "topic=" in binding["crn_pattern"]
    }
    assert roles == {("DeveloperRead", "topic=stock_trades")}
    assert f"{trades.names.confluent_secrets}/tableflow/spark/python_client" in trades.names.ingestion_secrets


def test_delete_retains_tables_in_storage_of_confluent(trades: Lake):
    trades.tableflow = TableflowStorage(storage="confluent")
    trades.create()
    trades.delete(delete_data=False)
    state = trades.vendor.state
    assert state.clusters and state.environments and state.topics and storages(trades)
    trades.create()
    trades.delete(delete_data=True)
    planned = {change.action for change in plan_destroy(trades.resources, delete_data=True)}
    assert planned == {"absent"} and not state.clusters and not state.tableflow_topics


def test_rotate_key_of_tableflow_catalog_waits_until_accepted(trades: Lake):
    """Spark reads the tables with the secret's current key, so one that Confluent refuses must not become it."""
    trades.tableflow = TableflowStorage(storage="confluent")
    trades.create()
    [key] = [resource for resource in trades.resources if resource.address == "confluent/key/spark/tableflow"]
    trades.age_keys(timedelta(days=30))
    before = trades.secrets()[key.secret]
    trades.vendor.state.key_lag = 1000
    with pytest.raises(TimedOut, match="not accepted yet"):
        list(rotate([*key.depends_on, key], clock=trades.sleepless.clock))
    assert trades.secrets()[key.secret] == before


@pytest.mark.parametrize(("before", "after"), [("own_bucket", "confluent"), ("confluent", "own_bucket")])
def test_create_other_storage_of_existing_table_is_refused(trades: Lake, before: Any, after: Any):
    trades.tableflow = TableflowStorage(storage=before)
    trades.create()
    [storage] = storages(trades)
    trades.tableflow = TableflowStorage(storage=after)
    with pytest.raises(LakehouseError, match="differs in kind.*left unchanged"):
        trades.create()
    assert storages(trades) == [storage]


@pytest.fixture
def cataloged(trades: Lake) -> Lake:
    """A deployment whose tables are registered in an Open Catalog."""
    trades.tableflow = TableflowStorage(open_catalog=OPEN_CATALOG)
    store({"client_id": "tableflow", "client_secret": CANARY})
    trades.vendor.state.open_catalog_secret = CANARY
    return trades


def open_catalogs(lake: Lake) -> list[dict[str, Any]]:
    catalogs = (catalog["spec"]["config"] for catalog in lake.vendor.state.catalogs.values())
    return [catalog for catalog in catalogs if catalog["kind"] == "Snowflake"]


def test_create_registers_tables_in_glue_and_open_catalog(cataloged: Lake):
    cataloged.create()
    [config] = open_catalogs(cataloged)
    assert config == {
        "kind": "Snowflake",
        "endpoint": OPEN_CATALOG.endpoint,
        "warehouse": "lake",
        "allowed_scope": "PRINCIPAL_ROLE:ALL",
        "client_id": "tableflow",
        "client_secret": CANARY,
    }
    [table] = cataloged.vendor.state.tableflow_topics.values()
    synced = {status["catalog_type"]: status["sync_status"] for status in table["status"]["catalog_sync_statuses"]}
    assert synced == {"AWS_GLUE": "SYNCED", "SNOWFLAKE": "SYNCED"}
    assert actions(cataloged) == {}
    assert CANARY not in repr((cataloged.resources, cataloged.reported))
    cataloged.delete()
    assert cataloged.vendor.state.catalogs == {}
    assert SECRET in cataloged.secrets(), "the secret is not the deployment's"


@pytest.mark.parametrize(
    ("value", "problem"), [(None, "does not exist"), ({"client_id": "tableflow"}, "has no client_secret")]
)
def test_create_open_catalog_without_client_is_refused(trades: Lake, value: dict[str, str] | None, problem: str):
    trades.tableflow = TableflowStorage(open_catalog=OPEN_CATALOG)
    if value:
        store(value)
    with pytest.raises(ConfigError, match=f"open_catalog.secret: '{SECRET}' {problem}.* was left unchanged"):
        trades.create()
    assert open_catalogs(trades) == []


def test_create_open_catalog_with_replaced_secret_sends_it_again(cataloged: Lake):
    store({"client_id": "tableflow", "client_secret": "expired"})
    with pytest.raises(Failed, match="Open Catalog 'lake' is FAILED .unauthorized_client"):
        cataloged.create()
    assert "it has failed: unauthorized_client" in actions(cataloged)["confluent/open_catalog"]
    store({"client_id": "tableflow", "client_secret": CANARY})
    cataloged.create()
    [config] = open_catalogs(cataloged)
    assert config["client_secret"] == CANARY


@pytest.mark.parametrize("content_type", ["application/json", "text/html"])
def test_refused_open_catalog_error_contains_no_secret(cataloged: Lake, content_type: str):
    """APIs and proxies quote a request that they refuse, which has the catalog's client secret."""
    text = json.dumps({"errors": [{"detail": f"unknown field in client_secret={CANARY}"}]})
    refusal = (400, {"Content-Type": content_type}, text)
    cataloged.vendor.faults = [
        Fault(nth=2, on=lambda method, path: method == "POST" and "catalog-integrations" in path, response=refusal)
    ]
    with pytest.raises(InvalidRequest, match="unknown field in client_secret=…"):
        cataloged.create()


def test_create_open_catalog_with_other_settings_updates_in_place(cataloged: Lake):
    cataloged.create()
    [before] = cataloged.vendor.state.catalogs.keys() - {
        key
        for key, catalog in cataloged.vendor.state.catalogs.items()
        if catalog["spec"]["config"]["kind"] == "AwsGlue"
    }
    changed = OPEN_CATALOG.model_copy(update={"scope": "PRINCIPAL_ROLE:tableflow", "namespace": "trading"})
    cataloged.tableflow = TableflowStorage(open_catalog=changed)
    assert "allowed_scope is 'PRINCIPAL_ROLE:ALL' instead of" in actions(cataloged)["confluent/open_catalog"]
    cataloged.create()
    [config] = open_catalogs(cataloged)
    assert (config["allowed_scope"], config["custom_namespace"]) == ("PRINCIPAL_ROLE:tableflow", "trading")
    assert before in cataloged.vendor.state.catalogs


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"tableflow": {"storage": "confluent", "open_catalog": OPEN_CATALOG}}, "Confluent's storage in no other"),
        ({"tableflow": {"storage": "confluent"}, "existing": {"tableflow_bucket": "theirs"}}, "has no use with"),
        ({"existing": {"bucket": "theirs", "tableflow_bucket": "theirs"}}, "also the bucket of Spark's tables"),
    ],
)
def test_deployment_contradictory_storage_is_refused(settings: dict[str, Any], problem: str):
    with pytest.raises(ValueError, match=problem):
        Deployment.model_validate({"name": "lake", "account": ACCOUNT, **settings})


def test_create_in_existing_bucket_names_it(trades: Lake):
    trades.existing = ExistingObjects(tableflow_bucket="theirs")
    trades.create()
    [storage] = storages(trades)
    assert storage["bucket_name"] == "theirs"


def test_documented_upsert_by_flink_creates_table_of_mode(lake: Lake, tmp_path: Path):
    declared = yaml.safe_load(block("docs/topics.md", "yaml", "changelog.mode"))
    content = yaml.safe_load((PROJECT / "lakehouse.yaml").read_text())
    content |= {"topics": content["topics"] | declared["topics"], "deployments": declared["deployments"]}
    (tmp_path / "schemas").symlink_to(PROJECT / "schemas")
    (tmp_path / "lakehouse.yaml").write_text(yaml.safe_dump(content))
    deployment = loader.load(tmp_path / "lakehouse.yaml").deployment("aws")
    lake.topics, lake.flink = {**SMALL, **declared["topics"]}, deployment.flink
    lake.create()
    tables = {table["spec"]["display_name"]: table for table in lake.vendor.state.tableflow_topics.values()}
    assert tables["user_positions"]["status"]["write_mode"] == "UPSERT"
    [statement] = [
        statement for statement in lake.vendor.state.statements.values() if "user_positions" in str(statement)
    ]
    key = re.search(r"PRIMARY KEY \(([^)]*)\)", statement["spec"]["statement"])
    assert key and re.findall(r"\w+", key[1]) == declared["topics"]["user_positions"]["key"]


def test_documented_storage_is_valid():
    declared = yaml.safe_load(block("docs/cloud.md", "yaml", "open_catalog"))
    deployment = Deployment.model_validate(declared["deployments"]["aws"])
    assert deployment.existing.tableflow_bucket and deployment.tableflow.open_catalog
