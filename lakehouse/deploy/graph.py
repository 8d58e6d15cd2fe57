"""All resources of a deployment, dependencies first."""

from collections.abc import Sequence
from typing import Any

from lakehouse.config.model import Config
from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.aws.aws_resources import AwsResources, Tableflow
from lakehouse.deploy.aws.objects import TableflowCluster
from lakehouse.deploy.confluent.confluent_resources import ConfluentResources
from lakehouse.deploy.credentials import CloudCredentials
from lakehouse.deploy.resource import Resource
from lakehouse.deploy.snowflake.snowflake_resources import SnowflakeResources


def deployment_resources(
    config: Config, credentials: CloudCredentials, clock: Clock = SYSTEM_CLOCK
) -> list[Resource[Any]]:
    """Return the resources. Nothing connects before one of them is read.

    Args:
        config: lakehouse.yaml.
        credentials: An administrator's credentials.
        clock: Measures how long resources are waited for.
    """
    names, deployment = credentials.names, credentials.deployment
    confluent = ConfluentResources(credentials.confluent, credentials.secrets, names, config, deployment, clock)
    snowflake = SnowflakeResources(
        credentials.snowflake, credentials.secrets, names, config, clock, credentials.rest_catalog
    )
    tableflow = (
        Tableflow(
            TableflowCluster(confluent.environment, confluent.cluster, names.tableflow_bucket),
            confluent.tableflow.provider_integration,
        )
        if confluent.has_tableflow_bucket
        else None
    )
    aws = AwsResources(
        credentials.session, names, config, deployment, tableflow, snowflake.volume, snowflake.integration, clock
    )
    return in_dependency_order(
        [
            *aws.all(),
            *confluent.all(aws.confluent_role, aws.tableflow_bucket if tableflow else None),
            *snowflake.all(
                aws.snowflake_role, confluent.cluster if tableflow else None, confluent.tableflow.open_catalog
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
