"""The resources of a deployment in AWS."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import boto3

from lakehouse.config.deployment import Deployment
from lakehouse.config.model import Config
from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.aws.aws_service import Aws
from lakehouse.deploy.aws.bucket import Bucket, ExistingBucket, ExistingTableflowBucket, TableflowBucket
from lakehouse.deploy.aws.iam_roles import (
    ConfluentRole,
    MaintenanceRole,
    ReaderRole,
    RotationRole,
    SnowflakeRole,
    WriterRole,
)
from lakehouse.deploy.aws.objects import (
    DeploymentSecrets,
    ExistingGlueDatabase,
    GlueDatabase,
    TableflowCluster,
    Workgroup,
)
from lakehouse.deploy.names import Names
from lakehouse.deploy.resource import Resource
from lakehouse.deploy.snowflake.objects import Principal
from resources.confluent.tableflow import ProviderIntegration


class Tableflow(NamedTuple):
    """References to what Tableflow needs in Confluent Cloud."""

    cluster: TableflowCluster
    provider_integration: Resource[ProviderIntegration]


@dataclass(frozen=True)
class AwsResources:
    """The resources in AWS, and references to those of other clouds that IAM roles trust or read."""

    session: boto3.Session
    names: Names
    config: Config
    deployment: Deployment
    tableflow: Tableflow | None
    """None if Tableflow creates no table in the account."""
    volume: Resource[Principal]
    integration: Resource[Principal]
    clock: Clock = SYSTEM_CLOCK
    """Measures how long deletions are waited for."""

    def all(self) -> list[Resource[Any]]:
        """List the resources. The secrets come first and are deleted last: others need them until then."""
        resources: list[Resource[Any]] = [
            DeploymentSecrets(*self._common),
            self.bucket,
            *([self.tableflow_bucket] if self.tableflow else ()),
            self._glue_database,
            Workgroup(*self._common, kms_key=self.deployment.kms_key),
        ]
        if principals := self.deployment.spark_principals:
            resources += [
                WriterRole(*self._role, config=self.config, principals=principals, tableflow=self._cluster),
                MaintenanceRole(*self._role, config=self.config, principals=principals),
                ReaderRole(*self._role, config=self.config, principals=principals, tableflow=self._cluster),
            ]
        if rotation := self.deployment.rotation_principals:
            resources.append(RotationRole(*self._role, config=self.config, principals=rotation))
        if self.confluent_role:
            resources.append(self.confluent_role)
        return [*resources, self.snowflake_role]

    @cached_property
    def bucket(self) -> Bucket | ExistingBucket:
        """The bucket with all files of the deployment but Tableflow's."""
        if self.names.existing.bucket:
            return ExistingBucket(*self._common)
        return Bucket(*self._common, kms_key=self.deployment.kms_key)

    @cached_property
    def tableflow_bucket(self) -> TableflowBucket | ExistingTableflowBucket:
        """The bucket of Tableflow's tables, used only if Tableflow creates any in the account."""
        if self.names.existing.tableflow_bucket:
            return ExistingTableflowBucket(*self._common)
        return TableflowBucket(*self._common, kms_key=self.deployment.kms_key)

    @cached_property
    def confluent_role(self) -> ConfluentRole | None:
        """The role that Tableflow assumes; None if it creates no table in the account."""
        if self.tableflow is None:
            return None
        cluster, integration = self.tableflow
        return ConfluentRole(*self._role, tableflow=cluster, provider_integration=integration)

    @cached_property
    def snowflake_role(self) -> SnowflakeRole:
        """The role that Snowflake assumes."""
        return SnowflakeRole(
            *self._role,
            config=self.config,
            tableflow=self._cluster,
            volume=self.volume,
            integration=self.integration,
        )

    @property
    def _glue_database(self) -> GlueDatabase | ExistingGlueDatabase:
        kind = ExistingGlueDatabase if self.names.existing.glue_database else GlueDatabase
        return kind(*self._common, namespace=self.config.namespace)

    @property
    def _cluster(self) -> TableflowCluster | None:
        return self.tableflow and self.tableflow.cluster

    @cached_property
    def _common(self) -> tuple[Aws, Names, Clock]:
        return Aws(self.session, self.names.region), self.names, self.clock

    @property
    def _role(self) -> tuple[Aws, Names, Clock, str, str]:
        return *self._common, self.deployment.kms_key, self.deployment.vpc_endpoint
