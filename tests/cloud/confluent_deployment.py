"""Deployments in the stand-in of Confluent Cloud: what they are made of, and what is there afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests
from botocore.client import BaseClient
from botocore.exceptions import ConnectionClosedError
from confluent_server import ConfluentServer
from sleepless import Sleepless

from lakehouse.config.deployment import Deployment
from lakehouse.config.loader import Config
from lakehouse.core.errors import OutcomeUnknownError, Unreachable
from lakehouse.deploy.confluent.steps import confluent_steps
from lakehouse.deploy.names import Names
from lakehouse.deploy.planner import Action, create, delete, plan
from lakehouse.deploy.step import Step
from resources.confluent_cloud import ConfluentCloud
from resources.secrets_manager import Secrets

TRIES = 500
"""More than there are changes, twice."""
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
    lives_in = ()

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

    vendor: ConfluentServer
    confluent: ConfluentCloud
    sleepless: Sleepless
    name: str = "lake"
    topics: dict[str, Any] = field(default_factory=lambda: LARGE)
    flink: dict[str, str] = field(default_factory=lambda: {"totals": SQL})
    told: list[Action] = field(default_factory=list)
    things: set[str] = field(default_factory=set)
    # One for all steps: a client of AWS takes longer to make than most of what it is used for.
    _kept: Secrets = field(default_factory=lambda: Secrets(REGION))

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
        steps: list[Step] = [Elsewhere("aws/bucket", self.things)]
        for step in confluent_steps(
            self.confluent, self._kept, self.names, self.config, deployment, self.sleepless.clock
        ):
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
        # Without a label moto gives the version that was current first.
        return {
            name: client.get_secret_value(SecretId=name, VersionStage="AWSCURRENT")["SecretString"] for name in names
        }


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


def inventory(vendor: ConfluentServer) -> list[str]:
    """Everything that is there, without what differs from one run to another: ids, times, secrets."""

    def plain(value: Any) -> str:
        def same(match: re.Match) -> str:
            return f"<{match[1]}>"

        text = re.sub(r"\b([A-Za-z]+)-\d{6}\b", same, str(value))
        text = re.sub(r"'(created_at|updated_at|external_id)': '[^']*'", "", text)
        return text.replace(vendor.url, "")

    return sorted(f"{kind} {plain(document)}" for kind in KINDS for document in getattr(vendor.state, kind).values())


def closure(steps: list[Step], name: str) -> list[Step]:
    """The step of that name and all that it needs, in order."""
    by_name, wanted = {step.name: step for step in steps}, [name]
    for each in wanted:
        wanted += by_name[each].needs
    return [step for step in steps if step.name in wanted]


def left(vendor: ConfluentServer) -> list[str]:
    """The kinds of which something is there."""
    return [kind for kind in KINDS if getattr(vendor.state, kind)]


def verbs(lake: Lake) -> dict[str, str]:
    """Why something is to be done, by step, where that is anything."""
    return {action.step.name: action.why for action in plan(lake.steps) if action.verb != "keep"}


def account(lake: Lake, purpose: str) -> str:
    """The id of one of a deployment's service accounts."""
    name = lake.names.service_account(purpose)
    [found] = [each["id"] for each in lake.vendor.state.accounts.values() if each["display_name"] == name]
    return found


class Killed(BaseException):
    """The process ended here."""


class Ending:
    """Ends the process before and after changing calls, at the transports of both clouds: each once.

    `changes` are the calls that were carried out, `struck` those that it ended at.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, lost: bool = False):
        """Parameters: whether the answer of a call is lost, instead of all that comes before or after it."""
        self.lost, self.changes = lost, []
        self.moments: tuple[str, ...] = ("after",) if lost else ("before", "after")
        self.struck: set[tuple[str, str]] = set()
        send, call = requests.request, BaseClient._make_api_call

        def request(method: str, url: str, **given: Any) -> Any:
            path = "/" + url.partition("//")[2].partition("/")[2]
            change = f"{method} {path} {given.get('json')} {given.get('params')}"
            changes = method != "GET" and not path.endswith("/validate")
            do = lambda: send(method, url, **given)  # noqa: E731
            return self._around(change, do, requests.ConnectionError()) if changes else do()

        def api_call(client: BaseClient, operation: str, given: dict[str, Any]) -> Any:
            change = f"{operation} {given.get('SecretId') or given.get('Name')}"
            do = lambda: call(client, operation, given)  # noqa: E731
            changes = not operation.startswith(("Get", "List", "Describe"))
            return self._around(change, do, ConnectionClosedError(endpoint_url="")) if changes else do()

        monkeypatch.setattr(requests, "request", request)
        monkeypatch.setattr(BaseClient, "_make_api_call", api_call)

    def again_and_again(self, do: Callable[[], Any]) -> None:
        """As somebody does who runs a command until it comes to its end."""
        ends = (OutcomeUnknownError, Unreachable) if self.lost else (Killed,)
        for _ in range(TRIES):
            try:
                return do()
            except ends:
                continue
        raise AssertionError(f"not at its end after {TRIES} tries; the last change: {self.changes[-1]}")

    def _around(self, change: str, do: Callable[[], Any], lost: Exception) -> Any:
        self._strike(change, "before", lost)
        done = do()
        self.changes.append(change)
        self._strike(change, "after", lost)
        return done

    def _strike(self, change: str, moment: str, lost: Exception) -> None:
        if moment in self.moments and (change, moment) not in self.struck:
            self.struck.add((change, moment))
            raise lost if self.lost else Killed()
