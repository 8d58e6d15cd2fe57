"""Tableflow: topics as Iceberg tables in a bucket, catalog integrations, and provider integrations with AWS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from resources.confluent.api_client import ApiClient, shortened, single_match

MANAGED: Mapping[str, str] = MappingProxyType({"kind": "Managed"})
"""Storage that Confluent manages."""


@dataclass(frozen=True)
class ProviderIntegration:
    """Permission for Confluent to assume a role in an AWS account.

    Attributes:
        iam_role_arn: Confluent's role, which assumes ours.
        external_id: The external id that Confluent presents.
        usages: Resources that use the integration.
    """

    id: str
    name: str
    iam_role_arn: str
    external_id: str
    usages: tuple[str, ...]

    @staticmethod
    def of(response: dict[str, Any]) -> ProviderIntegration:
        """Parse a response."""
        config = response["config"]
        return ProviderIntegration(
            id=response["id"],
            name=response["display_name"],
            iam_role_arn=config["iam_role_arn"],
            external_id=config["external_id"],
            usages=tuple(response.get("usages") or ()),
        )


@dataclass(frozen=True)
class ProviderIntegrations:
    """The provider integrations of one environment. The client is that of Confluent Cloud itself."""

    client: ApiClient
    environment_id: str

    def list(self) -> list[ProviderIntegration]:
        """Return the integrations with AWS."""

        def parsed(response: dict[str, Any]) -> ProviderIntegration | None:
            return ProviderIntegration.of(response) if response["provider"].upper() == "AWS" else None

        integrations = self.client.items("/pim/v1/integrations", parsed, {"environment": self.environment_id})
        return [integration for integration in integrations if integration]

    def find(self, name: str) -> ProviderIntegration | None:
        """Return the provider integration with a display name, or None.

        Raises:
            UnclearState: Several provider integrations have the name.
        """
        matches = [integration for integration in self.list() if integration.name == name]
        return single_match(f"provider integration '{name}'", matches)

    def create(self, name: str, customer_role_arn: str) -> ProviderIntegration:
        """Create a provider integration. It is immutable: another role needs another integration."""
        body = {
            "display_name": name,
            "provider": "aws",
            "config": {"kind": "AwsIntegrationConfig", "customer_iam_role_arn": customer_role_arn},
            "environment": {"id": self.environment_id},
        }
        return self.client.send("POST", "/pim/v1/integrations", ProviderIntegration.of, body=body)

    def delete(self, integration_id: str) -> None:
        """Delete a provider integration that is not in use."""
        self.client.delete(f"/pim/v1/integrations/{integration_id}", {"environment": self.environment_id})


@dataclass(frozen=True)
class CatalogIntegration:
    """A catalog in which Tableflow registers its tables. It is PENDING until a table has rows, then CONNECTED."""

    id: str
    name: str
    phase: str
    detail: str
    config: Mapping[str, Any]
    """The settings, as in the API."""

    @staticmethod
    def of(response: dict[str, Any]) -> CatalogIntegration:
        """Parse a response."""
        spec, status = response["spec"], response["status"]
        return CatalogIntegration(
            id=response["id"],
            name=spec["display_name"],
            phase=status["phase"],
            detail=shortened(status.get("error_message") or ""),
            config=spec["config"],
        )


@dataclass(frozen=True)
class CatalogIntegrations:
    """The catalog integrations of one cluster. The client is that of Tableflow."""

    client: ApiClient
    environment_id: str
    cluster_id: str

    def find(self, name: str) -> CatalogIntegration | None:
        """Return the catalog integration with a display name, or None.

        Raises:
            UnclearState: Several catalog integrations have the name.
        """
        integrations = self.client.items("/tableflow/v1/catalog-integrations", CatalogIntegration.of, _of(self))
        return single_match(f"catalog integration '{name}'", [one for one in integrations if one.name == name])

    def get(self, integration_id: str) -> CatalogIntegration | None:
        """Return the catalog integration with an id; None if it does not exist."""
        path = f"/tableflow/v1/catalog-integrations/{integration_id}"
        return self.client.find(path, CatalogIntegration.of, _of(self))

    def create(self, name: str, config: Mapping[str, str]) -> CatalogIntegration:
        """Create an integration. Tables are in a namespace with the cluster's id as its name, unless `config` has one.

        Args:
            name: Display name.
            config: Kind and settings of the catalog, as in the API: `glue(…)`, or with `kind: Snowflake`.

        Raises:
            Forbidden: The key's owner has no role on the provider integration yet.
        """
        spec = {"display_name": name, **_references(self), "config": dict(config)}
        path = "/tableflow/v1/catalog-integrations"
        return self.client.send("POST", path, CatalogIntegration.of, body={"spec": spec})

    def change(self, integration_id: str, config: Mapping[str, str]) -> CatalogIntegration:
        """Change the settings of an integration. `config` has its kind and what changes."""
        spec = {**_references(self), "config": dict(config)}
        path = f"/tableflow/v1/catalog-integrations/{integration_id}"
        return self.client.send("PATCH", path, CatalogIntegration.of, body={"spec": spec})

    def delete(self, integration_id: str) -> None:
        """Delete a catalog integration. Its registered tables stay in the catalog."""
        self.client.delete(f"/tableflow/v1/catalog-integrations/{integration_id}", _of(self))


@dataclass(frozen=True)
class TableflowTopic:
    """A topic that Tableflow maintains as a table.

    Attributes:
        phase: As in the API; or SUSPENDED, which Tableflow does by itself at a record that it cannot process.
        detail: The reason of a failure, of the table or of each failing format, without credentials.
        table_path: An s3:// URI; empty at first.
        synced: Whether the table is registered in all catalogs.
        storage: Kind and settings of the storage, as in the API.
        config: The settings, as in the API.
        write_mode: APPEND or UPSERT, as the topic's `cleanup.policy` implies; empty before Tableflow determines it.
    """

    name: str
    phase: str
    detail: str
    table_path: str
    synced: bool
    storage: Mapping[str, Any]
    config: Mapping[str, Any]
    write_mode: str = ""

    @staticmethod
    def of(response: dict[str, Any]) -> TableflowTopic:
        """Parse a response."""
        spec, status = response["spec"], response["status"]
        catalogs = status.get("catalog_sync_statuses") or []
        failing = [f"{one['format']}: {one['error_message']}" for one in status.get("failing_table_formats") or ()]
        return TableflowTopic(
            name=spec["display_name"],
            phase="SUSPENDED" if spec.get("suspended") else status["phase"],
            detail=shortened("\n".join([*filter(None, [status.get("error_message")]), *failing])),
            table_path=spec["storage"].get("table_path") or "",
            synced=bool(catalogs) and all(catalog.get("sync_status") == "SYNCED" for catalog in catalogs),
            storage=spec["storage"],
            config=spec.get("config") or {},
            write_mode=status.get("write_mode") or "",
        )


@dataclass(frozen=True)
class TableflowTopics:
    """The topics of one cluster that Tableflow maintains as tables. The client is that of Tableflow."""

    client: ApiClient
    environment_id: str
    cluster_id: str

    def list(self) -> list[TableflowTopic]:
        """Return the topics that are visible to the key."""
        return list(self.client.items("/tableflow/v1/tableflow-topics", TableflowTopic.of, _of(self)))

    def find(self, name: str) -> TableflowTopic | None:
        """Return the state of a topic; None if Tableflow is off for it."""
        path = f"/tableflow/v1/tableflow-topics/{quote(name, safe='')}"
        return self.client.find(path, TableflowTopic.of, _of(self))

    def create(self, name: str, storage: Mapping[str, str], config: Mapping[str, Any]) -> TableflowTopic:
        """Start to maintain a topic as an Iceberg table. `wait` until it is RUNNING.

        Args:
            name: The topic.
            storage: Kind and settings of the storage, as in the API: `MANAGED`, or `own_bucket(…)`.
            config: Settings as in the API, for example `retention_ms` and `error_handling`; durations are strings of
                milliseconds.
        """
        spec = {
            "display_name": name,
            **_references(self),
            "storage": dict(storage),
            "table_formats": ["ICEBERG"],
            "config": dict(config),
        }
        return self.client.send("POST", "/tableflow/v1/tableflow-topics", TableflowTopic.of, body={"spec": spec})

    def change(self, name: str, config: dict[str, Any]) -> TableflowTopic:
        """Change the settings in `config` and keep the others."""
        spec = {**_references(self), "config": config}
        path = f"/tableflow/v1/tableflow-topics/{quote(name, safe='')}"
        return self.client.send("PATCH", path, TableflowTopic.of, body={"spec": spec})

    def delete(self, name: str) -> None:
        """Turn Tableflow off for a topic. Its files and table stay; more files may be written for a while."""
        self.client.delete(f"/tableflow/v1/tableflow-topics/{quote(name, safe='')}", _of(self))


def glue(provider_integration_id: str) -> dict[str, str]:
    """Return the catalog of AWS Glue, which the integration with its account opens."""
    return {"kind": "AwsGlue", "provider_integration_id": provider_integration_id}


def own_bucket(bucket: str, provider_integration_id: str) -> dict[str, str]:
    """Return the storage in a bucket, which the integration with its AWS account opens."""
    return {"kind": "ByobAws", "bucket_name": bucket, "provider_integration_id": provider_integration_id}


def _references(topics: TableflowTopics | CatalogIntegrations) -> dict[str, dict[str, str]]:
    return {"environment": {"id": topics.environment_id}, "kafka_cluster": {"id": topics.cluster_id}}


def _of(topics: TableflowTopics | CatalogIntegrations) -> dict[str, str]:
    return {"environment": topics.environment_id, "spec.kafka_cluster": topics.cluster_id}
