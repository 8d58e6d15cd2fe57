"""Creation, lookup, waiting and deletion of each kind of resource in the simulated Confluent Cloud."""

from __future__ import annotations

from typing import Any

from lakehouse.deploy.confluent.confluent_resource import wait_until_accepted
from lakehouse.deploy.waiting import wait, wait_until_deleted
from resources.confluent import clusters, flink
from resources.confluent import clusters as connectors
from resources.confluent.clusters import Acl, Clusters, SchemaRegistryClusters
from resources.confluent.confluent_cloud import ConfluentCloud
from resources.confluent.flink import ComputePools, Regions
from resources.confluent.organization import ApiKeys, Environments, KeyScope, RoleBindings, ServiceAccounts
from resources.confluent.tableflow import ProviderIntegrations, glue, own_bucket
from tests.support.clouds.confluent.server import ConfluentServer
from tests.support.sleepless import Sleepless

MINUTE = 60
CTAS = "CREATE TABLE IF NOT EXISTS `totals` AS SELECT quantity * price AS total FROM `trades`;"


def test_client_creates_and_deletes_each_kind(confluent: ConfluentCloud, vendor: ConfluentServer, sleepless: Sleepless):
    def ready(what: str, look: Any, phases: Any) -> Any:
        return wait(what, look, phases, deadline_seconds=10 * MINUTE, clock=sleepless.clock)

    def gone(what: str, look: Any) -> None:
        wait_until_deleted(what, look, deadline_seconds=10 * MINUTE, clock=sleepless.clock)

    state = vendor.state
    state.polls, state.key_lag = 2, 3

    environment = Environments(confluent.client()).create("lake")
    cluster = Clusters(confluent.client(), environment.id).create("lake", "us-east-1")
    assert (cluster.phase, cluster.http_endpoint) == ("PROVISIONING", "")
    cluster = ready("cluster", lambda: Clusters(confluent.client(), environment.id).get(cluster.id), clusters.READY)
    assert cluster.http_endpoint == vendor.url
    assert cluster.crn == f"{environment.crn}/cloud-cluster={cluster.id}"
    registry = ready("registry", SchemaRegistryClusters(confluent.client(), environment.id).find, clusters.READY)

    account = ServiceAccounts(confluent.client()).create("lake_manager", "Manages the lake")
    RoleBindings(confluent.client()).create(account.principal, "CloudClusterAdmin", cluster.crn)

    def key(name: str, scope: KeyScope) -> Any:
        return ApiKeys(confluent.client()).create(name, "for a test", account.id, scope).key

    region = Regions(confluent.client()).find("us-east-1")
    kafka_key, registry_key = key("kafka", KeyScope.cluster(cluster.id)), key("registry", KeyScope.cluster(registry.id))
    flink_key, tableflow_key = (
        key("flink", KeyScope.flink(region.id, environment.id)),
        key("table", KeyScope.tableflow()),
    )

    topics = confluent.topics(cluster, kafka_key)
    subjects = confluent.subjects(registry, registry_key)
    tables = confluent.tableflow_topics(cluster, tableflow_key)
    catalogs = confluent.catalog_integrations(cluster, tableflow_key)
    statements = confluent.statements(region, environment, flink_key)
    for what, ask in (("kafka", topics.list), ("sr", subjects.list), ("table", tables.list), ("sql", statements.list)):
        wait_until_accepted(f"key of {what}", ask, deadline_seconds=10 * MINUTE, clock=sleepless.clock)

    assert topics.create("trades", 6) == topics.find("trades")
    acls, acl = confluent.acls(cluster, kafka_key), Acl(account.principal, "WRITE", "TOPIC", "trades")
    acls.create(acl)
    acls.create(acl)
    assert acls.list(account.principal) == [acl]

    config = {
        "connector.class": "DatagenSource",
        "name": "Source",
        "kafka.auth.mode": "SERVICE_ACCOUNT",
        "kafka.service.account.id": account.id,
        "kafka.topic": "trades",
        "output.data.format": "AVRO",
        "quickstart": "STOCK_TRADES",
        "tasks.max": "1",
    }
    source = confluent.connectors(cluster)
    source.validate(config)
    source.put(config)
    ready("connector", lambda: source.find("Source"), connectors.CONNECTOR_READY)
    assert [connector.name for connector in source.list()] == ["Source"]
    assert subjects.list() == ["trades-value"]

    integrations = ProviderIntegrations(confluent.client(), environment.id)
    integration = integrations.create("aws", "arn:aws:iam::123456789012:role/lake")
    assert integration.external_id and integration.usages == ()
    pattern = f"{environment.crn}/provider-integration={integration.id}"
    RoleBindings(confluent.client()).create(account.principal, "Assigner", pattern)
    catalog = catalogs.create("glue", glue(integration.id))
    assert catalog.phase == "PENDING"
    tables.create("trades", own_bucket("bucket", integration.id), {"retention_ms": "604800000"})
    table = ready("table", lambda: tables.find("trades"), {"RUNNING"})
    assert table.synced and table.table_path.startswith("s3://bucket/")
    assert ready("catalog", lambda: catalogs.get(catalog.id), {"CONNECTED"}).name == "glue"

    pools = ComputePools(confluent.client(), environment.id)
    pool = pools.create("pool", "us-east-1", 10)
    ready("pool", lambda: pools.get(pool.id), flink.READY)
    run = {"pool_id": pool.id, "principal_id": account.id, "catalog": "lake", "database": "lake"}
    statements.create("drop-1", "DROP TABLE IF EXISTS `totals`;", **run)
    ready("drop", lambda: statements.find("drop-1"), {"COMPLETED"})
    statements.create("ctas-1", CTAS, **run)
    ready("ctas", lambda: statements.find("ctas-1"), {"RUNNING"})
    assert {topic.name for topic in topics.list()} == {"trades", "totals"}

    for _ in range(2):
        # In the second round, everything is already deleted, which is no error.
        for statement in ("drop-1", "ctas-1"):
            statements.delete(statement)
            gone("statement", lambda name=statement: statements.find(name))
        tables.delete("trades")
        gone("table", lambda: tables.find("trades"))
        catalogs.delete(catalog.id)
        integrations.delete(integration.id)
        source.delete("Source")
        pools.delete(pool.id)
        gone("pool", lambda: pools.get(pool.id))
        acls.delete(acl)
        for topic in ("trades", "totals"):
            topics.delete(topic)
            gone("topic", lambda name=topic: topics.find(name))
    for binding in RoleBindings(confluent.client()).on(pattern):
        RoleBindings(confluent.client()).delete(binding)
    for api_key in ApiKeys(confluent.client()).list(account.id, KeyScope.cluster(cluster.id)):
        ApiKeys(confluent.client()).delete(api_key.id, api_key.owner_id)
    ServiceAccounts(confluent.client()).delete(account.id)
    Clusters(confluent.client(), environment.id).delete(cluster.id)
    gone("cluster", lambda: Clusters(confluent.client(), environment.id).get(cluster.id))
    Environments(confluent.client()).delete(environment.id)

    remaining = {name for name, kind in vars(state).items() if isinstance(kind, dict) and kind and name[0] != "_"}
    # Subjects and topic configurations outlive the registry and the topics in the simulation.
    assert remaining <= {"subjects", "topic_configs"}
