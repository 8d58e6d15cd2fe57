"""Tableflow: the way into the AWS account, the catalog that is told, and the topics that are kept as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lakehouse.core.errors import LakehouseError
from lakehouse.core.polling import REAL, Clock
from lakehouse.deploy.confluent.access import GRANTED_SECONDS
from lakehouse.deploy.confluent.foundation import LISTED_SECONDS
from lakehouse.deploy.confluent.streams import REGISTRY_KEY
from lakehouse.deploy.names import Names
from lakehouse.deploy.step import Found, Step
from resources.confluent.tableflow import (
    CatalogIntegration,
    CatalogIntegrations,
    ProviderIntegration,
    TableflowTopic,
    TableflowTopics,
)
from resources.confluent.waiting import wait, wait_gone, wait_there, when_allowed
from resources.confluent_cloud import ConfluentCloud

TABLE_SECONDS = 60 * 60
TABLE_GONE_SECONDS = 30 * 60
TABLEFLOW_KEY = "confluent/key/app_manager/tableflow"
INTEGRATION = "confluent/provider_integration"
NAMING = "metadata_column_naming_scheme"
BEGUN = frozenset({"PENDING", "CONNECTED", "RUNNING"})


@dataclass(frozen=True)
class ProviderIntegrationStep(Step):
    """That Confluent may take on a role in the AWS account. The role is made afterwards: it trusts what this gives."""

    cloud: ConfluentCloud
    names: Names
    clock: Clock = REAL
    name: ClassVar[str] = INTEGRATION
    needs: ClassVar[tuple[str, ...]] = ("confluent/environment",)

    @property
    def what(self) -> str:
        return f"provider integration '{self.names.confluent}'"

    def find(self, found: Found) -> ProviderIntegration | None:
        return self.cloud.provider_integrations(found["confluent/environment"].id).find(self.names.confluent)

    def create(self, found: Found) -> ProviderIntegration:
        integrations = self.cloud.provider_integrations(found["confluent/environment"].id)
        return integrations.create(self.names.confluent, self.names.role_arn("confluent"))

    def settle(self, found: Found, it: ProviderIntegration) -> ProviderIntegration:
        return wait_there(self.what, lambda: self.find(found), deadline_seconds=LISTED_SECONDS, clock=self.clock)

    def delete(self, found: Found, it: ProviderIntegration) -> None:
        def used() -> ProviderIntegration | None:
            now = self.find(found)
            return now if now and now.usages else None

        # Tableflow goes on for a while behind its answer.
        wait_gone(f"what uses {self.what}", used, deadline_seconds=TABLE_GONE_SECONDS, clock=self.clock)
        self.cloud.provider_integrations(found["confluent/environment"].id).delete(it.id)
        wait_gone(self.what, lambda: self.find(found), deadline_seconds=LISTED_SECONDS, clock=self.clock)


@dataclass(frozen=True)
class CatalogIntegrationStep(Step):
    """That Tableflow tells AWS Glue of its tables. It stays PENDING until there is one, so nothing waits for it."""

    cloud: ConfluentCloud
    names: Names
    clock: Clock = REAL
    name: ClassVar[str] = "confluent/catalog_integration"
    needs: ClassVar[tuple[str, ...]] = (
        "confluent/cluster",
        TABLEFLOW_KEY,
        INTEGRATION,
        "confluent/roles/app_manager/provider_integration",
        "aws/role/confluent",
        "aws/bucket",
    )

    @property
    def what(self) -> str:
        return f"catalog integration '{self.names.confluent}' with AWS Glue"

    @property
    def lives_in(self) -> tuple[str, ...]:
        return ("confluent/cluster", TABLEFLOW_KEY)

    def find(self, found: Found) -> CatalogIntegration | None:
        return self._catalogs(found).find(self.names.confluent)

    def create(self, found: Found) -> CatalogIntegration:
        def make() -> CatalogIntegration:
            return self._catalogs(found).create_glue(self.names.confluent, found[INTEGRATION].id)

        return when_allowed(self.what, make, deadline_seconds=GRANTED_SECONDS, clock=self.clock)

    def settle(self, found: Found, it: CatalogIntegration) -> CatalogIntegration:
        return wait(self.what, lambda: self.find(found), BEGUN, deadline_seconds=LISTED_SECONDS, clock=self.clock)

    def differences(self, found: Found, it: CatalogIntegration) -> list[str]:
        uses, right = it.provider_integration_id, found[INTEGRATION].id
        return [] if uses == right else [f"it goes through provider integration '{uses}' instead of '{right}'"]

    def change(self, found: Found, it: CatalogIntegration) -> CatalogIntegration:
        # None can be moved to another one; Glue keeps what it was told.
        self.delete(found, it)
        return self.create(found)

    def delete(self, found: Found, it: CatalogIntegration) -> None:
        catalogs = self._catalogs(found)
        catalogs.delete(it.id)
        wait_gone(self.what, lambda: catalogs.get(it.id), deadline_seconds=LISTED_SECONDS, clock=self.clock)

    def _catalogs(self, found: Found) -> CatalogIntegrations:
        return self.cloud.catalog_integrations(found["confluent/cluster"], found[TABLEFLOW_KEY])


@dataclass(frozen=True)
class TableflowTopicStep(Step):
    """A topic that Tableflow keeps as an Iceberg table in the bucket. Files and Glue's table stay when it goes."""

    cloud: ConfluentCloud
    names: Names
    entry: str
    topic: str
    subject: str
    """Where its schema is, without which there is no table."""
    config: Mapping[str, Any]
    """As Tableflow's API has it."""
    after: tuple[str, ...]
    """The steps that fill it with records. Without any, nobody knows when there will be a table."""
    clock: Clock = REAL

    @property
    def name(self) -> str:
        return f"confluent/tableflow/{self.entry}"

    @property
    def what(self) -> str:
        return f"Tableflow of topic '{self.topic}'"

    @property
    def needs(self) -> tuple[str, ...]:
        return (
            "confluent/cluster",
            "confluent/schema_registry",
            f"confluent/topic/{self.entry}",
            "confluent/catalog_integration",
            INTEGRATION,
            TABLEFLOW_KEY,
            REGISTRY_KEY,
            "aws/bucket",
            *self.after,
        )

    @property
    def lives_in(self) -> tuple[str, ...]:
        return ("confluent/cluster", TABLEFLOW_KEY)

    def find(self, found: Found) -> TableflowTopic | None:
        return self._tables(found).find(self.topic)

    def create(self, found: Found) -> TableflowTopic:
        if self.subject not in self.cloud.subjects(found["confluent/schema_registry"], found[REGISTRY_KEY]).list():
            raise LakehouseError(
                f"Topic '{self.topic}' has no schema yet (subject '{self.subject}'), so Tableflow cannot make a table "
                f"of it. Nothing was changed. Let its producer write a first record, and run it again"
            )

        def make() -> TableflowTopic:
            return self._tables(found).create(self.topic, self.names.bucket, found[INTEGRATION].id, dict(self.config))

        return when_allowed(self.what, make, deadline_seconds=GRANTED_SECONDS, clock=self.clock)

    def settle(self, found: Found, it: TableflowTopic) -> TableflowTopic:
        def synced() -> TableflowTopic | None:
            now = self.find(found)
            return now if now and now.synced else None

        ready = {"RUNNING"} if self.after else BEGUN
        now = wait(self.what, lambda: self.find(found), ready, deadline_seconds=TABLE_SECONDS, clock=self.clock)
        if not self.after:
            return now
        return wait_there(f"Glue's table of {self.what}", synced, deadline_seconds=TABLE_SECONDS, clock=self.clock)

    def differences(self, found: Found, it: TableflowTopic) -> list[str]:
        return [
            f"{setting} is {found_now!r} instead of {value!r}"
            for setting, (found_now, value) in {**self._fixed(found, it), **self._settings(it)}.items()
        ]

    def change(self, found: Found, it: TableflowTopic) -> TableflowTopic:
        """Raises: LakehouseError when what differs cannot be changed of a table that is there."""
        if fixed := self._fixed(found, it):
            raise LakehouseError(
                f"{self.what} differs in {', '.join(fixed)}, which Confluent sets once for a table. It was left as it "
                f"is. Set it right in lakehouse.yaml; or turn Tableflow off for the topic, by hand, and run this "
                f"again: a new table is then made of what the topic still holds"
            )
        changed = {setting: value for setting, (_, value) in self._settings(it).items()}
        return self._tables(found).change(self.topic, changed)

    def _fixed(self, found: Found, it: TableflowTopic) -> dict[str, tuple[Any, Any]]:
        """What differs and cannot be changed: what it is, and what it should be."""
        now = {"bucket_name": it.bucket, "provider_integration_id": it.provider_integration_id}
        now[NAMING] = it.config.get(NAMING, "DEFAULT")
        right = {"bucket_name": self.names.bucket, "provider_integration_id": found[INTEGRATION].id}
        right[NAMING] = self.config[NAMING]
        return {setting: (now[setting], right[setting]) for setting in right if now[setting] != right[setting]}

    def _settings(self, it: TableflowTopic) -> dict[str, tuple[Any, Any]]:
        """As `_fixed`, of what can be changed. Confluent adds defaults to what it is told of errors."""
        return {
            setting: (it.config.get(setting), value)
            for setting, value in self.config.items()
            if setting != NAMING and not _comprises(it.config.get(setting), value)
        }

    def delete(self, found: Found, it: TableflowTopic) -> None:
        self._tables(found).delete(self.topic)
        wait_gone(self.what, lambda: self.find(found), deadline_seconds=TABLE_GONE_SECONDS, clock=self.clock)

    def _tables(self, found: Found) -> TableflowTopics:
        return self.cloud.tableflow_topics(found["confluent/cluster"], found[TABLEFLOW_KEY])


def _comprises(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(found.get(name) == value for name, value in wanted.items())
    return found == wanted
