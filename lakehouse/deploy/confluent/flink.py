"""Flink: the statements, and the topics that they create."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lakehouse.core.errors import ConfigError, UnclearState
from lakehouse.deploy.confluent.confluent_resource import ConfluentResource
from lakehouse.deploy.confluent.foundation import FlinkCompute
from lakehouse.deploy.confluent.topics import TOPIC_SECONDS, TopicResource
from lakehouse.deploy.resource import Outputs, Resource, Updatable
from lakehouse.deploy.waiting import FAILED, state_of, unready, wait_until_deleted
from resources.confluent.api_client import Key
from resources.confluent.clusters import Cluster, KafkaTopic
from resources.confluent.flink import Statement, Statements
from resources.confluent.organization import Environment, ServiceAccount

STATEMENT_SECONDS = 30 * 60
_SPACE = r"(?:\s|--[^\n]*(?:\n|\Z)|/\*(?:[^*]|\*(?!/))*\*/)"
_NAME = r"(?:`(?:[^`]|``)+`|[\w$-]+)"
CREATED = re.compile(
    rf"{_SPACE}*CREATE{_SPACE}+TABLE{_SPACE}+(?P<if_not_exists>IF{_SPACE}+NOT{_SPACE}+EXISTS{_SPACE}+)?"
    rf"(?P<place>(?:{_NAME}{_SPACE}*\.{_SPACE}*)*)(?P<table>{_NAME})",
    re.IGNORECASE,
)
"""The beginning of a statement that creates a table, which is a topic. The names of the environment and the cluster may
precede it."""
READY = frozenset({"RUNNING", "COMPLETED"})
REPLACED = FAILED | {"DELETING"}
"""Phases that no statement leaves, so that another one is started: an interrupted command may have deleted it."""


@dataclass(frozen=True, kw_only=True, repr=False)
class StatementResource(ConfluentResource[list[Statement]], Updatable[list[Statement]]):
    """A continuous statement. Its SQL cannot be changed, so the statement's name contains the hash of the SQL.

    Its state is all statements of the declared name, whatever their SQL. In an existing environment, earlier releases
    named them without the deployment: those that run as the deployment's account are its own.
    """

    declared_name: str
    sql: str
    environment: Resource[Environment]
    cluster: Resource[Cluster]
    account: Resource[ServiceAccount]
    compute_pool: Resource[FlinkCompute]
    flink_key: Resource[Key]
    manager_key: Resource[Key]
    visible: Callable[[str], str]
    """Replaces Flink's text about a failure if it may quote values of sensitive columns."""
    after: tuple[Resource[Any], ...]
    """The resources that fill the topics that it may read."""

    @property
    def address(self) -> str:
        return f"confluent/statement/{self.declared_name}"

    @property
    def statement(self) -> str:
        """Its name in the environment."""
        return f"{self._name}-{self._hash}"

    @property
    def label(self) -> str:
        return f"Flink statement '{self.statement}'"

    @property
    def read_depends_on(self) -> tuple[Resource[Any], ...]:
        return (self.environment, self.account, self.compute_pool, self.flink_key)

    def read(self, outputs: Outputs) -> list[Statement] | None:
        account_id = outputs[self.account].id
        return [
            self._shown(statement)
            for statement in self._statements(outputs).list()
            if self._has_name(statement, self._name)
            or (self._has_name(statement, self.declared_name) and statement.principal_id == account_id)
        ] or None

    def require_creatable(self, outputs: Outputs) -> None:
        # Flink refuses such a table, too, but only after the earlier statement was deleted.
        created = CREATED.match(self.sql)
        self._require_own_cluster(outputs, created["place"] if created else "")
        is_unknown = any(resource not in outputs for resource in (self.cluster, self.manager_key))
        if is_unknown or not created or created["if_not_exists"]:
            return
        topic = _unquoted(created["table"])
        if self.cloud.topics(outputs[self.cluster], outputs[self.manager_key]).find(topic):
            raise UnclearState(
                f"{self.label} creates topic '{topic}', which exists, so Flink would not run it. It was not started. "
                f"Write CREATE TABLE IF NOT EXISTS in lakehouse.yaml, which adds the results to the topic; or delete "
                f"the topic with its records"
            )

    def create(self, outputs: Outputs) -> list[Statement]:
        def create() -> Statement:
            return self._statements(outputs).create(
                self.statement,
                self.sql,
                pool_id=outputs[self.compute_pool].pool_id,
                principal_id=outputs[self.account].id,
                catalog=outputs[self.environment].name,
                database=outputs[self.cluster].name,
            )

        return [self.when_granted(create)]

    def wait_until_ready(self, outputs: Outputs, current: list[Statement]) -> list[Statement]:
        statements = self._statements(outputs)
        name = next((statement.name for statement in current if self._is_declared(statement)), self.statement)

        def look() -> Statement | None:
            statement = statements.find(name)
            return statement and self._shown(statement)

        self.wait_for_phase(look, READY, STATEMENT_SECONDS)
        return self.wait_until_listed(outputs)

    def diff(self, outputs: Outputs, current: list[Statement]) -> list[str]:
        right, others = self._divided(current)
        if not right:
            self.require_creatable(outputs)
        # A statement that an earlier release started may run, and its topic is waited for.
        elif created := CREATED.match(self.sql):
            self._require_own_cluster(outputs, created["place"])
        return [self._difference(statement) for statement in others]

    def warning(self, outputs: Outputs, current: list[Statement]) -> str:
        right, _ = self._divided(current)
        return "; ".join(filter(None, (unready(statement, READY) for statement in right)))

    def update(self, outputs: Outputs, current: list[Statement]) -> list[Statement]:
        right, others = self._divided(current)
        self.delete(outputs, others)
        return right or self.create(outputs)

    def delete(self, outputs: Outputs, current: list[Statement]) -> None:
        statements = self._statements(outputs)
        for statement in current:
            statements.delete(statement.name)
            wait_until_deleted(
                f"Flink statement '{statement.name}'",
                partial(statements.find, statement.name),
                deadline_seconds=STATEMENT_SECONDS,
                clock=self.clock,
            )

    def _divided(self, current: list[Statement]) -> tuple[list[Statement], list[Statement]]:
        """Return the statement with the declared SQL that is kept, if any, and those that are deleted."""
        declared = [statement for statement in current if self._is_declared(statement)]
        kept = sorted(declared, key=lambda statement: statement.name != self.statement)[:1]
        return kept, [statement for statement in current if statement not in kept]

    def _difference(self, statement: Statement) -> str:
        if not statement.name.endswith(self._hash):
            return f"'{statement.name}' runs other SQL"
        if self._is_declared(statement):
            return f"'{statement.name}' runs the same SQL a second time"
        return f"it is {state_of(statement)}"

    def _is_declared(self, statement: Statement) -> bool:
        return statement.name.endswith(self._hash) and statement.phase not in REPLACED

    @staticmethod
    def _has_name(statement: Statement, name: str) -> bool:
        return bool(re.fullmatch(rf"{re.escape(name)}-[0-9a-f]{{12}}", statement.name))

    def _require_own_cluster(self, outputs: Outputs, place: str) -> None:
        """Refuse a table whose name is qualified with another environment or cluster, as names or ids."""
        qualifiers = [_unquoted(name) for name in re.findall(rf"({_NAME}){_SPACE}*\.{_SPACE}*", place)]
        resources: tuple[Resource[Any], ...] = (self.environment, self.cluster)
        for qualifier, resource in zip(reversed(qualifiers), reversed(resources), strict=False):
            # A new environment or cluster has this name.
            names = (outputs[resource].name, outputs[resource].id) if resource in outputs else (self.names.confluent,)
            if qualifier not in names:
                raise ConfigError(
                    f"lakehouse.yaml: flink.{self.declared_name}: the table is qualified with '{qualifier}', so it is "
                    f"not in cluster '{self._cluster_name(outputs)}' of the deployment, where its topic is waited for. "
                    f"The statement was not started. Write the table's name without environment and cluster"
                )

    def _cluster_name(self, outputs: Outputs) -> str:
        return outputs[self.cluster].name if self.cluster in outputs else self.names.confluent

    def _shown(self, statement: Statement) -> Statement:
        return replace(statement, detail=self.visible(statement.detail))

    @property
    def _name(self) -> str:
        """The common part of its names. Others may have statements in an existing environment."""
        is_shared = bool(self.names.existing.confluent_environment)
        return f"{self.names.deployment}.{self.declared_name}" if is_shared else self.declared_name

    @property
    def _hash(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()[:12]

    def _statements(self, outputs: Outputs) -> Statements:
        region = outputs[self.compute_pool].region
        return self.cloud.statements(region, outputs[self.environment], outputs[self.flink_key])


@dataclass(frozen=True, kw_only=True, repr=False)
class FlinkTopicResource(TopicResource):
    """A topic that a statement creates. It outlives the statement."""

    statement: Resource[list[Statement]]

    def create(self, outputs: Outputs) -> KafkaTopic:
        # The statement creates it.
        return self.wait_until_listed(outputs, TOPIC_SECONDS)


def created_table(sql: str) -> str | None:
    """Return the table that a `CREATE TABLE …` statement creates, which is a topic."""
    created = CREATED.match(sql)
    return _unquoted(created["table"]) if created else None


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
