"""Make the calls of the running lakehouse with each IAM role of the deployment, and report each permission."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakehouse.config.loader import Config
from lakehouse.core.errors import ConfigError, LakehouseError, UnclearState
from lakehouse.deploy.aws.aws_service import DENIED, AwsError
from lakehouse.deploy.aws.table_locations import has_tableflow
from lakehouse.deploy.cloud_credentials import CloudCredentials
from lakehouse.deploy.rotation_credentials import RotationCredentials
from lakehouse.deploy.verification.canary import Canary, remove
from lakehouse.deploy.verification.deployment_role import CANARY, DeploymentRole, Step
from lakehouse.deploy.verification.permission_probe import Finding, Probe
from lakehouse.deploy.verification.rotation_identities import RotationIdentities
from lakehouse.pipeline.table_location import TABLEFLOW_CATALOG, catalog_of, table_of

SYSTEMS = ("kafka", "schema_registry", "catalog", "glue", "snowflake", "athena", TABLEFLOW_CATALOG)
"""The systems of the environment that a verification calls."""
MAINTENANCE = "maintenance"


@dataclass(frozen=True)
class Verification:
    """The verification of one deployment."""

    config: Config
    credentials: CloudCredentials
    clients: Any
    """Has SYSTEMS as attributes, `athena` only if the environment has it."""

    def run(self) -> Iterator[Finding]:
        """Yield a finding for each permission. The canary table is removed at the end, also after a failure.

        Raises:
            ConfigError: A topic has the canary table's name.
            UnclearState: Another table has its name.
            LakehouseError: AWS STS does not answer.
        """
        if CANARY in {topic.table for topic in self.config.topics.values()}:
            raise ConfigError(
                f"A topic of lakehouse.yaml has the table '{CANARY}', which a verification would remove. Nothing was "
                f"verified. Give the topic another `table`"
            )
        files: list[str] = []
        roles = {purpose: self._role(purpose, files) for purpose in self._purposes}
        refusals = {purpose: reason for purpose, role in roles.items() if (reason := self._refusal(role))}
        # The caller's own credentials remove what maintenance may not, if the caller can write anything at all.
        removers = () if "writer" in refusals else (roles[MAINTENANCE], replace(roles[MAINTENANCE], has_role=False))
        canary = Canary(self.config.namespace, self.clients)
        # What an interrupted verification left. Refusals have their lines below.
        _clean(canary, removers)
        try:
            for purpose, role in roles.items():
                if purpose in refusals:
                    yield Finding(role.name, "all its permissions", "unchecked", refusals[purpose])
                elif purpose == "writer":
                    yield from self._writer(role, canary)
                elif purpose == "reader":
                    yield from self._reader(role, canary)
                elif purpose == MAINTENANCE:
                    yield from _run(role.maintenance())
                else:
                    yield from _run(role.rotation(self._rotated_secrets))
                    yield from _run(RotationIdentities(self.config, self._rotation_credentials).steps())
        finally:
            problems = _clean(canary, removers)
        for problem in problems:
            yield Finding(
                roles[MAINTENANCE].name, f"removal of {canary.ref}", "failed", f"{problem}. {canary.leftovers}"
            )
        if self._has_tableflow:
            reason = "only Confluent assumes it. `lakehouse deploy plan` reports its catalog integration"
            yield Finding(self.credentials.names.role("confluent"), "all its permissions", "unchecked", reason)

    @property
    def _purposes(self) -> tuple[str, ...]:
        # Maintenance deletes a file that the others read.
        rotation = ("rotation",) if self.credentials.deployment.rotation_principals else ()
        return ("writer", "reader", MAINTENANCE, *rotation)

    @property
    def _has_tableflow(self) -> bool:
        # Glue and the bucket have no table that is in Confluent's storage.
        return has_tableflow(self.config) and self.credentials.deployment.tableflow.storage == "own_bucket"

    @property
    def _rotated_secrets(self) -> tuple[str, ...]:
        return tuple(name for name in self.credentials.names.secrets if name not in self._unused_secrets)

    @property
    def _unused_secrets(self) -> set[str]:
        """The secrets of the layout that this deployment and this environment do not need."""
        has_tables, deployment = has_tableflow(self.config), self.credentials.deployment
        reads_state = "confluent_cloud" in self.config.environments[self.credentials.environment]
        is_needed = {
            "flink": bool(deployment.flink),
            "tableflow": has_tables,
            "tableflow/spark/python_client": has_tables and deployment.tableflow.storage == "confluent",
            "operator": reads_state,
            "operator/tableflow": reads_state,
        }
        return {
            f"{self.credentials.names.confluent_secrets}/{path}" for path, needed in is_needed.items() if not needed
        }

    @property
    def _rotation_credentials(self) -> RotationCredentials:
        credentials = self.credentials
        return RotationCredentials(
            credentials.deployment, confluent_url=credentials.confluent_url, environment=credentials.environment
        )

    def _role(self, purpose: str, files: list[str]) -> DeploymentRole:
        deployment = self.credentials.deployment
        principals = deployment.rotation_principals if purpose == "rotation" else deployment.spark_principals
        return DeploymentRole(self.credentials.names, self.config.namespace, purpose, bool(principals), files)

    def _refusal(self, role: DeploymentRole) -> str:
        """Return why the caller may not assume the role; empty if it may."""
        try:
            role.service("sts").call("get_caller_identity")
        except AwsError as error:
            if error.code not in DENIED:
                raise
            principals = "rotation_principals" if role.purpose == "rotation" else "spark_principals"
            return (
                f"the caller may not assume it. Run `lakehouse deploy verify` with a --profile that is in "
                f"`{principals}` ({error})"
            )
        return ""

    def _writer(self, role: DeploymentRole, canary: Canary) -> Iterator[Finding]:
        used = (name for name in self.credentials.names.ingestion_secrets if name not in self._unused_secrets)
        yield from _run(role.secrets(tuple(used)))
        topics = tuple(sorted({topic.topic for topic in self.config.topics.values()}))
        yield Probe(role.name, "a description of the topics", "Kafka", lambda: self._describe(topics)).run()
        yield Probe(
            role.name, "a look-up", "the schema registry", lambda: self.clients.schema_registry.subjects(1)
        ).run()
        yield canary.write(role.name).run()
        yield from _run(role.writer())
        yield from self._tableflow(role)
        yield from self._stored_by_confluent(role)

    def _reader(self, role: DeploymentRole, canary: Canary) -> Iterator[Finding]:
        yield from _run(role.reader())
        yield from _run(canary.read(role.name, self.credentials.names.role("snowflake")))
        yield from self._tableflow(role)

    def _tableflow(self, role: DeploymentRole) -> Iterator[Finding]:
        topic = next((topic for topic in self.config.topics.values() if topic.engine == "tableflow"), None)
        if topic is not None and self._has_tableflow:
            try:
                database, table = table_of(self.config, topic, self.clients).identifier
            except LakehouseError as error:
                yield Finding(role.name, "glue:GetTable on Tableflow's tables", "unchecked", str(error))
                return
            yield from _run(role.tableflow(database, table))

    def _stored_by_confluent(self, role: DeploymentRole) -> Iterator[Finding]:
        topic = next((topic for topic in self.config.topics.values() if topic.engine == "tableflow"), None)
        if topic is None or self._has_tableflow:
            return
        if not hasattr(self.clients, TABLEFLOW_CATALOG):
            reason = "the environment has no `tableflow_catalog`, which `lakehouse deploy environment` prints"
            yield Finding(role.name, "Tableflow's catalog", "unchecked", reason)
            return
        yield Probe(
            role.name,
            "a look-up",
            "Tableflow's catalog",
            lambda: catalog_of(topic, self.clients).load(table_of(self.config, topic, self.clients)),
        ).run()

    def _describe(self, topics: tuple[str, ...]) -> None:
        missing = sorted(set(topics) - set(self.clients.kafka.describe(topics)))
        if missing:
            raise LakehouseError(
                f"Kafka lists no topic {', '.join(missing)}. Nothing was changed. Create it with `lakehouse deploy "
                f"create`, or let the account of ingestion describe it"
            )


def _run(steps: Iterable[Step]) -> Iterator[Finding]:
    for step in steps:
        yield step.run()


def _clean(canary: Canary, removers: Sequence[DeploymentRole]) -> list[str]:
    """Remove the canary table with the first role that is allowed to, and return what could not be removed.

    Raises:
        UnclearState: Another table has its name.
    """
    problems: list[str] = []
    if not removers:
        return problems
    try:
        canary.drop_in_snowflake()
    except LakehouseError as error:
        problems.append(str(error))
    refusal = ""
    for role in removers:
        try:
            remove(role)
            return problems
        except UnclearState:
            raise
        except LakehouseError as error:
            refusal = str(error)
    return [*problems, refusal]
