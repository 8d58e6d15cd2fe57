"""The five roles of a deployment: whom each trusts, and what it may do (lakehouse/deploy/aws/policies.py)."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.config.loader import Config
from lakehouse.deploy.aws import policies, tables
from lakehouse.deploy.aws.policies import Policy
from lakehouse.deploy.aws.role import Role
from lakehouse.deploy.step import Found

INTEGRATION = "confluent/provider_integration"
SNOWFLAKE = ("snowflake/volume", "snowflake/integration")


@dataclass(frozen=True, kw_only=True)
class ConfluentRole(Role):
    """`aws/role/confluent`: Tableflow writes files and publishes tables."""

    purpose = "confluent"
    needs = (*tables.CONFLUENT, INTEGRATION)

    def trust(self, found: Found) -> Policy:
        """Confluent's role, with the integration's external id."""
        integration = found[INTEGRATION]
        return policies.confluent_trust(integration.iam_role_arn, integration.external_id)

    def access(self, found: Found) -> Policy:
        """Its own tables."""
        return policies.confluent_access(self._deployment, tables.confluent_tables(found))


@dataclass(frozen=True, kw_only=True)
class SnowflakeRole(Role):
    """`aws/role/snowflake`: Snowflake reads files and registrations."""

    purpose = "snowflake"
    config: Config

    @property
    def needs(self) -> tuple[str, ...]:
        """Both of Snowflake's sides, and whose tables it reads."""
        return (*_confluent(self.config), *SNOWFLAKE)

    def trust(self, found: Found) -> Policy:
        """Snowflake's users of the volume and of the integration."""
        volume, integration = (found[name] for name in SNOWFLAKE)
        return policies.snowflake_trust(
            volume.iam_user_arn, volume.external_id, integration.iam_user_arn, integration.external_id
        )

    def access(self, found: Found) -> Policy:
        """All tables."""
        return policies.snowflake_access(self._deployment, *tables.all_tables(self.config, found))


@dataclass(frozen=True, kw_only=True)
class OwnRole(Role):
    """A role that the deployment's own programs assume."""

    config: Config
    principals: tuple[str, ...]

    def trust(self, found: Found) -> Policy:
        """Who runs them."""
        return policies.own_trust(*self.principals)


@dataclass(frozen=True, kw_only=True)
class WriterRole(OwnRole):
    """`aws/role/writer`: ingestion."""

    purpose = "writer"

    def access(self, found: Found) -> Policy:
        """Spark's tables, and Confluent's keys."""
        secrets = self.names.confluent_secrets
        return policies.writer_access(self._deployment, tables.spark_tables(self.config), secrets)


@dataclass(frozen=True, kw_only=True)
class MaintenanceRole(OwnRole):
    """`aws/role/maintenance`: compaction and expiry."""

    purpose = "maintenance"

    def access(self, found: Found) -> Policy:
        """Spark's tables."""
        return policies.maintenance_access(self._deployment, tables.spark_tables(self.config))


@dataclass(frozen=True, kw_only=True)
class ReaderRole(OwnRole):
    """`aws/role/reader`: DuckDB and Athena."""

    purpose = "reader"

    @property
    def needs(self) -> tuple[str, ...]:
        """Whose tables it reads."""
        return _confluent(self.config)

    def access(self, found: Found) -> Policy:
        """All tables, in the deployment's workgroup."""
        read = tables.all_tables(self.config, found)
        return policies.reader_access(self._deployment, *read, workgroup=self.names.workgroup, results=tables.RESULTS)


def _confluent(config: Config) -> tuple[str, ...]:
    return tables.CONFLUENT if tables.has_tableflow(config) else ()
