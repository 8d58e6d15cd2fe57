"""A Kafka cluster in memory in which programs create topics and produce messages, which streams ingest as records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from resources.kafka.kafka import Offsets
from tests.simulation.systems.cluster import MemoryCluster
from tests.simulation.systems.kafka import MemoryKafka, Record
from tests.simulation.systems.messages import MessageKafka, Received
from tests.simulation.systems.registry import OWN
from tests.simulation.world import World

DERIVED_TOPIC = "derived"
REFUSED = "letters"
"""The topic that the cluster refuses to create."""


class MessageCluster(MemoryCluster):
    """A cluster with transactional producers.

    Attributes:
        produced: The topics of messages. Each is also one of `topics`, which has its messages as records.
    """

    def __init__(self, world: World, partitions: Mapping[str, int]):
        super().__init__(world, partitions)
        # It does not exist until a program creates it.
        self.topics[DERIVED_TOPIC] = MessageLog(world, DERIVED_TOPIC, 0)
        self.produced = _Messages(world, self._changed)

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic of messages at once."""
        self.produced.create(topic, partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self.topics[topic].recreate(0)
        self.produced.topics.pop(topic, None)

    def ensure_topic(self, topic: str, *arguments: Any, **settings: Any) -> None:
        """Create a topic if it does not exist, except the one that the cluster refuses to create."""
        if topic == REFUSED:
            super().ensure_topic(topic)
        self.produced.ensure_topic(topic, *arguments, **settings)

    def offsets(self, topics: Sequence[str], *, committed: bool = True) -> dict[str, dict[int, Offsets]]:
        """Return where each partition starts and ends; no topic has a result if one is unreadable."""
        self.produced.expire()
        return super().offsets(topics, committed=committed)

    def topic_setting(self, topic: str, name: str) -> str | None:
        """Return a setting of a topic."""
        return self.produced.topic_setting(topic, name)

    def messages(self, topic: str, partition: int, start: int, end: int) -> Iterator[Received]:
        """Yield the committed messages of a range."""
        return self.produced.messages(topic, partition, start, end)

    def producer(self, **config: Any) -> Any:
        """Return a producer."""
        return self.produced.producer(**config)

    enqueue = staticmethod(MessageKafka.enqueue)

    def translate_errors(self) -> AbstractContextManager[None]:
        """Translate errors as the production client does."""
        return self.produced.translate_errors()

    def _changed(self, topic: str) -> None:
        """Let the records of a topic be its messages."""
        log = self.topics.setdefault(topic, MessageLog(self._world, topic, 0))
        messages = self.produced.topics[topic]
        if log.topic_id != messages.topic_id or not log.log:
            log.recreate(len(messages.partitions))
            log.topic_id = messages.topic_id
        for p, slots in enumerate(messages.partitions):
            part, known = log.log[p], log.every_record
            part.end = len(slots)
            states = [slot.transaction.state if slot.transaction else "" for slot in slots]
            part.open_from = states.index("open") if "open" in states else None
            for offset, slot in enumerate(slots):
                place = log.topic_id, p, offset
                if slot.message and states[offset] == "committed" and place not in known:
                    # Bookmarks have names as keys, and are not ingested.
                    name = slot.message.key or b""
                    key = int(name) if name.isdigit() else 0
                    at = self._world.now()
                    known[place] = part.records[offset] = Record(*place, key, offset + 1, OWN, False, False, at)


class MessageLog(MemoryKafka):
    """The records of a topic of messages."""

    def age(self, topic_id: str) -> int:
        """Return a number that is greater for a topic that was created later."""
        return int(topic_id.removeprefix("messages"))


class _Messages(MessageKafka):
    """Topics of messages that report when one of them has changed."""

    def __init__(self, world: World, on_change: Callable[[str], None]):
        super().__init__(world, "", 0)
        self._on_change = on_change

    def create(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Create a topic at once."""
        super().create(topic, partitions, settings)
        self._on_change(topic)

    def write(self, transactional_id: str, topic: str, message: Received, partition: int) -> None:
        """Append a message to a transaction."""
        super().write(transactional_id, topic, message, partition)
        self._on_change(topic)

    def end_transaction(self, transactional_id: str, state: str) -> bool:
        """End the open transaction, and return whether there was one."""
        has_ended = super().end_transaction(transactional_id, state)
        for topic in [*self.topics] if has_ended else ():
            self._on_change(topic)
        return has_ended
