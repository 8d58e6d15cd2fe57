"""States of connectors, Tableflow and the Kafka cluster in Confluent Cloud, as checks and as metadata of assets.

They exist only if the environment configures `confluent_cloud`. A state that cannot be read fails the check, but never
fails a run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import dagster as dg

from assets.entry import hourly
from assets.factories import CheckDefinition, dagster_failures
from lakehouse.config.checks import TABLEFLOW
from lakehouse.config.discovery import environment_name
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import LakehouseError, is_transient
from lakehouse.core.text import escaped
from resources.confluent.clusters import Cluster, Connector
from resources.confluent.confluent_cloud import ConfluentCloud
from resources.confluent.tableflow import TableflowTopic

RESOURCE = "confluent_cloud"
CONNECTOR, PROVISIONED = "connector", "provisioned"
CLUSTER = dg.AssetKey(["confluent", "kafka_cluster"])

UNFINISHED = frozenset({"PAUSED", "PENDING", "PROVISIONING"})
"""Phases that a user chose or that end without intervention."""

CREATE = "create it with `lakehouse deploy create`"

T = TypeVar("T", Connector, TableflowTopic, Cluster)


@dataclass(frozen=True)
class ConfluentState:
    """The state of one object in Confluent Cloud."""

    kind: str
    """The kind of the object, which prefixes the names of its metadata."""
    phase: str
    """Confluent's name of the phase, or `MISSING` or `UNKNOWN`."""
    problem: str = ""
    """The problem, its effect and the remedy; empty without a problem."""
    lasts: bool = True
    """Whether the problem persists until a user solves it."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Further metadata by name."""

    @property
    def metadata(self) -> dict[str, str]:
        """The state as metadata for Dagster."""
        parts = {"state": self.phase, "problem": self.problem, **self.details}
        return {f"{self.kind}_{name}": text for name, text in parts.items() if text}

    def result(self, asset: dg.AssetKey, check: str) -> dg.AssetCheckResult:
        """Return the state as the result of a check. A problem that may pass without intervention is a warning."""
        return dg.AssetCheckResult(
            check_name=check,
            asset_key=asset,
            passed=not self.problem,
            severity=dg.AssetCheckSeverity.ERROR if self.lasts else dg.AssetCheckSeverity.WARN,
            description=escaped(self.problem) or self.phase,
            metadata=self.metadata,
        )


def needed(config: Config) -> frozenset[str]:
    """Return the key of the resource; empty if the selected environment does not configure it."""
    return frozenset({RESOURCE}) & config.environments.get(environment_name(), {}).keys()


def checks(config: Config, entry: Topic) -> dict[str, CheckDefinition]:
    """Return the checks of an entry, by the first part of the key of their asset."""
    needs = needed(config)
    if not needs:
        return {}
    by_system = {}
    if name := entry.source.connector(entry.name):
        description = f"The managed connector '{name}', which produces the topic's records, and its tasks run."
        by_system["kafka"] = _standing(
            entry, "kafka", CONNECTOR, description, lambda cloud: connector_state(cloud, entry)
        )
    if not entry.is_ingested:
        description = "Tableflow runs for the topic, so that new records become rows."
        by_system["iceberg"] = _standing(
            entry, "iceberg", TABLEFLOW, description, lambda cloud: tableflow_state(cloud, entry)
        )
    return by_system


def _standing(
    entry: Topic, system: str, check: str, description: str, read: Callable[[ConfluentCloud], ConfluentState]
) -> CheckDefinition:
    def run(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        return read(context.resources.confluent_cloud).result(dg.AssetKey([entry.name, system]), check)

    return CheckDefinition(check, description, frozenset({RESOURCE}), run, by_clock=True)


def cluster_definitions(config: Config) -> dg.Definitions:
    """Return an asset for the Kafka cluster and a check of its state; none if `confluent_cloud` is not configured."""
    if not needed(config):
        return dg.Definitions()
    spec = dg.AssetSpec(
        CLUSTER,
        description="The Kafka cluster in Confluent Cloud.",
        group_name=CLUSTER.path[0],
        kinds={"kafka", "confluent"},
    )

    @dg.asset_check(
        asset=spec.key,
        name=PROVISIONED,
        automation_condition=hourly(),
        description="The Kafka cluster is provisioned.",
    )
    def cluster_is_provisioned(
        context: dg.AssetCheckExecutionContext, confluent_cloud: ConfluentCloud
    ) -> dg.AssetCheckResult:
        with dagster_failures():
            return cluster_state(confluent_cloud).result(CLUSTER, PROVISIONED)

    return dg.Definitions(assets=[spec], asset_checks=[cluster_is_provisioned])


def connector_state(cloud: ConfluentCloud, entry: Topic) -> ConfluentState:
    """Return the state of the managed connector that fills the topic of an entry."""
    name = entry.source.connector(entry.name)
    subject = f"Connector '{name}', which produces to topic '{entry.topic}',"

    def judge(connector: Connector) -> ConfluentState:
        tasks = ", ".join(f"{task.id}: {task.phase}" for task in connector.tasks)
        failed = [task for task in connector.tasks if task.phase == "FAILED"]
        problem = (
            f"{subject} is {connector.phase}{_reason(entry, connector.failures)}. New records may not arrive; existing "
            f"records stay in the topic. Remove the cause, and resume or restart it (`confluent connect cluster "
            f"resume`, or the Cloud Console)"
        )
        return ConfluentState(
            "connector",
            connector.phase,
            "" if connector.phase == "RUNNING" and not failed else problem,
            bool(failed) or connector.phase not in UNFINISHED,
            {"name": name, "tasks": tasks},
        )

    missing = (
        f"{subject} does not exist or is not visible to the key. No new records arrive. If it was deleted, {CREATE}"
    )
    return _state("connector", subject, lambda: cloud.connector(name), missing, judge)


def tableflow_state(cloud: ConfluentCloud, entry: Topic) -> ConfluentState:
    """Return the state of Tableflow for the topic of an entry."""
    subject = f"Tableflow of topic '{entry.topic}'"

    def judge(table: TableflowTopic) -> ConfluentState:
        problem = (
            f"{subject} is {table.phase}{_reason(entry, [table.detail])}. New records may not become rows; the table "
            f"is unchanged. Remove the cause, such as an invalid record, and resume Tableflow in the Cloud Console"
        )
        return ConfluentState(
            "tableflow",
            table.phase,
            "" if table.phase == "RUNNING" and not table.detail else problem,
            table.phase not in UNFINISHED,
            {"error": entry.visible(table.detail), "table_path": table.table_path},
        )

    missing = f"{subject} is off or not visible to the key. New records do not become rows. If it is off, {CREATE}"
    return _state("tableflow", subject, lambda: cloud.tableflow_topic(entry.topic), missing, judge)


def cluster_state(cloud: ConfluentCloud) -> ConfluentState:
    """Return the state of the Kafka cluster."""
    subject = "The Kafka cluster in Confluent Cloud"

    def judge(cluster: Cluster) -> ConfluentState:
        problem = (
            f"{subject}, {cluster.id}, is {cluster.phase}. Topics may be unreachable; tables are unchanged. Check the "
            f"Cloud Console, or https://status.confluent.cloud"
        )
        return ConfluentState(
            "cluster",
            cluster.phase,
            "" if cluster.phase == "PROVISIONED" else problem,
            cluster.phase not in UNFINISHED,
            {"id": cluster.id, "name": cluster.name},
        )

    missing = (
        f"{subject} does not exist or is not visible to the key. Nothing was changed. Correct `confluent_cloud` of "
        f"the environment in lakehouse.yaml, or the roles of the key's owner"
    )
    return _state("cluster", subject, cloud.kafka_cluster, missing, judge)


def _state(
    kind: str, subject: str, read: Callable[[], T | None], missing: str, judge: Callable[[T], ConfluentState]
) -> ConfluentState:
    """Read an object and return its state, `MISSING` or `UNKNOWN` included."""
    try:
        current = read()
    except LakehouseError as error:
        return ConfluentState(kind, "UNKNOWN", f"{subject} is in an unknown state. {error}", not is_transient(error))
    return ConfluentState(kind, "MISSING", missing) if current is None else judge(current)


def _reason(entry: Topic, reasons: list[str]) -> str:
    text = entry.visible("; ".join(filter(None, reasons)))
    return f" ({text})" if text else ""
