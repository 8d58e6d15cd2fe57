"""Permissions and keys of each service account, derived from lakehouse.yaml."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from lakehouse.core.offsets.bookmark import TOPIC as BOOKMARKS
from lakehouse.deploy.confluent.access.service_accounts import Role
from lakehouse.deploy.confluent.topics.declared_topics import DeclaredTopics
from lakehouse.deploy.names import ACCOUNTS, CONFLUENT_SECRETS, ROTATION, Names

FLINK_ROLES = (
    Role("FlinkDeveloper", "{environment}"),
    Role("ResourceOwner", "{kafka}/topic=*"),
    Role("ResourceOwner", "{kafka}/transactional-id=*"),
    Role("Assigner", "{account}"),
    Role("ResourceOwner", "{registry}/subject=*"),
)
ASSIGNER = Role("Assigner", "{integration}")
OWN = "lakehouse*"
"""Consumer groups and transactional ids that assets use; Spark's own source names its groups otherwise."""
SPARK_GROUPS = "spark-kafka-relation*"


@dataclass(frozen=True)
class DeclaredAccess:
    """Roles, access control lists and keys, by purpose of the account."""

    topics: DeclaredTopics
    names: Names

    @cached_property
    def roles(self) -> dict[str, tuple[Role, ...]]:
        """The roles, but for the one on the provider integration."""
        subjects = "{registry}/subject=*"
        manager = [Role("CloudClusterAdmin", "{cluster}")]
        if self.topics.tables:
            manager.append(Role("DeveloperRead", subjects))
        roles = {
            "app_manager": tuple(manager),
            "schema_registry": (Role("DeveloperRead", subjects), Role("DeveloperWrite", subjects)),
            "spark": tuple(dict.fromkeys(self._spark_roles())),
            # Confluent has no narrower role with which to create and delete the keys of a service account.
            ROTATION: tuple(Role("ResourceOwner", f"{{account_{purpose}}}") for purpose in self.accounts),
        }
        return roles | ({"flink": FLINK_ROLES} if self.topics.deployment.flink else {})

    @property
    def accounts(self) -> tuple[str, ...]:
        """The purposes of the service accounts."""
        return tuple(purpose for purpose in ACCOUNTS if purpose != "flink" or self.topics.deployment.flink)

    @cached_property
    def secrets(self) -> dict[tuple[str, str], str]:
        """The secret of each key that is needed, by purpose of the account and API."""
        needless = set()
        if not self.topics.tables:
            needless.add(("app_manager", "tableflow"))
        if not self.topics.stored_by_confluent:
            needless.add(("spark", "tableflow"))
        if not self.topics.deployment.flink:
            needless.add(("flink", "flink"))
        return {key: self.names.confluent_secret(*key) for key in CONFLUENT_SECRETS if key not in needless}

    @cached_property
    def acls(self) -> dict[str, tuple[tuple[str, str, str], ...]]:
        """The access control lists: operation, resource type and resource name."""
        topics = self.topics
        produced = [entry.topic for entry in topics.all if not entry.source.writes]
        acls = {
            "app_producer": [("WRITE", "TOPIC", topic) for topic in produced if topic not in topics.statements],
            "app_consumer": [
                ("READ", "GROUP", self.names.confluent),
                *(("READ", "TOPIC", entry.topic) for entry in topics.all),
            ],
            "app_connector": [
                ("DESCRIBE", "CLUSTER", "kafka-cluster"),
                *(("WRITE", "TOPIC", entry.topic) for entry, _ in topics.generated),
            ],
            "spark": list(self._spark_acls()),
        }
        return {purpose: tuple(dict.fromkeys(allowed)) for purpose, allowed in acls.items() if allowed}

    def _spark_acls(self) -> Iterator[tuple[str, str, str]]:
        """Read every topic that has a table; write derived topics and dead letters.

        Lists and not roles: Basic clusters have no roles on topics and groups, and no role below an administrator's
        describes the cluster or configurations.
        """
        topics = self.topics
        yield "DESCRIBE", "CLUSTER", "kafka-cluster"
        for topic in ["*"] if topics.config.routes else [entry.topic for entry in topics.all]:
            yield "READ", "TOPIC", topic
        for group in (OWN, SPARK_GROUPS):
            yield "READ", "GROUP", group
        for topic in topics.written:
            # They are also read, to find what was produced before.
            for operation in ("WRITE", "READ", "DESCRIBE_CONFIGS"):
                yield operation, "TOPIC", topic
        if topics.written:
            for operation in ("WRITE", "DESCRIBE"):
                yield operation, "TRANSACTIONAL_ID", OWN
            # The first bookmark creates the topic.
            for operation in ("CREATE", "READ", "WRITE"):
                yield operation, "TOPIC", BOOKMARKS

    def _spark_roles(self) -> Iterator[Role]:
        """Read all schemas and the tables in Confluent's storage, and register the schemas of derived topics."""
        yield Role("DeveloperRead", "{registry}/subject=*")
        # Tableflow has no lists: roles on a topic apply to its table (Confluent, Role-Based Access for Tableflow).
        for topic in self.topics.stored_by_confluent:
            yield Role("DeveloperRead", f"{{kafka}}/topic={topic.topic}")
        for topic in self.topics.all:
            if topic.source.writes:
                for side in ("key", "value"):
                    yield Role("DeveloperWrite", f"{{registry}}/subject={topic.subject(side)}")
