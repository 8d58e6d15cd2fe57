"""The resources of a deployment in AWS."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import boto3

from lakehouse.config.deployment import Deployment
from lakehouse.config.model import Config
from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.aws import iam_policies as policies
from lakehouse.deploy.aws.aws_service import Aws
from lakehouse.deploy.aws.bucket import Bucket
from lakehouse.deploy.aws.foundation import (
    RESULTS,
    DeploymentSecrets,
    GlueDatabase,
    TableflowCluster,
    Workgroup,
    spark_tables,
)
from lakehouse.deploy.aws.iam_policies import AwsPlace, Policy, Tables
from lakehouse.deploy.aws.iam_role import IamRole
from lakehouse.deploy.names import ROTATION, Names
from lakehouse.deploy.resource import Outputs, Resource
from lakehouse.deploy.settings import spark_class
from lakehouse.deploy.snowflake.objects import SnowflakePrincipal
from resources.confluent.tableflow import ProviderIntegration


class TableflowReferences(NamedTuple):
    """References to what Tableflow needs in Confluent Cloud."""

    cluster: TableflowCluster
    provider_integration: Resource[ProviderIntegration]


def aws_resources(
    session: boto3.Session,
    names: Names,
    config: Config,
    deployment: Deployment,
    tableflow: TableflowReferences | None,
    volume: Resource[SnowflakePrincipal],
    integration: Resource[SnowflakePrincipal],
    clock: Clock = SYSTEM_CLOCK,
) -> list[Resource[Any]]:
    """List the resources. The secrets come first and are deleted last: others need them until then.

    Args:
        session: A session in the account.
        names: The names of the deployment's resources.
        config: lakehouse.yaml.
        deployment: The deployment in lakehouse.yaml.
        tableflow: What Tableflow's role trusts; None if Tableflow creates no table in the account.
        volume: Snowflake's external volume, whose principal its role trusts.
        integration: Snowflake's integration with Glue, whose principal its role trusts.
        clock: Measures how long deletions are waited for.
    """
    common = Aws(session, names.region), names, clock
    kms_key = deployment.kms_key
    resources: list[Resource[Any]] = [DeploymentSecrets(*common), Bucket(*common, kms_key=kms_key)]
    if tableflow:
        resources.append(Bucket(*common, key="tableflow_bucket", kms_key=kms_key))
    return [
        *resources,
        GlueDatabase(*common, namespace=config.namespace),
        Workgroup(*common, kms_key=kms_key),
        *_roles(common, config, deployment, tableflow, volume, integration),
    ]


def _roles(
    common: tuple[Aws, Names, Clock],
    config: Config,
    deployment: Deployment,
    tableflow: TableflowReferences | None,
    volume: Resource[SnowflakePrincipal],
    integration: Resource[SnowflakePrincipal],
) -> Iterator[IamRole]:
    role, names = partial(IamRole, *common), common[1]
    place = AwsPlace(names.account, names.region, names.bucket, deployment.kms_key, deployment.vpc_endpoint)
    spark = spark_tables(config)
    cluster = tableflow.cluster if tableflow else None
    in_confluent = (cluster.environment, cluster.cluster) if cluster else ()

    def all_tables(outputs: Outputs) -> tuple[Tables, ...]:
        return spark, *((cluster.tables(outputs),) if cluster else ())

    def trust_in_snowflake(outputs: Outputs) -> Policy:
        of_volume, of_integration = outputs[volume], outputs[integration]
        return policies.snowflake_trust(
            of_volume.iam_user_arn, of_volume.external_id, of_integration.iam_user_arn, of_integration.external_id
        )

    if principals := deployment.spark_principals:
        spark_role = partial(role, trust=lambda _: policies.own_trust(*principals))
        # Ingestion, then compaction and expiry, then DuckDB and Athena.
        yield spark_role(
            purpose="writer",
            access=lambda outputs: policies.writer_access(
                place,
                spark,
                names.ingestion_secrets,
                cluster.tables(outputs) if cluster else None,
                spark_class(config, deployment).aws_rights(names.account, names.region),
            ),
            after=in_confluent,
        )
        yield spark_role(purpose="maintenance", access=lambda _: policies.maintenance_access(place, spark))
        yield spark_role(
            purpose="reader",
            access=lambda outputs: policies.reader_access(
                place, *all_tables(outputs), workgroup=names.workgroup, results=RESULTS
            ),
            after=in_confluent,
        )
    if rotation_principals := deployment.rotation_principals:
        yield role(
            purpose=ROTATION,
            trust=lambda _: policies.own_trust(*rotation_principals),
            access=lambda _: policies.rotation_access(place, names.secrets),
        )
    if tableflow:
        provider = tableflow.provider_integration
        yield role(
            purpose="confluent",
            trust=lambda outputs: policies.confluent_trust(
                outputs[provider].iam_role_arn, outputs[provider].external_id
            ),
            access=lambda outputs: policies.confluent_access(place, tableflow.cluster.tables(outputs)),
            after=(*in_confluent, provider),
        )
    yield role(
        purpose="snowflake",
        trust=trust_in_snowflake,
        access=lambda outputs: policies.snowflake_access(place, *all_tables(outputs)),
        after=(*in_confluent, volume, integration),
    )
