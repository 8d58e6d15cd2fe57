"""A Kafka cluster in memory with several topics, some of which may be unreadable, and with consumer groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from lakehouse.core.errors import LakehouseError, RequestRejected, Unreachable
from lakehouse.core.offsets.batch import Batch
from resources.kafka.errors import to_error
from resources.kafka.kafka import Offsets, TopicDescription
from tests.simulation.systems.kafka import MemoryKafka, Record
from tests.simulation.world import Machine, World

T = TypeVar("T")

SESSION_SECONDS = 10
"""Time after which the coordinator removes a member that was killed."""


class MemoryCluster:
    """The methods of resources.protocols.KafkaClient that a stream uses.

    Attributes:
        topics: The topics by name.
        leaderless: Topics of which a partition has no leader.
        forbidden: Topics that this client may not read.
    """

    servers = "memory:9092"

    # No program of a schedule calls these; a subclass implements some of them.
    enqueue: Any
    messages: Any
    producer: Any
    topic_setting: Any
    translate_errors: Any

    def __init__(self, world: World, partitions: Mapping[str, int]):
        self._world = world
        self.topics = {name: MemoryKafka(world, name, count) for name, count in partitions.items()}
        self.leaderless: set[str] = set()
        self.forbidden: set[str] = set()
        self.groups: dict[str, Group] = {}

    def cluster_id(self) -> str:
        """Return the id of the cluster."""
        return self._call("cluster_id", lambda: "cluster")

    def describe(self, topics: Sequence[str]) -> dict[str, TopicDescription]:
        """Return the topics that exist."""

        def descriptions() -> dict[str, TopicDescription]:
            self._require_permission(topics)
            existing = {name: self.topics[name] for name in topics if name in self.topics and self.topics[name].log}
            return {
                name: TopicDescription(topic.topic_id, len(topic.log), (0,) if name in self.leaderless else ())
                for name, topic in existing.items()
            }

        return self._call("describe", descriptions)

    def offsets(self, topics: Sequence[str], *, committed: bool = True) -> dict[str, dict[int, Offsets]]:
        """Return where each partition starts and ends; no topic has a result if one is unreadable."""

        def offsets() -> dict[str, dict[int, Offsets]]:
            if self.leaderless & {*topics}:
                raise Unreachable("Kafka", self.servers, "the brokers", "no leader")
            self._require_permission(topics)
            return {name: self._topic(name).bounds(committed=committed) for name in topics}

        return self._call("offsets", offsets)

    def ensure_topic(self, topic: str, *_: object, **settings: object) -> None:
        """Refuse to create a topic."""

        def refuse() -> None:
            raise RequestRejected("Kafka", self.servers, f"topic '{topic}'", "the permission to create topics")

        self._call("ensure_topic", refuse)

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        """Return the first offset at or after a time."""
        return self._topic(topic).offsets_at(topic, timestamp_ms)

    def oldest_timestamp(
        self, topic: str, positions: Mapping[int, int], ends: Mapping[int, int]
    ) -> dict[int, int | None]:
        """Return the timestamp of the first record at or after each position."""
        return self._topic(topic).oldest_timestamp(topic, positions, ends)

    def wait_for_records(
        self, ends: Mapping[str, Mapping[int, int]], seconds: float, is_over: Callable[[], bool]
    ) -> bool:
        """Return whether a partition has a committed record at or after its end, after waiting for one."""

        def has_records() -> bool:
            parts = ((self.topics[name].log.get(p), end) for name, of in ends.items() for p, end in of.items())
            return any(end <= offset < part.stable_end for part, end in parts if part for offset in part.records)

        self._world.wait(lambda: is_over() or has_records(), seconds)
        return has_records()

    def missing_topic_error(self, topic: str) -> LakehouseError:
        """Return the error for a topic that does not exist."""
        return self.topics[topic].missing_topic_error(topic)

    def spark_options(self) -> dict[str, str]:
        """Return nothing: the simulated engine reads this object."""
        return {}

    def native_login(self) -> str:
        """Return the login of the simulated engine, which needs none."""
        return "{}"

    def read(self, batch: Batch) -> list[Record]:
        """Return the committed records of a range."""
        if batch.topic in self.leaderless | self.forbidden:
            raise LookupError(f"topic {batch.topic} cannot be read")
        return self.topics[batch.topic].read(batch)

    def renew_login(self, client: Any) -> None:
        """Do nothing: simulated clients have no login."""

    def consumer(self, group: str, *, settings: Mapping[str, Any]) -> Any:
        """Return a consumer, which is a member of a group from its first poll on."""
        assert self._world.current is not None
        joined = self.groups.setdefault(group, Group(self))
        return MemoryConsumer(self, joined, self._world.current.machine)

    def poll(self, effect: Callable[[], T]) -> T:
        """Perform a call to the coordinator."""
        return self._call("poll", effect)

    def now(self) -> float:
        """Return the time of the coordinator."""
        return self._world.monotonic()

    def pause(self, seconds: float) -> None:
        """Let the present thread wait."""
        self._world.wait(lambda: False, seconds)

    def _require_permission(self, topics: Sequence[str]) -> None:
        if self.forbidden & {*topics}:
            error = to_error(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), self.servers)
            assert error is not None
            raise error

    def _topic(self, name: str) -> MemoryKafka:
        if not self.topics[name].log:
            raise self.missing_topic_error(name)
        return self.topics[name]

    def _call(self, operation: str, effect: Callable[[], T]) -> T:
        unreachable = lambda cause: Unreachable("Kafka", self.servers, "that it is up", cause)  # noqa: E731
        return self._world.call(f"kafka.{operation}", effect, unreachable)


class Group:
    """A consumer group whose members first give up all partitions, and then get their shares (eager rebalance).

    Attributes:
        members: The members, and when each was last seen.
        generation: The number of rebalances.
    """

    def __init__(self, cluster: MemoryCluster):
        self._cluster = cluster
        self.members: dict[MemoryConsumer, float] = {}
        self.generation = 0
        self._shared: list[tuple[str, int]] | None = None

    def rebalance(self) -> None:
        """Let all members join again."""
        self.generation += 1

    def expire(self) -> None:
        """Remove the members that were killed or are frozen."""
        now = self._cluster.now()
        for member, seen_at in list(self.members.items()):
            if not member.machine.is_killed and now >= member.machine.frozen_until:
                self.members[member] = now
            elif now - seen_at >= SESSION_SECONDS:
                self.expel(member)

    def expel(self, member: MemoryConsumer) -> None:
        """Remove a member, which learns of it when it polls."""
        del self.members[member]
        self.rebalance()

    def refresh(self, topics: Sequence[str]) -> None:
        """Let all members join again if the topics have other partitions than those that were shared."""
        if self._shared is not None and self._shared != self._existing(topics):
            self._shared = None
            self.rebalance()

    def _existing(self, topics: Sequence[str]) -> list[tuple[str, int]]:
        return [(name, p) for name in topics for p in self._cluster.topics[name].log]

    def shares(self, topics: Sequence[str]) -> dict[MemoryConsumer, list[tuple[str, int]]] | None:
        """Return the partitions of each member; None until all have joined the present generation."""
        if any(member.generation != self.generation for member in self.members):
            return None
        partitions, members = self._existing(topics), list(self.members)
        self._shared = partitions
        return {member: partitions[n :: len(members)] for n, member in enumerate(members)}


class MemoryConsumer:
    """The methods of confluent_kafka.Consumer that a member of a group uses.

    Attributes:
        group: The group.
        machine: The machine of the member.
        generation: The last rebalance in which it took part.
        assigned: The partitions that it knows to be its own.
    """

    def __init__(self, cluster: MemoryCluster, group: Group, machine: Machine):
        self._cluster, self.group, self.machine = cluster, group, machine
        self.generation, self._assigned_in, self._has_partitions = -1, -1, False
        self.assigned: frozenset[tuple[str, int]] = frozenset()

    def subscribe(
        self,
        topics: Sequence[str],
        *,
        on_assign: Callable[[Any, list[Any]], None],
        on_revoke: Callable[[Any, list[Any]], None],
        on_lost: Callable[[Any, list[Any]], None],
    ) -> None:
        """Join the group."""
        self._topics, self._on_assign, self._on_revoke, self._on_lost = topics, on_assign, on_revoke, on_lost
        self.group.members[self] = self._cluster.now()
        self.group.rebalance()

    @property
    def is_settled(self) -> bool:
        """True if it has its share of the newest generation."""
        return self._assigned_in == self.group.generation

    def poll(self, seconds: float) -> None:
        """Take part in the group's rebalances; there are no messages."""
        group = self.group
        self._cluster.pause(seconds)
        try:
            self._cluster.poll(group.expire)
        except Unreachable:
            return
        group.refresh(self._topics)
        if self not in group.members:
            self._give_up(self._on_lost)
            group.members[self] = self._cluster.now()
            group.rebalance()
        elif self.generation != group.generation:
            self._give_up(self._on_revoke)
            self.generation = group.generation
        elif self._assigned_in != self.generation and (shares := group.shares(self._topics)) is not None:
            self._assigned_in, self._has_partitions = self.generation, True
            self.assigned = frozenset(shares[self])
            self._on_assign(self, [SimpleNamespace(topic=name, partition=p) for name, p in shares[self]])

    def assign(self, partitions: Sequence[Any]) -> None:
        """Fetch nothing."""

    def unassign(self) -> None:
        """Fetch nothing."""

    def close(self) -> None:
        """Leave the group."""
        self._give_up(self._on_revoke)
        if self.group.members.pop(self, None) is not None:
            self.group.rebalance()

    def _give_up(self, then: Callable[[Any, list[Any]], None]) -> None:
        if self._has_partitions:
            self._has_partitions, self.assigned = False, frozenset()
            then(self, [])
