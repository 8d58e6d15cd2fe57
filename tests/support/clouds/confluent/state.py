"""The resources of the simulated Confluent Cloud, and the delays until a change becomes visible.

Tests read and set all of it: each kind of resource is a dict of API documents by id.
"""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from collections import defaultdict
from collections.abc import Callable
from typing import Any

ORGANIZATION_ID = "1111aaaa-11aa-11aa-11aa-111111aaaaaa"
ORGANIZATION = f"crn://confluent.cloud/organization={ORGANIZATION_ID}"

Document = dict[str, Any]


class Problem(Exception):
    """The refusal of a call.

    `shape` is the format of the error response: `errors`, `error_code`, `connect` or `html`.
    """

    def __init__(self, status: int, detail: str, code: str | int = "", shape: str = "errors"):
        super().__init__(detail)
        self.status, self.detail, self.code, self.shape = status, detail, code, shape


class State:
    """All resources of one organization.

    The id of a resource in a cluster or an environment begins with the id of that cluster or environment.
    """

    def __init__(self, url: str, admin: tuple[str, str]):
        """Create an empty organization.

        Args:
            url: Address of the server.
            admin: Id and secret of the Cloud API key of the administrator.
        """
        self.url, self.admin = url, admin
        self.polls = 1
        """Number of reads of a resource before it is ready or deleted."""
        self.list_lag = 0
        """Number of list requests before a new resource is listed."""
        self.key_lag = 0
        """Number of requests that are refused before a new key is valid."""
        self.role_lag = 0
        """Number of requests that are refused before a new role binding is effective."""
        self.page_size = 100
        self.now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
        """The clock of the cloud."""

        self.environments: dict[str, Document] = {}
        self.clusters: dict[str, Document] = {}
        self.registries: dict[str, Document] = {}
        self.accounts: dict[str, Document] = {}
        self.bindings: dict[str, Document] = {}
        self.keys: dict[str, Document] = {}
        self.secrets: dict[str, str] = {}
        self.topics: dict[str, Document] = {}
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.acls: dict[str, Document] = {}
        self.connectors: dict[str, Document] = {}
        self.integrations: dict[str, Document] = {}
        self.catalogs: dict[str, Document] = {}
        self.open_catalog_secret: str | None = None
        """The secret that Open Catalogs accept; None accepts any."""
        self.tableflow_topics: dict[str, Document] = {}
        self.pools: dict[str, Document] = {}
        self.statements: dict[str, Document] = {}
        self.subjects: dict[str, set[str]] = defaultdict(set)
        """Subjects by Schema Registry id."""

        self._pending: dict[str, tuple[int, Callable[[], None]]] = {}
        self._hidden: dict[str, int] = {}
        self._spreading: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def new_id(self, prefix: str) -> str:
        """Return an unused id."""
        return f"{prefix}-{next(self._numbers):06}"

    def metadata(self, path: str, crn: str) -> Document:
        """Return the metadata of a new document."""
        now = self.now().isoformat().replace("+00:00", "Z")
        return {"self": self.url + path, "resource_name": crn, "created_at": now, "updated_at": now}

    def add(self, kind: dict[str, Document], thing_id: str, document: Document) -> Document:
        """Add a resource, which is listed once `list_lag` has passed."""
        kind[thing_id] = document
        self._hidden[thing_id] = self.list_lag
        return document

    def list_everything(self) -> None:
        """List all resources from now on, as after hours."""
        self._hidden.clear()

    def after_polls(self, thing_id: str, change: Callable[[], None]) -> None:
        """Make a change after `polls` reads of the resource."""
        self._pending[thing_id] = self.polls, change

    def look(self, thing_id: str) -> None:
        """Count a read of a resource, and make its pending change when that change is due."""
        if thing_id in self._pending:
            remaining, change = self._pending.pop(thing_id)
            if remaining:
                self._pending[thing_id] = remaining - 1, change
            else:
                change()

    def become(self, kind: dict[str, Document], thing_id: str, phase: str) -> None:
        """Set the phase of a resource after `polls` reads."""

        def change() -> None:
            if thing_id in kind:
                kind[thing_id]["status"]["phase"] = phase

        self.after_polls(thing_id, change)

    def vanish(self, kind: dict[str, Document], thing_id: str) -> None:
        """Delete a resource after `polls` reads."""
        self.after_polls(thing_id, lambda: kind.pop(thing_id, None))

    def listed(
        self, kind: dict[str, Document], keep: Callable[[Document], bool] = lambda document: True
    ) -> list[Document]:
        """Return the documents of a kind that are already listed."""
        shown = []
        for thing_id, document in list(kind.items()):
            if self._hidden.get(thing_id, 0):
                self._hidden[thing_id] -= 1
            elif keep(document):
                shown.append(document)
        return shown

    def new_key(self, document: Document, secret: str) -> None:
        """Add a key, which is valid once `key_lag` has passed."""
        self.add(self.keys, document["id"], document)
        self.secrets[document["id"]] = secret
        self._spreading[document["id"]] = self.key_lag

    def new_binding(self, document: Document) -> None:
        """Add a role binding, which is effective once `role_lag` has passed."""
        self.add(self.bindings, document["id"], document)
        self._spreading[document["id"]] = self.role_lag

    def spread(self, thing_id: str) -> bool:
        """Count a use of a key or binding, and return whether it is effective."""
        remaining = self._spreading.get(thing_id, 0)
        self._spreading[thing_id] = max(0, remaining - 1)
        return not remaining

    def require_role(self, owner_id: str, roles: tuple[str, ...], crn: str) -> None:
        """Check that an account has a role on the CRN or on a prefix of it.

        Raises:
            Problem: The account has none of the roles.
        """
        for binding in list(self.bindings.values()):
            fits = binding["principal"] == f"User:{owner_id}" and binding["role_name"] in roles
            if fits and crn.startswith(binding["crn_pattern"].rstrip("*")) and self.spread(binding["id"]):
                return
        raise Problem(403, "Forbidden Access", "forbidden_access")

    def environment(self, environment_id: str) -> Document:
        """Return an environment.

        Raises:
            Problem: The environment does not exist.
        """
        if environment_id not in self.environments:
            raise Problem(403, "Forbidden Access", "forbidden_access")
        return self.environments[environment_id]

    def cluster(self, environment_id: str, cluster_id: str) -> Document:
        """Return a cluster.

        Raises:
            Problem: The cluster does not exist in the environment.
        """
        cluster = self.clusters.get(cluster_id)
        if not cluster or cluster["spec"]["environment"]["id"] != environment_id:
            raise Problem(403, "Forbidden Access", "forbidden_access")
        return cluster

    def registry_of(self, environment_id: str) -> str | None:
        """Return the id of an environment's Schema Registry, or None if it has none."""
        for registry_id, document in self.registries.items():
            if document["spec"]["environment"]["id"] == environment_id:
                return registry_id
        return None

    def reference(self, environment_id: str) -> Document:
        """Return a reference to an environment, for other documents."""
        return {
            "id": environment_id,
            "related": f"{self.url}/org/v2/environments/{environment_id}",
            "resource_name": f"{ORGANIZATION}/environment={environment_id}",
        }

    def cluster_reference(self, environment_id: str, cluster_id: str) -> Document:
        """Return a reference to a cluster, for other documents."""
        return {
            "id": cluster_id,
            "environment": environment_id,
            "related": f"{self.url}/cmk/v2/clusters/{cluster_id}",
            "resource_name": f"{ORGANIZATION}/environment={environment_id}/cloud-cluster={cluster_id}",
        }

    def write_schema(self, environment_id: str, topic: str) -> None:
        """Register a schema for the values of a topic."""
        self.subjects[self.registry_of(environment_id)].add(f"{topic}-value")

    def remove_cluster(self, cluster_id: str) -> None:
        """Delete a cluster and the resources in it."""
        self.clusters.pop(cluster_id, None)
        for kind in (self.topics, self.acls, self.connectors, self.catalogs, self.tableflow_topics):
            for thing_id in [key for key in kind if key.startswith(f"{cluster_id}/")]:
                del kind[thing_id]

    def remove_environment(self, environment_id: str) -> None:
        """Delete an environment and the resources in it."""
        for kind in (self.clusters, self.registries, self.pools, self.integrations):
            for thing_id in [k for k, item in kind.items() if _environment_of(item) == environment_id]:
                self.remove_cluster(thing_id) if kind is self.clusters else kind.pop(thing_id)
        for thing_id in [statement for statement in self.statements if statement.startswith(f"{environment_id}/")]:
            del self.statements[thing_id]
        del self.environments[environment_id]


def new_secret() -> str:
    """Return a secret that a search of logs and output finds."""
    return f"secret-{uuid.uuid4().hex}"


def _environment_of(document: Document) -> str:
    return document.get("spec", document)["environment"]["id"]
