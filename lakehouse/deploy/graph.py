"""All resources of a deployment, dependencies first."""

from collections.abc import Sequence
from typing import Any

from lakehouse.config.model import Config
from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.aws.aws_resources import TableflowReferences, aws_resources
from lakehouse.deploy.aws.foundation import TableflowCluster
from lakehouse.deploy.confluent.confluent_resources import confluent_resources, foundation
from lakehouse.deploy.confluent.tableflow import open_catalog_client
from lakehouse.deploy.credentials import CloudCredentials
from lakehouse.deploy.resource import Resource
from lakehouse.deploy.snowflake.administrator import Administrator
from lakehouse.deploy.snowflake.snowflake_resources import glue_integration, snowflake_resources, spark_volume


def deployment_resources(
    config: Config, credentials: CloudCredentials, clock: Clock = SYSTEM_CLOCK
) -> list[Resource[Any]]:
    """Return the resources. Nothing connects before one of them is read.

    Args:
        config: lakehouse.yaml.
        credentials: An administrator's credentials.
        clock: Measures how long resources are waited for.
    """
    names, deployment, secrets = credentials.names, credentials.deployment, credentials.secrets
    confluent = foundation(credentials.confluent, names, config, deployment, clock)
    tableflow = None
    if confluent.provider_integration:
        cluster = TableflowCluster(confluent.environment, confluent.cluster, names.tableflow_bucket)
        tableflow = TableflowReferences(cluster, confluent.provider_integration)
    administrator = Administrator(credentials.snowflake, names.owner)
    volume, integration = spark_volume(administrator, names), glue_integration(administrator, names, config)
    aws = aws_resources(credentials.session, names, config, deployment, tableflow, volume, integration, clock)
    in_aws = {resource.address: resource for resource in aws}
    return in_dependency_order(
        [
            *aws,
            *confluent_resources(
                confluent,
                secrets,
                in_aws.get("aws/role/confluent"),
                in_aws.get("aws/tableflow_bucket"),
            ),
            *snowflake_resources(
                credentials.snowflake,
                secrets,
                names,
                config,
                in_aws["aws/role/snowflake"],
                tableflow_cluster=confluent.cluster if tableflow else None,
                rest_catalog=credentials.rest_catalog,
                open_catalog=open_catalog_client(deployment, secrets) if tableflow else None,
                clock=clock,
            ),
        ]
    )


def in_dependency_order(resources: Sequence[Resource[Any]]) -> list[Resource[Any]]:
    """Return the resources in their order, but move each one behind its last dependency.

    The clouds depend on each other in turns: the trust policy of a role in AWS names principals of Confluent, and a
    later resource of Confluent uses the role.
    """
    remaining, ordered = list(resources), list[Resource[Any]]()
    addresses: set[str] = set()
    while remaining:
        ready = next(
            (n for n, candidate in enumerate(remaining) if addresses.issuperset(_dependencies(candidate))), None
        )
        if ready is None:
            raise ValueError(f"never satisfied: {', '.join(resource.address for resource in remaining)}")
        resource = remaining.pop(ready)
        ordered.append(resource)
        addresses.add(resource.address)
    return ordered


def _dependencies(resource: Resource[Any]) -> list[str]:
    return [dependency.address for dependency in resource.depends_on]
