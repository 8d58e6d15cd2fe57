"""How the things of a deployment are called: one rule from its name, so that they are found again without a state file.

Several deployments may be in one account: each name carries the deployment's.
"""

from __future__ import annotations

from dataclasses import dataclass

ACCOUNTS = ("app_manager", "app_consumer", "app_producer", "app_connector", "schema_registry", "flink", "spark")
"""Service accounts in Confluent Cloud, by what they are for."""


@dataclass(frozen=True)
class Names:
    """Names of one deployment in one AWS account and region."""

    deployment: str
    account: str
    region: str

    @property
    def confluent(self) -> str:
        """Environment, Kafka cluster, provider and catalog integration, compute pool in Confluent Cloud."""
        return f"lakehouse-{self.deployment}"

    def service_account(self, purpose: str) -> str:
        """One of ACCOUNTS. Unique in the organization."""
        return f"lakehouse-{self.deployment}-{purpose.replace('_', '-')}"

    @property
    def bucket(self) -> str:
        """Bucket names are everybody's: account and region make it ours. No dots, which Snowflake does not take."""
        return f"lakehouse-{self.deployment}-{self.account}-{self.region}"

    def role(self, purpose: str) -> str:
        """An IAM role: confluent, snowflake, writer, maintenance or reader."""
        return f"lakehouse-{self.deployment}-{purpose}"

    def role_arn(self, purpose: str) -> str:
        """Its ARN, known before it exists: who is to trust us wants it first."""
        return f"arn:aws:iam::{self.account}:role/{self.role(purpose)}"

    def external_id(self, purpose: str) -> str:
        """What an outsider shows to assume a role. Chosen, so that making the outsider's side anew keeps the trust."""
        return f"lakehouse-{self.deployment}-{self.account}-{purpose}"

    @property
    def workgroup(self) -> str:
        """Athena's workgroup."""
        return f"lakehouse-{self.deployment}"

    @property
    def confluent_secrets(self) -> str:
        """The path of Confluent's keys in Secrets Manager (the kickstarter's layout)."""
        return f"/confluent_cloud_resource/{self.deployment}"

    @property
    def snowflake_secret(self) -> str:
        """The secret of Snowflake's service user (the kickstarter's layout)."""
        return f"/snowflake_resource/{self.deployment}"

    def snowflake(self, purpose: str) -> str:
        """An object in a Snowflake account: USER, ROLE, SECURITY_ROLE, WAREHOUSE, DATABASE, VOLUME, GLUE or REST."""
        return f"LAKEHOUSE_{self.deployment.upper().replace('-', '_')}_{purpose}"
