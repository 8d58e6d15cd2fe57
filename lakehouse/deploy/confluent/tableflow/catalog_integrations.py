"""The catalogs in which Tableflow registers its tables: AWS Glue, and Snowflake Open Catalog or Apache Polaris."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakehouse.config.deployment import OpenCatalog
from lakehouse.core.errors import ConfigError
from lakehouse.deploy.confluent.confluent_resource import LISTED_SECONDS, ConfluentResource
from lakehouse.deploy.resource import Outputs, Resource, Updatable
from lakehouse.deploy.waiting import FAILED, unready
from resources.aws.secrets_manager import Secrets
from resources.confluent.api_client import Key
from resources.confluent.clusters import Cluster
from resources.confluent.tableflow import CatalogIntegration, CatalogIntegrations, ProviderIntegration, glue

BEGUN = frozenset({"PENDING", "CONNECTED", "RUNNING"})
HIDDEN = "client_secret"
"""The setting that responses do not reliably show."""


@dataclass(frozen=True)
class OpenCatalogClient:
    """The client with which Tableflow and Snowflake enter an Open Catalog. Its id and secret are in Secrets Manager."""

    declared: OpenCatalog
    secrets: Secrets

    def credentials(self) -> tuple[str, str]:
        """Return the client's id and secret.

        Raises:
            ConfigError: The secret does not exist or lacks one of them.
            LakehouseError: AWS refuses the request.
            Unreachable: AWS does not answer.
        """
        name = self.declared.secret
        version = self.secrets.read(name)
        values = version.value.reveal() if version else {}
        missing = [key for key in ("client_id", "client_secret") if not values.get(key)]
        if missing:
            problem = f"has no {' and '.join(missing)}" if version else "does not exist"
            raise ConfigError(
                f"lakehouse.yaml: tableflow.open_catalog.secret: '{name}' {problem} in region {self.secrets.region}. "
                f"The catalog integration was left unchanged. Store client_id and client_secret of the catalog's "
                f"service connection in it"
            )
        return values["client_id"], values["client_secret"]


@dataclass(frozen=True, kw_only=True, repr=False)
class CatalogIntegrationResource(ConfluentResource[CatalogIntegration], Updatable[CatalogIntegration]):
    """A catalog of Tableflow's tables. It stays PENDING until there is a table, so nothing waits for CONNECTED."""

    cluster: Resource[Cluster]
    tableflow_key: Resource[Key]

    @property
    @abstractmethod
    def name(self) -> str:
        """The integration's name in Confluent Cloud."""

    @abstractmethod
    def config(self, outputs: Outputs) -> dict[str, str]:
        """Return what is declared, as in the API."""

    @property
    def read_depends_on(self) -> tuple[Resource[Any], ...]:
        """The cluster and the key that opens its Tableflow."""
        return (self.cluster, self.tableflow_key)

    def read(self, outputs: Outputs) -> CatalogIntegration | None:
        """Read the integration by name."""
        return self.catalogs(outputs).find(self.name)

    def create(self, outputs: Outputs) -> CatalogIntegration:
        """Create the integration, as soon as the key is allowed to."""
        return self.when_granted(lambda: self.catalogs(outputs).create(self.name, self.config(outputs)))

    def wait_until_ready(self, outputs: Outputs, current: CatalogIntegration) -> CatalogIntegration:
        """Wait until the integration has begun."""
        return self.wait_for_phase(lambda: self.read(outputs), BEGUN, LISTED_SECONDS)

    def delete(self, outputs: Outputs, current: CatalogIntegration) -> None:
        """Delete the integration. The catalog keeps what was registered."""
        catalogs = self.catalogs(outputs)
        catalogs.delete(current.id)
        self.wait_until_gone(lambda: catalogs.get(current.id), LISTED_SECONDS)

    def catalogs(self, outputs: Outputs) -> CatalogIntegrations:
        """Return the catalog integrations of the cluster."""
        return self.cloud.catalog_integrations(outputs[self.cluster], outputs[self.tableflow_key])


@dataclass(frozen=True, kw_only=True, repr=False)
class GlueCatalogResource(CatalogIntegrationResource):
    """Tableflow's registration in AWS Glue."""

    address = "confluent/catalog_integration"
    provider_integration: Resource[ProviderIntegration]
    after: tuple[Resource[Any], ...]
    """The role binding, the IAM role and the bucket that Tableflow uses."""

    @property
    def name(self) -> str:
        """The deployment's name."""
        return self.names.confluent

    @property
    def label(self) -> str:
        """The catalog integration with its name."""
        return f"catalog integration '{self.name}' with AWS Glue"

    def config(self, outputs: Outputs) -> dict[str, str]:
        """Return the provider integration by which Tableflow reaches Glue."""
        return glue(outputs[self.provider_integration].id)

    def diff(self, outputs: Outputs, current: CatalogIntegration) -> list[str]:
        """Compare the provider integration that it uses."""
        uses, right = current.config.get("provider_integration_id"), outputs[self.provider_integration].id
        return [] if uses == right else [f"it uses provider integration '{uses}' instead of '{right}'"]

    def warning(self, outputs: Outputs, current: CatalogIntegration) -> str:
        """Return the state of an integration that has failed."""
        return unready(current, BEGUN)

    def update(self, outputs: Outputs, current: CatalogIntegration) -> CatalogIntegration:
        """Replace the integration: none can be moved to another provider integration. Glue keeps what was published."""
        self.delete(outputs, current)
        return self.create(outputs)


@dataclass(frozen=True, kw_only=True, repr=False)
class OpenCatalogResource(CatalogIntegrationResource):
    """Tableflow's registration in Snowflake Open Catalog or Apache Polaris, by a client of that catalog.

    The client's secret is in no field: it is read when it is sent.
    """

    address = "confluent/open_catalog"
    client: OpenCatalogClient = field(repr=False)

    @property
    def name(self) -> str:
        """The deployment's name, with the kind."""
        return f"{self.names.confluent}-open-catalog"

    @property
    def label(self) -> str:
        """The catalog integration with its name."""
        return f"catalog integration '{self.name}' with Open Catalog '{self.client.declared.warehouse}'"

    def config(self, outputs: Outputs) -> dict[str, str]:
        """Return the catalog, the client's id and its secret."""
        declared = self.client.declared
        client_id, client_secret = self.client.credentials()
        config = {
            "kind": "Snowflake",
            "endpoint": declared.endpoint,
            "warehouse": declared.warehouse,
            "allowed_scope": declared.scope,
            "client_id": client_id,
            HIDDEN: client_secret,
        }
        return config | ({"custom_namespace": declared.namespace} if declared.namespace else {})

    def diff(self, outputs: Outputs, current: CatalogIntegration) -> list[str]:
        """Compare all settings but the secret, and report a failure: the secret may have been replaced."""
        differences = [
            f"{setting} is {current.config.get(setting)!r} instead of {right!r}"
            for setting, right in self._shown(outputs).items()
            if current.config.get(setting) != right
        ]
        return differences + ([f"it has failed: {current.detail}"] if current.phase in FAILED else [])

    def update(self, outputs: Outputs, current: CatalogIntegration) -> CatalogIntegration:
        """Send all settings again, with the secret as it is now."""
        return self.catalogs(outputs).change(current.id, self.config(outputs))

    def _shown(self, outputs: Outputs) -> Mapping[str, str]:
        return {setting: value for setting, value in self.config(outputs).items() if setting != HIDDEN}
