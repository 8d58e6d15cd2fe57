"""Tableflow: topics as Iceberg tables in a bucket, catalog integrations, and provider integrations with AWS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from resources.confluent.api_client import shortened
from resources.confluent.collection import Collection, Kind, NamedCollection

MANAGED: Mapping[str, str] = MappingProxyType({"kind": "Managed"})
"""Storage that Confluent manages."""


@dataclass(frozen=True)
class ProviderIntegration:
    """Permission for Confluent to assume a role in an AWS account."""

    id: str
    name: str
    iam_role_arn: str
    """Confluent's role, which assumes ours."""
    external_id: str
    """The external id that Confluent presents."""
    usages: tuple[str, ...]
    """Resources that use the integration."""

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
class ProviderIntegrations(Collection[ProviderIntegration]):
    """The integrations of one environment with AWS. The client is that of Confluent Cloud itself.

    Only one that is not in use can be deleted.
    """

    environment_id: str

    label, kind, path = "provider integration", ProviderIntegration, "/pim/v1/integrations"

    @property
    def query(self) -> Mapping[str, str]:
        return {"environment": self.environment_id}

    def list(self) -> list[ProviderIntegration]:
        def parsed(response: dict[str, Any]) -> ProviderIntegration | None:
            return ProviderIntegration.of(response) if response["provider"].upper() == "AWS" else None

        integrations = self.client.items(self.path, parsed, self.query)
        return [integration for integration in integrations if integration]

    def create(self, name: str, customer_role_arn: str) -> ProviderIntegration:
        """Create a provider integration. It is immutable: another role needs another integration."""
        return self._create(
            {
                "display_name": name,
                "provider": "aws",
                "config": {"kind": "AwsIntegrationConfig", "customer_iam_role_arn": customer_role_arn},
                "environment": {"id": self.environment_id},
            }
        )


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
class OfTableflow(Collection[Kind]):
    """The objects of one cluster in Tableflow, whose client has a Tableflow key."""

    environment_id: str
    cluster_id: str

    @property
    def query(self) -> Mapping[str, str]:
        return {"environment": self.environment_id, "spec.kafka_cluster": self.cluster_id}

    def _spec(self, **settings: Any) -> dict[str, Any]:
        references = {"environment": {"id": self.environment_id}, "kafka_cluster": {"id": self.cluster_id}}
        return {"spec": {**settings, **references}}

    def change(self, id_: str, config: Mapping[str, Any]) -> Kind:
        """Change the settings in `config`, which has the kind of an integration as well, and keep the others."""
        return self.client.send("PATCH", self._one(id_), self.kind.of, body=self._spec(config=dict(config)))


class CatalogIntegrations(OfTableflow[CatalogIntegration]):
    """The catalog integrations of one cluster. The tables that a deleted one has registered stay in the catalog."""

    label, kind, path = "catalog integration", CatalogIntegration, "/tableflow/v1/catalog-integrations"

    def create(self, name: str, config: Mapping[str, str]) -> CatalogIntegration:
        """Create an integration. Tables are in a namespace with the cluster's id as its name, unless `config` has one.

        Args:
            name: Display name.
            config: Kind and settings of the catalog, as in the API: `glue(…)`, or with `kind: Snowflake`.

        Raises:
            Forbidden: The key's owner has no role on the provider integration yet.
        """
        return self._create(self._spec(display_name=name, config=dict(config)))


@dataclass(frozen=True)
class TableflowTopic:
    """A topic that Tableflow maintains as a table."""

    name: str
    phase: str
    """As in the API; or SUSPENDED, which Tableflow does by itself at a record that it cannot process."""
    detail: str
    """The reason of a failure, of the table or of each failing format, without credentials."""
    table_path: str
    """An s3:// URI; empty at first."""
    synced: bool
    """Whether the table is registered in all catalogs."""
    storage: Mapping[str, Any]
    """Kind and settings of the storage, as in the API."""
    config: Mapping[str, Any]
    """The settings, as in the API."""
    write_mode: str = ""
    """APPEND or UPSERT, as the topic's `cleanup.policy` implies; empty before Tableflow determines it."""

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


class TableflowTopics(OfTableflow[TableflowTopic], NamedCollection[TableflowTopic]):
    """The topics of one cluster that Tableflow maintains as tables; `find` returns None if Tableflow is off.

    Deleting one turns Tableflow off. Its files and table stay; more files may be written for a while.
    """

    kind, path = TableflowTopic, "/tableflow/v1/tableflow-topics"

    def create(self, name: str, storage: Mapping[str, str], config: Mapping[str, Any]) -> TableflowTopic:
        """Start to maintain a topic as an Iceberg table. `wait` until it is RUNNING.

        Args:
            name: The topic.
            storage: Kind and settings of the storage, as in the API: `MANAGED`, or `own_bucket(…)`.
            config: Settings as in the API, for example `retention_ms` and `error_handling`; durations are strings of
                milliseconds.
        """
        settings = {"storage": dict(storage), "table_formats": ["ICEBERG"], "config": dict(config)}
        return self._create(self._spec(display_name=name, **settings))


def glue(provider_integration_id: str) -> dict[str, str]:
    """Return the catalog of AWS Glue, which the integration with its account opens."""
    return {"kind": "AwsGlue", "provider_integration_id": provider_integration_id}


def own_bucket(bucket: str, provider_integration_id: str) -> dict[str, str]:
    """Return the storage in a bucket, which the integration with its AWS account opens."""
    return {"kind": "ByobAws", "bucket_name": bucket, "provider_integration_id": provider_integration_id}
