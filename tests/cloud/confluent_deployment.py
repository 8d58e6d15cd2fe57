"""Deployments in the stand-in of Confluent Cloud: what they are made of, and what is there afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from confluent_server import ConfluentServer
from sleepless import Sleepless

from lakehouse.cloud.confluent_steps import confluent_steps
from lakehouse.cloud.names import Names
from lakehouse.cloud.perform import Action, create, delete
from lakehouse.cloud.secrets import Secrets
from lakehouse.cloud.step import Step
from lakehouse.config import Config
from lakehouse.deployment import Deployment
from resources.confluent_cloud import ConfluentCloud

ACCOUNT, REGION = "123456789012", "us-east-1"
SQL = "CREATE TABLE IF NOT EXISTS `totals` AS SELECT quantity * price AS total FROM `stock_trades`"
SMALL: dict[str, Any] = {
    "stock_trades": {"source": {"type": "datagen", "schema_file": ""}, "key": "userid", "engine": "tableflow"},
}
LARGE: dict[str, Any] = SMALL | {
    "totals": {"engine": "tableflow"},
    "flagged": {"source": {"type": "derived", "from": "stock_trades", "transform": "a:b"}},
    "orders": {"errors": "log", "dead_letter_topic": "orders.dead"},
}


@dataclass(frozen=True)
class Elsewhere(Step):
    """A thing of AWS that steps of Confluent Cloud need: here, a name in a set."""

    name: str
    things: set[str]
    needs: tuple[str, ...] = ()
    what: str = "a thing of AWS"

    def find(self, found):
        return self.name if self.name in self.things else None

    def create(self, found):
        self.things.add(self.name)
        return self.name

    def delete(self, found, it):
        self.things.discard(self.name)


@dataclass
class Lake:
    """One deployment. `told` is what was said of its steps, `things` what AWS has of it."""

    server: ConfluentServer
    confluent: ConfluentCloud
    sleepless: Sleepless
    name: str = "lake"
    topics: dict[str, Any] = field(default_factory=lambda: LARGE)
    flink: dict[str, str] = field(default_factory=lambda: {"totals": SQL})
    told: list[Action] = field(default_factory=list)
    things: set[str] = field(default_factory=set)

    @property
    def names(self) -> Names:
        return Names(self.name, ACCOUNT, REGION)

    @property
    def config(self) -> Config:
        """Without the file that it would be read from."""
        named = {name: {**topic, "name": name} for name, topic in self.topics.items()}
        return Config.model_validate(
            {"namespace": "trading", "topics": named, "environments": {}, "root": Path("."), "file": Path("x.yaml")}
        )

    @property
    def steps(self) -> list[Step]:
        deployment = Deployment(name=self.name, account=ACCOUNT, region=REGION, flink=self.flink)
        secrets, clock = Secrets(REGION), self.sleepless.clock
        steps: list[Step] = [Elsewhere("aws/bucket", self.things)]
        for step in confluent_steps(self.confluent, secrets, self.names, self.config, deployment, clock):
            steps.append(step)
            if step.name == "confluent/provider_integration":
                steps.append(Elsewhere("aws/role/confluent", self.things, (step.name,)))
        return steps

    def create(self) -> Any:
        return create(self.steps, self.told.append)

    def delete(self, *, delete_data: bool = True) -> None:
        delete(self.steps, self.told.append, delete_data=delete_data)

    def secrets(self) -> dict[str, str]:
        """All of the account, by name: their current content."""
        client = boto3.client("secretsmanager", region_name=REGION)
        names = [
            each["Name"] for page in client.get_paginator("list_secrets").paginate() for each in page["SecretList"]
        ]
        return {name: client.get_secret_value(SecretId=name)["SecretString"] for name in names}


KINDS = (
    "environments",
    "clusters",
    "registries",
    "accounts",
    "bindings",
    "keys",
    "topics",
    "acls",
    "connectors",
    "integrations",
    "catalogs",
    "tableflow_topics",
    "pools",
    "statements",
)


def inventory(server: ConfluentServer) -> list[str]:
    """Everything that is there, without what differs from one run to another: ids, times, secrets."""
    ids: dict[str, str] = {}

    def plain(value: Any) -> str:
        def same(match: re.Match) -> str:
            return f"<{match[1]}>"

        text = re.sub(r"\b([A-Za-z]+)-\d{6}\b", same, str(value))
        text = re.sub(r"'(created_at|updated_at|external_id)': '[^']*'", "", text)
        return text.replace(server.url, "")

    assert not ids
    return sorted(f"{kind} {plain(document)}" for kind in KINDS for document in getattr(server.state, kind).values())


def left(server: ConfluentServer) -> list[str]:
    """The kinds of which something is there."""
    return [kind for kind in KINDS if getattr(server.state, kind)]


class Killed(BaseException):
    """The process ended here."""


@dataclass
class Ending:
    """Ends the process `before` or `after` each changing call that is the `nth` (from 1), at the transport."""

    nth: int = 0
    moment: str = ""
    error: Callable[[], BaseException] = Killed
    changes: list[str] = field(default_factory=list)

    def around(self, change: str, do: Callable[[], Any]) -> Any:
        self.changes.append(change)
        mine = len(self.changes) == self.nth
        if mine and self.moment == "before":
            raise self.error()
        done = do()
        if mine and self.moment == "after":
            raise self.error()
        return done


def chunks(count: int, step: int) -> Iterator[range]:
    """Ranges of at most `step`."""
    for start in range(0, count, step):
        yield range(start, min(count, start + step))
