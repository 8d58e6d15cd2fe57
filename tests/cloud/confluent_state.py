"""What a stand-in of Confluent Cloud has in it, and how its things come to be slowly.

Tests read and set all of it: each kind is a dict, by id, of documents as the API answers them.
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
    """A call is refused. `shape` is how the plane words it: `errors`, `error_code`, `connect` or `html`."""

    def __init__(self, status: int, detail: str, code: str | int = "", shape: str = "errors"):
        super().__init__(detail)
        self.status, self.detail, self.code, self.shape = status, detail, code, shape


class State:
    """Everything in one organization. A thing of a cluster or an environment has an id that begins with theirs."""

    def __init__(self, url: str, admin: tuple[str, str]):
        """Parameters: the stand-in's own address; id and secret of the Cloud API key that is there from the start."""
        self.url, self.admin = url, admin
        self.polls = 1
        """How often a thing is looked at before it is ready, or gone."""
        self.list_lag = 0
        """How often a list is asked for before a new thing is in it."""
        self.key_lag = 0
        """How often a new key is refused before it is known."""
        self.role_lag = 0
        """How often a new role binding is not yet heeded."""
        self.page_size = 100

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
        self.tableflow_topics: dict[str, Document] = {}
        self.pools: dict[str, Document] = {}
        self.statements: dict[str, Document] = {}
        self.subjects: dict[str, set[str]] = defaultdict(set)
        """By Schema Registry."""

        self._pending: dict[str, tuple[int, Callable[[], None]]] = {}
        self._hidden: dict[str, int] = {}
        self._spreading: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def new_id(self, prefix: str) -> str:
        """An id that no thing had before."""
        return f"{prefix}-{next(self._numbers):06}"

    def metadata(self, path: str, crn: str) -> Document:
        """What every document has of its own making."""
        now = dt.datetime.now(dt.UTC).isoformat().replace("+00:00", "Z")
        return {"self": self.url + path, "resource_name": crn, "created_at": now, "updated_at": now}

    def add(self, kind: dict[str, Document], thing_id: str, document: Document) -> Document:
        """Put a new thing in; lists show it when `list_lag` is over."""
        kind[thing_id] = document
        self._hidden[thing_id] = self.list_lag
        return document

    def after_polls(self, thing_id: str, change: Callable[[], None]) -> None:
        """Make a change when the thing was looked at `polls` times."""
        self._pending[thing_id] = self.polls, change

    def look(self, thing_id: str) -> None:
        """Somebody looks: what was to come may come."""
        if thing_id in self._pending:
            left, change = self._pending.pop(thing_id)
            if left:
                self._pending[thing_id] = left - 1, change
            else:
                change()

    def become(self, kind: dict[str, Document], thing_id: str, phase: str) -> None:
        """Let a thing come to a phase after some looks at it."""

        def change() -> None:
            if thing_id in kind:
                kind[thing_id]["status"]["phase"] = phase

        self.after_polls(thing_id, change)

    def vanish(self, kind: dict[str, Document], thing_id: str) -> None:
        """Let a thing go after some looks at it."""
        self.after_polls(thing_id, lambda: kind.pop(thing_id, None))

    def listed(self, kind: dict[str, Document], keep: Callable[[Document], bool] = lambda each: True) -> list[Document]:
        """The things of a kind that a list shows by now."""
        shown = []
        for thing_id, document in list(kind.items()):
            if self._hidden.get(thing_id, 0):
                self._hidden[thing_id] -= 1
            elif keep(document):
                shown.append(document)
        return shown

    def new_key(self, document: Document, secret: str) -> None:
        """Put a key in, which its plane learns of when `key_lag` is over."""
        self.add(self.keys, document["id"], document)
        self.secrets[document["id"]] = secret
        self._spreading[document["id"]] = self.key_lag

    def new_binding(self, document: Document) -> None:
        """Put a role binding in, which is heeded when `role_lag` is over."""
        self.add(self.bindings, document["id"], document)
        self._spreading[document["id"]] = self.role_lag

    def spread(self, thing_id: str) -> bool:
        """Whether a new key or binding is known by now, to the one who asks."""
        left = self._spreading.get(thing_id, 0)
        self._spreading[thing_id] = max(0, left - 1)
        return not left

    def require_role(self, owner_id: str, roles: tuple[str, ...], crn: str) -> None:
        """Raises: Problem when the account has none of the roles on something that comprises the CRN."""
        for binding in list(self.bindings.values()):
            fits = binding["principal"] == f"User:{owner_id}" and binding["role_name"] in roles
            if fits and crn.startswith(binding["crn_pattern"].rstrip("*")) and self.spread(binding["id"]):
                return
        raise Problem(403, "Forbidden Access", "forbidden_access")

    def environment(self, environment_id: str) -> Document:
        """Raises: Problem when there is no such environment."""
        if environment_id not in self.environments:
            raise Problem(403, "Forbidden Access", "forbidden_access")
        return self.environments[environment_id]

    def cluster(self, environment_id: str, cluster_id: str) -> Document:
        """Raises: Problem when there is no such cluster in the environment."""
        cluster = self.clusters.get(cluster_id)
        if not cluster or cluster["spec"]["environment"]["id"] != environment_id:
            raise Problem(403, "Forbidden Access", "forbidden_access")
        return cluster

    def registry_of(self, environment_id: str) -> str | None:
        """The id of an environment's Schema Registry."""
        for registry_id, document in self.registries.items():
            if document["spec"]["environment"]["id"] == environment_id:
                return registry_id
        return None

    def reference(self, environment_id: str) -> Document:
        """An environment as other documents refer to it."""
        return {
            "id": environment_id,
            "related": f"{self.url}/org/v2/environments/{environment_id}",
            "resource_name": f"{ORGANIZATION}/environment={environment_id}",
        }

    def cluster_reference(self, environment_id: str, cluster_id: str) -> Document:
        """A cluster as other documents refer to it."""
        return {
            "id": cluster_id,
            "environment": environment_id,
            "related": f"{self.url}/cmk/v2/clusters/{cluster_id}",
            "resource_name": f"{ORGANIZATION}/environment={environment_id}/cloud-cluster={cluster_id}",
        }

    def write_schema(self, environment_id: str, topic: str) -> None:
        """As a producer with a new kind of record does."""
        self.subjects[self.registry_of(environment_id)].add(f"{topic}-value")

    def remove_cluster(self, cluster_id: str) -> None:
        """Take a cluster away with all that is in it."""
        self.clusters.pop(cluster_id, None)
        for kind in (self.topics, self.acls, self.connectors, self.catalogs, self.tableflow_topics):
            for thing_id in [each for each in kind if each.startswith(f"{cluster_id}/")]:
                del kind[thing_id]

    def remove_environment(self, environment_id: str) -> None:
        """Take an environment away with all that is in it."""
        for kind in (self.clusters, self.registries, self.pools, self.integrations):
            for thing_id in [k for k, each in kind.items() if _environment_of(each) == environment_id]:
                self.remove_cluster(thing_id) if kind is self.clusters else kind.pop(thing_id)
        for thing_id in [each for each in self.statements if each.startswith(f"{environment_id}/")]:
            del self.statements[thing_id]
        del self.environments[environment_id]


def new_secret() -> str:
    """A secret that is easy to find where it must not be."""
    return f"secret-{uuid.uuid4().hex}"


def _environment_of(document: Document) -> str:
    return document.get("spec", document)["environment"]["id"]
