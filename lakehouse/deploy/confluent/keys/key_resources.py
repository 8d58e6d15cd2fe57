"""The API keys of a deployment in Confluent Cloud, and the secrets that they are kept in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lakehouse.deploy.confluent.keys.stored_api_keys import (
    ApiKeyResource,
    CatalogKeyResource,
    FlinkKeyResource,
    KafkaKeyResource,
    ManagerKeyResource,
    RegistryKeyResource,
    TableflowKeyResource,
)
from lakehouse.deploy.confluent.rotation_key import RotationKeyResource
from lakehouse.deploy.confluent.topics.declared_topics import DeclaredTopics
from lakehouse.deploy.names import ROTATION

if TYPE_CHECKING:
    from lakehouse.deploy.confluent.confluent_resources import ConfluentResources

KAFKA_ACCOUNTS = ("app_manager", "app_consumer", "app_producer", "spark")
"""Purposes of the accounts that have a key for the Kafka cluster."""


@dataclass(frozen=True)
class KeyResources:
    """The keys of the service accounts by purpose and API."""

    confluent: ConfluentResources
    topics: DeclaredTopics

    @cached_property
    def secrets(self) -> dict[tuple[str, str], str]:
        """The secret of each key, by purpose of the account and API (the kickstarter's layout)."""
        paths = {(purpose, "kafka"): f"kafka_cluster/{purpose}/python_client" for purpose in KAFKA_ACCOUNTS}
        paths["schema_registry", "schema_registry"] = "schema_registry_cluster/python_client"
        paths["spark", "schema_registry"] = "schema_registry_cluster/spark/python_client"
        paths["app_manager", "tableflow"] = "tableflow"
        if self.topics.stored_by_confluent:
            paths["spark", "tableflow"] = "tableflow/spark/python_client"
        paths["flink", "flink"] = "flink"
        paths[ROTATION, "cloud"] = ROTATION
        return {
            key: f"{self.confluent.names.confluent_secrets}/{path}"
            for key, path in paths.items()
            if self._is_needed(key[1])
        }

    @cached_property
    def all(self) -> list[ApiKeyResource]:
        """All keys, dependencies first."""
        return [
            self.manager,
            *(self._kafka_key(purpose) for purpose in KAFKA_ACCOUNTS if purpose != "app_manager"),
            self.registry,
            self._registry_key("spark"),
            *([self.tableflow] if self.confluent.has_tableflow else ()),
            *([self._catalog_key] if self.topics.stored_by_confluent else ()),
            *([self.flink] if self.confluent.deployment.flink else ()),
            # The last, with which a rotation replaces the others.
            self.rotation,
        ]

    @cached_property
    def manager(self) -> KafkaKeyResource:
        """The key with which topics and access control lists are created."""
        return self._kafka_key("app_manager", ManagerKeyResource)

    @cached_property
    def registry(self) -> RegistryKeyResource:
        """The key with which subjects are listed."""
        return self._registry_key("schema_registry")

    @cached_property
    def tableflow(self) -> TableflowKeyResource:
        """The key for Tableflow, created only if Tableflow creates any table."""
        return TableflowKeyResource(
            *self.confluent.common,
            account=self.confluent.accounts["app_manager"],
            secret=self.secrets["app_manager", "tableflow"],
            roles=self.confluent.role_bindings["app_manager"],
            cluster=self.confluent.cluster,
        )

    @property
    def _catalog_key(self) -> CatalogKeyResource:
        """The key with which Spark and Dagster read the tables in Confluent's storage."""
        return CatalogKeyResource(
            *self.confluent.common,
            account=self.confluent.accounts["spark"],
            secret=self.secrets["spark", "tableflow"],
            roles=self.confluent.role_bindings["spark"],
            environment=self.confluent.environment,
        )

    @cached_property
    def flink(self) -> FlinkKeyResource:
        """The key for Flink, created only for statements."""
        return FlinkKeyResource(
            *self.confluent.common,
            account=self.confluent.accounts["flink"],
            secret=self.secrets["flink", "flink"],
            roles=self.confluent.role_bindings["flink"],
            environment=self.confluent.environment,
            compute_pool=self.confluent.compute_pool,
        )

    @cached_property
    def rotation(self) -> RotationKeyResource:
        """The key with which keys are replaced."""
        return RotationKeyResource(
            *self.confluent.common,
            account=self.confluent.accounts[ROTATION],
            secret=self.secrets[ROTATION, "cloud"],
            roles=self.confluent.role_bindings[ROTATION],
            recorded=(
                self.confluent.environment,
                self.confluent.cluster,
                self.confluent.registry,
                *self.confluent.compute,
            ),
        )

    def _kafka_key(self, purpose: str, kind: type[KafkaKeyResource] = KafkaKeyResource) -> KafkaKeyResource:
        return kind(
            *self.confluent.common,
            account=self.confluent.accounts[purpose],
            secret=self.secrets[purpose, "kafka"],
            roles=self.confluent.role_bindings.get(purpose),
            cluster=self.confluent.cluster,
        )

    def _registry_key(self, purpose: str) -> RegistryKeyResource:
        return RegistryKeyResource(
            *self.confluent.common,
            account=self.confluent.accounts[purpose],
            secret=self.secrets[purpose, "schema_registry"],
            roles=self.confluent.role_bindings.get(purpose),
            registry=self.confluent.registry,
        )

    def _is_needed(self, api: str) -> bool:
        return {"tableflow": self.confluent.has_tableflow, "flink": bool(self.confluent.deployment.flink)}.get(
            api, True
        )
