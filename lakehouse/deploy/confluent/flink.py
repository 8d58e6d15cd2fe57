"""Flink: the compute pool, the statements that run in it, and the topics they make."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from lakehouse.core.polling import REAL, Clock
from lakehouse.deploy.confluent.access import GRANTED_SECONDS
from lakehouse.deploy.confluent.foundation import LISTED_SECONDS
from lakehouse.deploy.confluent.keys import flink_region
from lakehouse.deploy.confluent.streams import TOPIC_SECONDS, TopicStep
from lakehouse.deploy.names import Names
from lakehouse.deploy.step import Found, Step
from resources.confluent.flink import READY, ComputePool, Statement, Statements
from resources.confluent.kafka import Topic
from resources.confluent.waiting import FAILED, wait, wait_gone, wait_there, when_allowed
from resources.confluent_cloud import ConfluentCloud

POOL_SECONDS = 60 * 60
STATEMENT_SECONDS = 30 * 60
MAX_CFU = 10
FLINK_KEY = "confluent/key/flink/flink"


@dataclass(frozen=True)
class ComputePoolStep(Step):
    """What statements run on."""

    cloud: ConfluentCloud
    names: Names
    clock: Clock = REAL
    name: ClassVar[str] = "confluent/compute_pool"
    needs: ClassVar[tuple[str, ...]] = ("confluent/environment",)

    @property
    def what(self) -> str:
        return f"compute pool '{self.names.confluent}'"

    def find(self, found: Found) -> ComputePool | None:
        return self.cloud.compute_pools(found["confluent/environment"].id).find(self.names.confluent)

    def create(self, found: Found) -> ComputePool:
        pools = self.cloud.compute_pools(found["confluent/environment"].id)
        return pools.create(self.names.confluent, self.names.region, MAX_CFU)

    def settle(self, found: Found, it: ComputePool) -> ComputePool:
        pools = self.cloud.compute_pools(found["confluent/environment"].id)
        wait(self.what, lambda: pools.get(it.id), READY, deadline_seconds=POOL_SECONDS, clock=self.clock)
        return wait_there(self.what, lambda: self.find(found), deadline_seconds=POOL_SECONDS, clock=self.clock)

    def delete(self, found: Found, it: ComputePool) -> None:
        pools = self.cloud.compute_pools(found["confluent/environment"].id)
        pools.delete(it.id)
        wait_gone(self.what, lambda: pools.get(it.id), deadline_seconds=POOL_SECONDS, clock=self.clock)


@dataclass(frozen=True)
class StatementStep(Step):
    """A statement that runs for ever. A statement cannot be changed, so its name has the hash of its SQL; `find` gives
    all of the given name, whatever their SQL."""

    cloud: ConfluentCloud
    names: Names
    given: str
    sql: str
    after: tuple[str, ...]
    """The steps that fill the topics it may read."""
    clock: Clock = REAL

    @property
    def name(self) -> str:
        return f"confluent/statement/{self.given}"

    @property
    def statement(self) -> str:
        """Its name in the environment."""
        return f"{self.given}-{hashlib.sha256(self.sql.encode()).hexdigest()[:12]}"

    @property
    def what(self) -> str:
        return f"Flink statement '{self.statement}'"

    @property
    def needs(self) -> tuple[str, ...]:
        return (
            "confluent/environment",
            "confluent/cluster",
            "confluent/account/flink",
            "confluent/compute_pool",
            FLINK_KEY,
            *self.after,
        )

    @property
    def lives_in(self) -> tuple[str, ...]:
        return ("confluent/environment", FLINK_KEY)

    def find(self, found: Found) -> list[Statement] | None:
        pattern = re.compile(rf"{re.escape(self.given)}-[0-9a-f]{{12}}")
        return [each for each in self._statements(found).list() if pattern.fullmatch(each.name)] or None

    def create(self, found: Found) -> list[Statement]:
        def make() -> Statement:
            return self._statements(found).create(
                self.statement,
                self.sql,
                pool_id=found["confluent/compute_pool"].id,
                principal_id=found["confluent/account/flink"].id,
                catalog=found["confluent/environment"].name,
                database=found["confluent/cluster"].name,
            )

        return [when_allowed(self.what, make, deadline_seconds=GRANTED_SECONDS, clock=self.clock)]

    def settle(self, found: Found, it: list[Statement]) -> list[Statement]:
        statements = self._statements(found)
        wait(
            self.what,
            lambda: statements.find(self.statement),
            {"RUNNING", "COMPLETED"},
            deadline_seconds=STATEMENT_SECONDS,
            clock=self.clock,
        )
        return wait_there(self.what, lambda: self.find(found), deadline_seconds=LISTED_SECONDS, clock=self.clock)

    def differences(self, found: Found, it: list[Statement]) -> list[str]:
        different = [f"'{each.name}' runs other SQL" for each in it if each.name != self.statement]
        different += [f"it has failed: {each.detail}" for each in it if each.phase in FAILED]
        return different

    def change(self, found: Found, it: list[Statement]) -> list[Statement]:
        right = [each for each in it if each.name == self.statement and each.phase not in FAILED]
        self.delete(found, [each for each in it if each not in right])
        return right or self.create(found)

    def delete(self, found: Found, it: list[Statement]) -> None:
        statements = self._statements(found)
        for each in it:
            statements.delete(each.name)
            wait_gone(
                f"Flink statement '{each.name}'",
                partial(statements.find, each.name),
                deadline_seconds=STATEMENT_SECONDS,
                clock=self.clock,
            )

    def _statements(self, found: Found) -> Statements:
        region = flink_region(self.cloud, self.names)
        return self.cloud.statements(region, found["confluent/environment"], found[FLINK_KEY])


@dataclass(frozen=True)
class FlinkTopicStep(TopicStep):
    """A topic that a statement makes. It outlives the statement."""

    statement: str = ""
    """The statement's step."""

    @property
    def needs(self) -> tuple[str, ...]:
        return (*super().needs, self.statement)

    @property
    def lives_in(self) -> tuple[str, ...]:
        return super().needs

    def create(self, found: Found) -> Topic:
        return wait_there(self.what, lambda: self.find(found), deadline_seconds=TOPIC_SECONDS, clock=self.clock)

    def differences(self, found: Found, it: Topic) -> list[str]:
        return []

    def remark(self, found: Found, it: Topic) -> str:
        return ""


def table_made(sql: str) -> str | None:
    """The table that a `CREATE TABLE …` statement makes, which is a topic."""
    made = re.match(r"\s*CREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?`?([\w.-]+)`?", sql, re.IGNORECASE)
    return made and made[1]
