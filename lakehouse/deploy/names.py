"""The names of a deployment's resources, derived from its own, so that they are found without a state file.

Several deployments may share an account: each name contains the deployment's.
"""

from dataclasses import dataclass, field

from lakehouse.config.deployment import ExistingObjects
from lakehouse.core.tables import naming

ROTATION = "rotation"
"""The purpose of what replaces keys: an IAM role, a service account in Confluent Cloud, a user in Snowflake."""
ACCOUNTS = (
    *("app_manager", "app_consumer", "app_producer", "app_connector", "schema_registry", "flink", "spark"),
    ROTATION,
)
"""Service accounts in Confluent Cloud, by what they are for."""

CONFLUENT_SECRETS = {
    ("app_manager", "kafka"): "kafka_cluster/app_manager/python_client",
    ("app_consumer", "kafka"): "kafka_cluster/app_consumer/python_client",
    ("app_producer", "kafka"): "kafka_cluster/app_producer/python_client",
    ("spark", "kafka"): "kafka_cluster/spark/python_client",
    ("schema_registry", "schema_registry"): "schema_registry_cluster/python_client",
    ("spark", "schema_registry"): "schema_registry_cluster/spark/python_client",
    ("app_manager", "tableflow"): "tableflow",
    ("spark", "tableflow"): "tableflow/spark/python_client",
    ("flink", "flink"): "flink",
    (ROTATION, "cloud"): ROTATION,
}
"""The secret of each key of Confluent below `Names.confluent_secrets`, in the kickstarter's layout, by purpose of the
account and API. The first key creates topics, and the last one replaces the others."""


def _no_existing() -> ExistingObjects:
    # Pydantic takes a seventh of a second to import, which `lakehouse --help` does not need.
    return ExistingObjects()


@dataclass(frozen=True)
class Names:
    """Names of one deployment in one AWS account and region."""

    deployment: str
    account: str
    region: str
    existing: ExistingObjects = field(default_factory=_no_existing)
    """Existing objects that replace objects of the deployment."""

    @property
    def owner(self) -> str:
        """The mark of ownership in clouds that have no account or region of AWS: deployment, account and region."""
        return f"{self.deployment} {self.account} {self.region}"

    @property
    def confluent(self) -> str:
        """Environment, Kafka cluster, provider and catalog integration, compute pool in Confluent Cloud."""
        return f"lakehouse-{self.deployment}"

    def service_account(self, purpose: str) -> str:
        """One of ACCOUNTS. Unique in the organization."""
        return f"lakehouse-{self.deployment}-{purpose.replace('_', '-')}"

    @property
    def bucket(self) -> str:
        """The bucket. All of AWS shares the names; Snowflake accepts none with a dot."""
        return self.existing.bucket or f"lakehouse-{self.deployment}-{self.account}-{self.region}"

    @property
    def tableflow_bucket(self) -> str:
        """The bucket of Tableflow's tables, which must contain no other files."""
        return self.existing.tableflow_bucket or f"tableflow-{self.deployment}-{self.account}-{self.region}"

    def role(self, purpose: str) -> str:
        """An IAM role: confluent, snowflake, writer, maintenance, reader or rotation."""
        return f"lakehouse-{self.deployment}-{purpose}"

    def role_arn(self, purpose: str) -> str:
        """The ARN of an IAM role, which vendors need before the role exists."""
        return f"arn:aws:iam::{self.account}:role/{self.role(purpose)}"

    def external_id(self, purpose: str) -> str:
        """The external id with which a vendor assumes a role. It survives a recreation of the vendor object."""
        return f"lakehouse-{self.deployment}-{self.account}-{purpose}"

    @property
    def workgroup(self) -> str:
        """Athena's workgroup."""
        return f"lakehouse-{self.deployment}"

    @property
    def confluent_secrets(self) -> str:
        """The path of Confluent's keys in Secrets Manager (the kickstarter's layout)."""
        return f"/confluent_cloud_resource/{self.deployment}"

    def confluent_secret(self, purpose: str, api: str) -> str:
        """The secret of an account's key for an API, one of CONFLUENT_SECRETS."""
        return f"{self.confluent_secrets}/{CONFLUENT_SECRETS[purpose, api]}"

    @property
    def snowflake_secret(self) -> str:
        """The secret of Snowflake's service user (the kickstarter's layout)."""
        return f"/snowflake_resource/{self.deployment}"

    @property
    def snowflake_rotation_secret(self) -> str:
        """The secret of Snowflake's user who replaces keys."""
        return f"{self.snowflake_secret}/{ROTATION}"

    def secret_arn(self, name: str) -> str:
        """Return the ARN of a secret, without the six characters that AWS adds."""
        return f"arn:aws:secretsmanager:{self.region}:{self.account}:secret:{name}"

    @property
    def ingestion_secrets(self) -> tuple[str, ...]:
        """The secrets that the running lakehouse reads; `operator` is optional (docs/cloud.md)."""
        spark = (self.confluent_secret(account, api) for account, api in CONFLUENT_SECRETS if account == "spark")
        operator = (f"{self.confluent_secrets}/{path}" for path in ("operator", "operator/tableflow"))
        return (*spark, *operator, self.snowflake_secret)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets that `lakehouse deploy create` creates."""
        confluent = (self.confluent_secret(*key) for key in CONFLUENT_SECRETS)
        return (*confluent, self.snowflake_secret, self.snowflake_rotation_secret)

    def snowflake(self, purpose: str) -> str:
        """An object in a Snowflake account: USER, ROTATION_USER, ROLE, SECURITY_ROLE, WAREHOUSE, DATABASE, VOLUME,
        TABLEFLOW_VOLUME, GLUE, REST or OPEN_CATALOG."""
        by_purpose = {"DATABASE": self.existing.snowflake_database, "WAREHOUSE": self.existing.snowflake_warehouse}
        if existing := by_purpose.get(purpose):
            return naming.snowflake_name(existing)
        return f"LAKEHOUSE_{self.deployment.upper().replace('-', '_')}_{purpose}"
