"""Tableflow: topics as Iceberg tables in a bucket, the catalog they are told to, and the way into the AWS account."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from resources.confluent.plane import Plane, the_one


@dataclass(frozen=True)
class ProviderIntegration:
    """That Confluent may take on a role in an AWS account: as `iam_role_arn`, showing `external_id`."""

    id: str
    name: str
    customer_role_arn: str
    iam_role_arn: str
    external_id: str
    usages: tuple[str, ...]

    @staticmethod
    def of(answer: dict[str, Any]) -> ProviderIntegration:
        """Read an answer."""
        config = answer["config"]
        return ProviderIntegration(
            id=answer["id"],
            name=answer["display_name"],
            customer_role_arn=config["customer_iam_role_arn"],
            iam_role_arn=config["iam_role_arn"],
            external_id=config["external_id"],
            usages=tuple(answer.get("usages") or ()),
        )


@dataclass(frozen=True)
class ProviderIntegrations:
    """The provider integrations of one environment. The plane is the cloud's."""

    plane: Plane
    environment_id: str

    def list(self) -> list[ProviderIntegration]:
        """All of AWS."""
        answers = self.plane.items("/pim/v1/integrations", {"environment": self.environment_id})
        return [ProviderIntegration.of(each) for each in answers if each["provider"].upper() == "AWS"]

    def find(self, name: str) -> ProviderIntegration | None:
        """By display name.

        Raises: UnclearState when several have it.
        """
        return the_one(f"provider integration '{name}'", [each for each in self.list() if each.name == name])

    def create(self, name: str, customer_role_arn: str) -> ProviderIntegration:
        """Make one. It cannot be changed: another role means another one, with another external id."""
        body = {
            "display_name": name,
            "provider": "aws",
            "config": {"kind": "AwsIntegrationConfig", "customer_iam_role_arn": customer_role_arn},
            "environment": {"id": self.environment_id},
        }
        return ProviderIntegration.of(self.plane.call("POST", "/pim/v1/integrations", body=body))

    def delete(self, integration_id: str) -> None:
        """Delete it, when nothing uses it."""
        self.plane.delete(f"/pim/v1/integrations/{integration_id}", {"environment": self.environment_id})


@dataclass(frozen=True)
class CatalogIntegration:
    """That Tableflow tells a catalog of its tables. It is PENDING until the first table has rows, then CONNECTED."""

    id: str
    name: str
    phase: str
    detail: str
    provider_integration_id: str

    @staticmethod
    def of(answer: dict[str, Any]) -> CatalogIntegration:
        """Read an answer."""
        spec, status = answer["spec"], answer["status"]
        return CatalogIntegration(
            id=answer["id"],
            name=spec["display_name"],
            phase=status["phase"],
            detail=status.get("error_message") or "",
            provider_integration_id=spec["config"].get("provider_integration_id") or "",
        )


@dataclass(frozen=True)
class CatalogIntegrations:
    """The catalog integrations of one cluster. The plane is Tableflow's."""

    plane: Plane
    environment_id: str
    cluster_id: str

    def find(self, name: str) -> CatalogIntegration | None:
        """By display name.

        Raises: UnclearState when several have it.
        """
        answers = self.plane.items("/tableflow/v1/catalog-integrations", _of(self))
        integrations = [CatalogIntegration.of(answer) for answer in answers]
        return the_one(f"catalog integration '{name}'", [each for each in integrations if each.name == name])

    def get(self, integration_id: str) -> CatalogIntegration | None:
        """By id; None when it is gone."""
        answer = self.plane.find(f"/tableflow/v1/catalog-integrations/{integration_id}", _of(self))
        return answer and CatalogIntegration.of(answer)

    def create_glue(self, name: str, provider_integration_id: str) -> CatalogIntegration:
        """Tell AWS Glue, in a database named after the cluster's id.

        Raises: Refused as long as the key's owner has no right to the provider integration.
        """
        spec = {
            "display_name": name,
            "environment": {"id": self.environment_id},
            "kafka_cluster": {"id": self.cluster_id},
            "config": {"kind": "AwsGlue", "provider_integration_id": provider_integration_id},
        }
        answer = self.plane.call("POST", "/tableflow/v1/catalog-integrations", body={"spec": spec})
        return CatalogIntegration.of(answer)

    def delete(self, integration_id: str) -> None:
        """Stop telling the catalog. What it was told stays in it."""
        self.plane.delete(f"/tableflow/v1/catalog-integrations/{integration_id}", _of(self))


@dataclass(frozen=True)
class TableflowTopic:
    """A topic that Tableflow keeps as a table. `table_path` is an s3:// URI, empty at first; `synced` says that every
    catalog was told."""

    name: str
    phase: str
    detail: str
    table_path: str
    synced: bool
    bucket: str
    provider_integration_id: str
    config: Mapping[str, Any]
    """As the API's."""

    @staticmethod
    def of(answer: dict[str, Any]) -> TableflowTopic:
        """Read an answer."""
        spec, status = answer["spec"], answer["status"]
        catalogs = status.get("catalog_sync_statuses") or []
        return TableflowTopic(
            name=spec["display_name"],
            phase=status["phase"],
            detail=status.get("error_message") or "",
            table_path=spec["storage"].get("table_path") or "",
            synced=bool(catalogs) and all(each.get("sync_status") == "SYNCED" for each in catalogs),
            bucket=spec["storage"].get("bucket_name") or "",
            provider_integration_id=spec["storage"].get("provider_integration_id") or "",
            config=spec.get("config") or {},
        )


@dataclass(frozen=True)
class TableflowTopics:
    """The topics of one cluster that Tableflow keeps as tables. The plane is Tableflow's."""

    plane: Plane
    environment_id: str
    cluster_id: str

    def list(self) -> list[TableflowTopic]:
        """All that the key may see."""
        answers = self.plane.items("/tableflow/v1/tableflow-topics", _of(self))
        return [TableflowTopic.of(answer) for answer in answers]

    def find(self, name: str) -> TableflowTopic | None:
        """By the topic's name."""
        answer = self.plane.find(f"/tableflow/v1/tableflow-topics/{quote(name, safe='')}", _of(self))
        return answer and TableflowTopic.of(answer)

    def create(self, name: str, bucket: str, provider_integration_id: str, config: dict[str, Any]) -> TableflowTopic:
        """Begin to keep a topic as an Iceberg table in our bucket: `wait` for RUNNING.

        Parameters: `config` as the API's, for example `retention_ms` and `error_handling`; times are strings of
        milliseconds.
        """
        spec = {
            "display_name": name,
            "environment": {"id": self.environment_id},
            "kafka_cluster": {"id": self.cluster_id},
            "storage": {
                "kind": "ByobAws",
                "bucket_name": bucket,
                "provider_integration_id": provider_integration_id,
            },
            "table_formats": ["ICEBERG"],
            "config": config,
        }
        return TableflowTopic.of(self.plane.call("POST", "/tableflow/v1/tableflow-topics", body={"spec": spec}))

    def change(self, name: str, config: dict[str, Any]) -> TableflowTopic:
        """Set what is in `config`, and leave the rest of its settings."""
        spec = {
            "environment": {"id": self.environment_id},
            "kafka_cluster": {"id": self.cluster_id},
            "config": config,
        }
        path = f"/tableflow/v1/tableflow-topics/{quote(name, safe='')}"
        return TableflowTopic.of(self.plane.call("PATCH", path, body={"spec": spec}))

    def delete(self, name: str) -> None:
        """Stop keeping it. Files and the catalog's table stay, and for a while more may be written."""
        self.plane.delete(f"/tableflow/v1/tableflow-topics/{quote(name, safe='')}", _of(self))


def _of(topics: TableflowTopics | CatalogIntegrations) -> dict[str, str]:
    return {"environment": topics.environment_id, "spec.kafka_cluster": topics.cluster_id}
