"""The resources of a deployment in Confluent Cloud."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from lakehouse.config.deployment import Deployment
from lakehouse.config.model import Config
from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.aws.bucket import BucketState
from lakehouse.deploy.confluent.access import (
    AclsResource,
    PermissionsReport,
    RoleBindingsResource,
    RoleScopes,
    ServiceAccountResource,
)
from lakehouse.deploy.confluent.api_keys import (
    ApiKeyResource,
    CatalogKeyResource,
    FlinkKeyResource,
    KafkaKeyResource,
    ManagerKeyResource,
    RegistryKeyResource,
    RotationKeyResource,
    TableflowKeyResource,
)
from lakehouse.deploy.confluent.declared import ASSIGNER, DeclaredAccess, DeclaredTopics, milliseconds, tableflow_config
from lakehouse.deploy.confluent.flink import FlinkTopicResource, StatementResource
from lakehouse.deploy.confluent.foundation import (
    ClusterResource,
    ComputePoolResource,
    EnvironmentResource,
    SchemaRegistryResource,
)
from lakehouse.deploy.confluent.tableflow import (
    CatalogIntegrationResource,
    GlueCatalogResource,
    OpenCatalogResource,
    OwnStorage,
    ProviderIntegrationResource,
    TableflowTopicResource,
    open_catalog_client,
)
from lakehouse.deploy.confluent.topics import DatagenResource, DeclaredTopicResource, TopicResource
from lakehouse.deploy.names import ROTATION, Names
from lakehouse.deploy.resource import Resource
from resources.aws.secrets_manager import Secrets
from resources.confluent.confluent_cloud import ConfluentCloud

Keys = Mapping[tuple[str, str], ApiKeyResource]
"""The keys by purpose of the account and API."""


@dataclass(frozen=True)
class Foundation:
    """The resources that all others refer to, also those in other clouds."""

    common: tuple[ConfluentCloud, Names, Clock]
    """The first fields of every resource."""
    topics: DeclaredTopics
    environment: EnvironmentResource
    cluster: ClusterResource
    registry: SchemaRegistryResource
    compute_pool: ComputePoolResource
    """Flink's compute pool, created only for statements."""
    provider_integration: ProviderIntegrationResource | None
    """Tableflow's way into AWS; None if Tableflow creates no table in a bucket of the account."""

    @property
    def compute(self) -> tuple[ComputePoolResource, ...]:
        """The compute pool; empty without statements."""
        return (self.compute_pool,) if self.topics.deployment.flink else ()


def foundation(
    cloud: ConfluentCloud, names: Names, config: Config, deployment: Deployment, clock: Clock = SYSTEM_CLOCK
) -> Foundation:
    """Return the resources that all others refer to.

    Args:
        cloud: Confluent Cloud.
        names: The names of the deployment's resources.
        config: lakehouse.yaml.
        deployment: The deployment in lakehouse.yaml.
        clock: Measures how long resources are waited for.
    """
    common, topics = (cloud, names, clock), DeclaredTopics(config, deployment)
    environment = EnvironmentResource(*common, holds_data=topics.hold_data)
    cluster = ClusterResource(*common, environment=environment, holds_data=topics.hold_data)
    has_bucket = topics.tables and deployment.tableflow.storage == "own_bucket"
    return Foundation(
        common,
        topics,
        environment,
        cluster,
        SchemaRegistryResource(*common, environment=environment, cluster=cluster),
        ComputePoolResource(*common, environment=environment),
        ProviderIntegrationResource(*common, environment=environment) if has_bucket else None,
    )


def confluent_resources(
    base: Foundation,
    secrets: Secrets,
    confluent_role: Resource[Any] | None,
    bucket: Resource[BucketState] | None,
) -> list[Resource[Any]]:
    """List the resources, dependencies first, apart from those in AWS.

    Args:
        base: The resources that all others refer to.
        secrets: Hold the keys.
        confluent_role: The IAM role that Tableflow assumes; None if Tableflow creates no table in the account.
        bucket: The bucket of Tableflow's tables; None in the same case.
    """
    access = DeclaredAccess(base.topics, base.common[1])
    accounts = {
        purpose: ServiceAccountResource(
            *base.common,
            secrets=secrets,
            purpose=purpose,
            secret_names=tuple(name for (owner, _), name in access.secrets.items() if owner == purpose),
        )
        for purpose in access.accounts
    }
    scopes = RoleScopes(base.environment, base.cluster, base.registry)
    role_bindings = {
        purpose: RoleBindingsResource(
            *base.common,
            roles=roles,
            account=accounts[purpose],
            scopes=scopes,
            owned=tuple(accounts.values()) if purpose == ROTATION else (),
        )
        for purpose, roles in access.roles.items()
    }
    keys = {
        (purpose, api): _key(base, purpose, api, accounts[purpose], secret, role_bindings.get(purpose))
        for (purpose, api), secret in access.secrets.items()
    }
    acls = {
        purpose: AclsResource(
            *base.common,
            allowed=allowed,
            account=accounts[purpose],
            cluster=base.cluster,
            manager_key=keys["app_manager", "kafka"],
        )
        for purpose, allowed in access.acls.items()
    }
    topics: dict[str, TopicResource] = dict(_declared_topics(base, keys))
    connectors = dict(_connectors(base, keys, topics, accounts["app_connector"], acls["app_connector"]))
    statements = _statements(base, keys, accounts, tuple(connectors.values()))
    flink_topics = dict(_flink_topics(base, keys, statements))
    producers: dict[str, Resource[Any]] = {entry: topic.statement for entry, topic in flink_topics.items()}
    return [
        # The first to be created and the last to be deleted: they bear the mark of ownership.
        *accounts.values(),
        base.environment,
        # Before the cluster: when it is deleted, after the cluster, nothing is left that could use it.
        *([base.provider_integration] if base.provider_integration else ()),
        base.cluster,
        base.registry,
        *base.compute,
        *role_bindings.values(),
        *keys.values(),
        *topics.values(),
        *acls.values(),
        *connectors.values(),
        *statements.values(),
        *flink_topics.values(),
        *_tableflow(
            base, keys, accounts, secrets, {**topics, **flink_topics}, producers | connectors, confluent_role, bucket
        ),
        _permissions(base, access, accounts, scopes, keys),
    ]


def _key(
    base: Foundation,
    purpose: str,
    api: str,
    account: ServiceAccountResource,
    secret: str,
    roles: RoleBindingsResource | None,
) -> ApiKeyResource:
    fields: dict[str, Any] = {"account": account, "secret": secret, "roles": roles}
    match api, purpose:
        case "kafka", _:
            kind = ManagerKeyResource if purpose == "app_manager" else KafkaKeyResource
            return kind(*base.common, **fields, cluster=base.cluster)
        case "schema_registry", _:
            return RegistryKeyResource(*base.common, **fields, registry=base.registry)
        case "tableflow", "spark":
            return CatalogKeyResource(*base.common, **fields, environment=base.environment)
        case "tableflow", _:
            return TableflowKeyResource(*base.common, **fields, cluster=base.cluster)
        case "flink", _:
            return FlinkKeyResource(
                *base.common, **fields, environment=base.environment, compute_pool=base.compute_pool
            )
        case _:
            recorded: tuple[Resource[Any], ...] = (base.environment, base.cluster, base.registry, *base.compute)
            return RotationKeyResource(*base.common, **fields, recorded=recorded)


def _topic_fields(base: Foundation, keys: Keys) -> dict[str, Any]:
    return {
        "cluster": base.cluster,
        "manager_key": keys["app_manager", "kafka"],
        "is_in_existing_cluster": bool(base.cluster.existing_id),
    }


def _declared_topics(base: Foundation, keys: Keys) -> Iterator[tuple[str, DeclaredTopicResource]]:
    """Yield the topics that Flink does not create, and those that receive dead letters, by entry."""
    topics, create = base.topics, partial(DeclaredTopicResource, *base.common, **_topic_fields(base, keys))
    for topic in topics.all:
        if topic.topic not in topics.statements:
            yield (
                topic.name,
                create(
                    entry=topic.name,
                    topic=topic.topic,
                    partitions=topic.partitions,
                    holds_data=topic.source.is_external or topic in topics.stored_by_confluent,
                    retention_ms=milliseconds(topic.retention.records) if topic.retention.records else None,
                    compacted=topic in topics.upserted,
                ),
            )
    for name, topic in topics.dead_letters.items():
        entry = f"{topic.name}/dead_letters"
        yield entry, create(entry=entry, topic=name, partitions=topic.partitions)


def _connectors(
    base: Foundation,
    keys: Keys,
    topics: Mapping[str, TopicResource],
    account: ServiceAccountResource,
    acls: AclsResource,
) -> Iterator[tuple[str, DatagenResource]]:
    """Yield the Datagen connectors by entry."""
    for topic, source in base.topics.generated:
        yield (
            topic.name,
            DatagenResource(
                *base.common,
                entry=topic.name,
                connector=source.connector(topic.name),
                topic_name=topic.topic,
                settings=source.connector_settings(base.topics.config, topic),
                subject=topic.subject("value"),
                cluster=base.cluster,
                registry=base.registry,
                account=account,
                acls=acls,
                visible=topic.visible,
                topic=topics[topic.name],
                registry_key=keys["schema_registry", "schema_registry"],
            ),
        )


def _statements(
    base: Foundation,
    keys: Keys,
    accounts: Mapping[str, ServiceAccountResource],
    connectors: tuple[DatagenResource, ...],
) -> dict[str, StatementResource]:
    """Return the Flink statements by declared name."""
    return {
        name: StatementResource(
            *base.common,
            declared_name=name,
            sql=sql,
            environment=base.environment,
            cluster=base.cluster,
            account=accounts["flink"],
            compute_pool=base.compute_pool,
            flink_key=keys["flink", "flink"],
            manager_key=keys["app_manager", "kafka"],
            visible=base.topics.visible,
            after=connectors,
        )
        for name, sql in base.topics.deployment.flink.items()
    }


def _flink_topics(
    base: Foundation, keys: Keys, statements: Mapping[str, StatementResource]
) -> Iterator[tuple[str, FlinkTopicResource]]:
    """Yield the topics that Flink statements create, by entry."""
    for topic in base.topics.all:
        if statement := base.topics.statements.get(topic.topic):
            yield (
                topic.name,
                FlinkTopicResource(
                    *base.common,
                    **_topic_fields(base, keys),
                    entry=topic.name,
                    topic=topic.topic,
                    holds_data=topic in base.topics.stored_by_confluent,
                    statement=statements[statement],
                ),
            )


def _tableflow(
    base: Foundation,
    keys: Keys,
    accounts: Mapping[str, ServiceAccountResource],
    secrets: Secrets,
    topics: Mapping[str, TopicResource],
    producers: Mapping[str, Resource[Any]],
    confluent_role: Resource[Any] | None,
    bucket: Resource[BucketState] | None,
) -> Iterator[Resource[Any]]:
    """Yield Tableflow's access to AWS, its catalogs, and topics as tables. In Confluent's storage there are only these.

    Args:
        base: The resources that all others refer to.
        keys: The keys.
        accounts: The service accounts by purpose.
        secrets: Hold the credentials of the Open Catalog.
        topics: The topics in Kafka by entry.
        producers: The resources that write the records of topics, by entry; external producers write all others.
        confluent_role: As in `confluent_resources`.
        bucket: As in `confluent_resources`.
    """
    storage: OwnStorage | None = None
    catalogs: tuple[CatalogIntegrationResource, ...] = ()
    if base.provider_integration and confluent_role and bucket:
        storage = OwnStorage(bucket, base.provider_integration)
        # Tableflow acts with the permissions of its key's owner.
        assigner = RoleBindingsResource(
            *base.common,
            roles=(ASSIGNER,),
            account=accounts["app_manager"],
            scopes=RoleScopes(base.environment, integration=base.provider_integration),
            part="provider_integration",
        )
        yield assigner
        references: dict[str, Any] = {"cluster": base.cluster, "tableflow_key": keys["app_manager", "tableflow"]}
        integration, after = base.provider_integration, (assigner, confluent_role, bucket)
        catalogs = (GlueCatalogResource(*base.common, **references, provider_integration=integration, after=after),)
        if client := open_catalog_client(base.topics.deployment, secrets):
            catalogs = (*catalogs, OpenCatalogResource(*base.common, **references, client=client))
        yield from catalogs
    for topic in base.topics.tables:
        yield TableflowTopicResource(
            *base.common,
            entry=topic.name,
            topic_name=topic.topic,
            subject=topic.subject("value"),
            config=tableflow_config(topic),
            visible=topic.visible,
            write_mode="UPSERT" if topic in base.topics.upserted else "APPEND",
            cluster=base.cluster,
            registry=base.registry,
            topic=topics[topic.name],
            catalogs=catalogs,
            storage=storage,
            tableflow_key=keys["app_manager", "tableflow"],
            registry_key=keys["schema_registry", "schema_registry"],
            filled_by=producers.get(topic.name),
        )


def _permissions(
    base: Foundation,
    access: DeclaredAccess,
    accounts: Mapping[str, ServiceAccountResource],
    scopes: RoleScopes,
    keys: Keys,
) -> PermissionsReport:
    roles = access.roles
    if base.provider_integration:
        roles = roles | {"app_manager": (*roles["app_manager"], ASSIGNER)}
        scopes = scopes._replace(integration=base.provider_integration)
    return PermissionsReport(
        *base.common,
        roles=roles,
        allowed=access.acls,
        scopes=scopes,
        cluster=base.cluster,
        accounts=tuple(accounts.values()),
        manager_key=keys["app_manager", "kafka"],
    )
