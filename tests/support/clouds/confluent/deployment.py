"""Deployments in the simulated Confluent Cloud, their resources, and an inventory of the created resources."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests
from botocore.client import BaseClient
from botocore.exceptions import ConnectionClosedError

from lakehouse.config.deployment import Deployment, ExistingObjects, TableflowStorage
from lakehouse.config.model import Config
from lakehouse.core.errors import OutcomeUnknownError, Unreachable
from lakehouse.deploy.aws.bucket import BucketState
from lakehouse.deploy.confluent.confluent_resources import confluent_resources, foundation
from lakehouse.deploy.names import Names
from lakehouse.deploy.planner import Change, apply, destroy, plan
from lakehouse.deploy.resource import Resource
from resources.aws.secrets_manager import Secrets
from resources.confluent.confluent_cloud import ConfluentCloud
from tests.support.clouds.confluent.server import ROUTES, ConfluentServer
from tests.support.sleepless import Sleepless

TRIES = 500
"""More than twice the number of changes."""
STRIKES = 2
"""Calls of each kind at which a process ends. The first leaves no resource of its kind, the second one."""
ACCOUNT, REGION = "123456789012", "us-east-1"
SQL = "CREATE TABLE IF NOT EXISTS `totals` AS SELECT quantity * price AS total FROM `stock_trades`"
SMALL: dict[str, Any] = {
    "stock_trades": {
        "source": {"type": "datagen", "quickstart": "STOCK_TRADES", "schema_file": ""},
        "key": "userid",
        "engine": "tableflow",
    },
}
LARGE: dict[str, Any] = SMALL | {
    "totals": {"engine": "tableflow"},
    "flagged": {"source": {"type": "derived", "from": "stock_trades", "transform": "a:b"}},
    "orders": {"errors": "log", "dead_letter_topic": "orders.dead"},
}


@dataclass(frozen=True)
class Elsewhere(Resource):
    """An AWS resource that Confluent resources depend on, represented by a name in a set."""

    address: str
    things: set[str]
    depends_on: tuple[Resource, ...] = ()
    label: str = "a resource in AWS"
    read_depends_on = ()

    def read(self, outputs):
        return self.address if self.address in self.things else None

    def create(self, outputs):
        self.things.add(self.address)
        return self.address

    def delete(self, outputs, current):
        self.things.discard(self.address)


@dataclass(frozen=True, kw_only=True)
class TableflowBucket(Elsewhere):
    """The bucket of Tableflow's tables."""

    names: Names
    first_object: str

    def read(self, outputs):
        return self.create(outputs) if super().read(outputs) else None

    def create(self, outputs):
        super().create(outputs)
        return BucketState(self.names.tableflow_bucket, (), self.first_object)


@dataclass
class Lake:
    """One deployment, the `reported` changes to its resources, and the names of its AWS resources (`things`)."""

    vendor: ConfluentServer
    confluent: ConfluentCloud
    sleepless: Sleepless
    name: str = "lake"
    account: str = ACCOUNT
    region: str = REGION
    existing: ExistingObjects = ExistingObjects()
    topics: dict[str, Any] = field(default_factory=lambda: LARGE)
    tableflow: TableflowStorage = TableflowStorage()
    first_object: str = ""
    """Key of an object in the bucket of Tableflow's tables."""
    flink: dict[str, str] = field(default_factory=lambda: {"totals": SQL})
    reported: list[Change] = field(default_factory=list)
    things: set[str] = field(default_factory=set)
    # Shared by all resources: creating an AWS client takes longer than most calls.
    _kept: Secrets = field(default_factory=lambda: Secrets(REGION))

    @property
    def names(self) -> Names:
        return Names(self.name, self.account, self.region, self.existing)

    @property
    def config(self) -> Config:
        """The configuration, which has no file."""
        named = {name: {**topic, "name": name} for name, topic in self.topics.items()}
        return Config.model_validate(
            {"namespace": "trading", "topics": named, "environments": {}, "root": Path("."), "file": Path("x.yaml")}
        )

    @property
    def resources(self) -> list[Resource]:
        deployment = Deployment(
            name=self.name,
            account=self.account,
            region=self.region,
            flink=self.flink,
            existing=self.existing,
            tableflow=self.tableflow,
        )
        base = foundation(self.confluent, self.names, self.config, deployment, self.sleepless.clock)
        integration = base.provider_integration
        if integration is None:
            return confluent_resources(base, self._kept, None, None)
        bucket = TableflowBucket("aws/tableflow_bucket", self.things, names=self.names, first_object=self.first_object)
        role = Elsewhere("aws/role/confluent", self.things, (integration,))
        resources: list[Resource] = [bucket]
        for resource in confluent_resources(base, self._kept, role, bucket):
            resources.append(resource)
            if resource is integration:
                resources.append(role)
        return resources

    def create(self) -> Any:
        return apply(self.resources, self.reported.append)

    def delete(self, *, delete_data: bool = True) -> None:
        destroy(self.resources, self.reported.append, delete_data=delete_data)

    def age_keys(self, age: timedelta) -> None:
        """Make all API keys older by a duration."""
        for document in self.vendor.state.keys.values():
            created_at = datetime.fromisoformat(document["metadata"]["created_at"]) - age
            document["metadata"]["created_at"] = created_at.isoformat().replace("+00:00", "Z")

    def secrets(self) -> dict[str, str]:
        """Return the current value of each secret of the account, by name."""
        client = boto3.client("secretsmanager", region_name=REGION)
        names = [
            secret["Name"] for page in client.get_paginator("list_secrets").paginate() for secret in page["SecretList"]
        ]
        # Without a label, moto returns the first version that was current.
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
    """Return all resources, without ids, times and secrets, which differ between runs."""

    def plain(value: Any) -> str:
        def without_number(match: re.Match) -> str:
            return f"<{match[1]}>"

        text = re.sub(r"\b([A-Za-z]+)-\d{6}\b", without_number, str(value))
        text = re.sub(r"'(created_at|updated_at|external_id)': '[^']*'", "", text)
        return text.replace(vendor.url, "")

    return sorted(f"{kind} {plain(document)}" for kind in KINDS for document in getattr(vendor.state, kind).values())


def closure(resources: list[Resource], name: str) -> list[Resource]:
    """Return the resource of a name and its transitive dependencies, in order."""
    by_name, wanted = {resource.address: resource for resource in resources}, [name]
    for address in wanted:
        wanted += [needed.address for needed in by_name[address].depends_on]
    return [resource for resource in resources if resource.address in wanted]


def left(vendor: ConfluentServer) -> list[str]:
    """Return the kinds that have resources."""
    return [kind for kind in KINDS if getattr(vendor.state, kind)]


def actions(lake: Lake) -> dict[str, str]:
    """Return the reason of each planned change, by resource."""
    return {change.resource.address: change.reason for change in plan(lake.resources) if change.action != "no-op"}


def account(lake: Lake, purpose: str) -> str:
    """Return the id of a service account of a deployment."""
    name = lake.names.service_account(purpose)
    [account_id] = [account["id"] for account in lake.vendor.state.accounts.values() if account["display_name"] == name]
    return account_id


class Killed(BaseException):
    """The simulated end of the process."""


class Ending:
    """A fault that ends the process before and after the first changing calls of each kind to either cloud.

    Calls of one kind differ in names and ids only. `changes` are the executed calls, `struck` the calls at which the
    process ended with their kinds.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, lost: bool = False):
        """Patch the transports of both clouds.

        Args:
            lost: Whether only the response of each call is lost, and the process continues.
        """
        self.lost, self.changes = lost, []
        self.moments: tuple[str, ...] = ("after",) if lost else ("before", "after")
        self.struck: dict[tuple[str, str], str] = {}
        send, call = requests.request, BaseClient._make_api_call

        def request(method: str, url: str, **arguments: Any) -> Any:
            path = "/" + url.partition("//")[2].partition("/")[2]
            change = f"{method} {path} {arguments.get('json')} {arguments.get('params')}"
            changes = method != "GET" and not path.endswith("/validate")
            do = lambda: send(method, url, **arguments)  # noqa: E731
            kind = f"{method} {_operation(method, path)}"
            return self._around(kind, change, do, requests.ConnectionError()) if changes else do()

        def api_call(client: BaseClient, operation: str, arguments: dict[str, Any]) -> Any:
            change = f"{operation} {arguments.get('SecretId') or arguments.get('Name')}"
            do = lambda: call(client, operation, arguments)  # noqa: E731
            changes = not operation.startswith(("Get", "List", "Describe"))
            return self._around(operation, change, do, ConnectionClosedError(endpoint_url="")) if changes else do()

        monkeypatch.setattr(requests, "request", request)
        monkeypatch.setattr(BaseClient, "_make_api_call", api_call)

    def repeat_until_done(self, do: Callable[[], Any]) -> None:
        """Repeat a command until it succeeds."""
        ends = (OutcomeUnknownError, Unreachable) if self.lost else (Killed,)
        for _ in range(TRIES):
            try:
                return do()
            except ends:
                continue
        raise AssertionError(f"the command did not succeed in {TRIES} tries; the last change: {self.changes[-1]}")

    def _around(self, kind: str, change: str, do: Callable[[], Any], lost: Exception) -> Any:
        self._strike(kind, change, "before", lost)
        done = do()
        self.changes.append(change)
        self._strike(kind, change, "after", lost)
        return done

    def _strike(self, kind: str, change: str, moment: str, lost: Exception) -> None:
        kind = f"{moment} {kind}"
        is_new = (change, moment) not in self.struck and list(self.struck.values()).count(kind) < STRIKES
        if moment in self.moments and is_new:
            self.struck[change, moment] = kind
            raise lost if self.lost else Killed()


def _operation(method: str, path: str) -> str:
    """Return the template of a path in the simulated Confluent Cloud."""
    path = re.sub("^/registry/[^/]+", "", path.partition("?")[0])
    rule, _ = ROUTES.bind("127.0.0.1").match(path, method, return_rule=True)
    return str(rule.rule)
