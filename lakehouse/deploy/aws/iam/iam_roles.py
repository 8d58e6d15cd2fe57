"""The five IAM roles of a deployment, with their trust policies and permissions (policies.py)."""

from dataclasses import dataclass

from lakehouse.config.loader import Config
from lakehouse.deploy.aws import table_locations
from lakehouse.deploy.aws.iam import policies
from lakehouse.deploy.aws.iam.iam_role import IamRole
from lakehouse.deploy.aws.iam.policies import Policy
from lakehouse.deploy.aws.table_locations import TableflowCluster
from lakehouse.deploy.resource import Outputs, Resource
from lakehouse.deploy.snowflake.objects import Principal
from resources.confluent.tableflow import ProviderIntegration


@dataclass(frozen=True, kw_only=True, repr=False)
class ConfluentRole(IamRole):
    """`aws/role/confluent`: Tableflow writes files and publishes tables."""

    purpose = "confluent"
    tableflow: TableflowCluster
    provider_integration: Resource[ProviderIntegration]

    def trust(self, outputs: Outputs) -> Policy:
        """Trust Confluent's role, with the integration's external id."""
        integration = outputs[self.provider_integration]
        return policies.confluent_trust(integration.iam_role_arn, integration.external_id)

    def access(self, outputs: Outputs) -> Policy:
        """Allow Tableflow's own tables."""
        return policies.confluent_access(self.place, self.tableflow.tables(outputs))


@dataclass(frozen=True, kw_only=True, repr=False)
class SnowflakeRole(IamRole):
    """`aws/role/snowflake`: Snowflake reads files and registrations."""

    purpose = "snowflake"
    config: Config
    tableflow: TableflowCluster | None
    """None if Tableflow creates no table."""
    volume: Resource[Principal]
    integration: Resource[Principal]

    def trust(self, outputs: Outputs) -> Policy:
        """Trust Snowflake's users of the volume and of the integration."""
        volume, integration = outputs[self.volume], outputs[self.integration]
        return policies.snowflake_trust(
            volume.iam_user_arn, volume.external_id, integration.iam_user_arn, integration.external_id
        )

    def access(self, outputs: Outputs) -> Policy:
        """Allow all tables."""
        return policies.snowflake_access(self.place, *table_locations.all_tables(self.config, self.tableflow, outputs))


@dataclass(frozen=True, kw_only=True, repr=False)
class OwnRole(IamRole):
    """A role that the deployment's own programs assume."""

    config: Config
    principals: tuple[str, ...]

    def trust(self, outputs: Outputs) -> Policy:
        """Trust the principals that run the programs."""
        return policies.own_trust(*self.principals)


@dataclass(frozen=True, kw_only=True, repr=False)
class WriterRole(OwnRole):
    """`aws/role/writer`: ingestion."""

    purpose = "writer"
    tableflow: TableflowCluster | None
    """None if Tableflow creates no table."""

    def access(self, outputs: Outputs) -> Policy:
        """Allow Spark's tables, those of Tableflow to be read, and the secrets of ingestion's own clients."""
        spark, *tableflow = table_locations.all_tables(self.config, self.tableflow, outputs)
        return policies.writer_access(self.place, spark, self.names.ingestion_secrets, *tableflow)


@dataclass(frozen=True, kw_only=True, repr=False)
class RotationRole(OwnRole):
    """`aws/role/rotation`: the replacement of keys."""

    purpose = "rotation"

    def access(self, outputs: Outputs) -> Policy:
        """Allow the secrets of all keys."""
        return policies.rotation_access(self.place, self.names.secrets)


@dataclass(frozen=True, kw_only=True, repr=False)
class MaintenanceRole(OwnRole):
    """`aws/role/maintenance`: compaction and expiry."""

    purpose = "maintenance"

    def access(self, outputs: Outputs) -> Policy:
        """Allow Spark's tables."""
        return policies.maintenance_access(self.place, table_locations.spark_tables(self.config))


@dataclass(frozen=True, kw_only=True, repr=False)
class ReaderRole(OwnRole):
    """`aws/role/reader`: DuckDB and Athena."""

    purpose = "reader"
    tableflow: TableflowCluster | None
    """None if Tableflow creates no table."""

    def access(self, outputs: Outputs) -> Policy:
        """Allow all tables, in the deployment's workgroup."""
        tables = table_locations.all_tables(self.config, self.tableflow, outputs)
        return policies.reader_access(
            self.place, *tables, workgroup=self.names.workgroup, results=table_locations.RESULTS
        )
