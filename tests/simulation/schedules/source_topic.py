"""Events of a source topic: producers append records, the broker deletes some, an operator recreates it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulation.choices import Choices
from tests.simulation.oracles.oracle import Oracle
from tests.simulation.systems.kafka import MemoryKafka, Partition
from tests.simulation.systems.registry import LATE, OWN
from tests.simulation.world import World

GOOD = ("good",)
KINDS = (*GOOD * 3, "garbage", "late", "null", "poison")
"""Kinds of records: with a value that decodes, does not decode, has a schema that is not registered yet, is null, or
aborts decoding."""


class SourceTopic:
    """A topic, and the oracles of the tables that receive its records.

    Attributes:
        kinds: The kinds of records that producers append.
        keys: The number of keys in each partition.
        schema_ids: The ids of the schemas that producers use.
    """

    def __init__(self, choices: Choices, world: World, kafka: MemoryKafka, *oracles: Oracle):
        self._choices, self._world, self._kafka, self._oracles = choices, world, kafka, oracles
        self._values = 0
        self.kinds: Sequence[str] = KINDS
        self.keys = 2
        self.schema_ids = [OWN]

    def produce(self) -> None:
        """Append records to a partition."""
        partition = self._choices.of(list(self._kafka.log))
        records = []
        for _ in range(self._choices.of((1, 2, 3))):
            self._values += 1
            kind = self._choices.of(self.kinds)
            records.append(
                {
                    # A key stays in its partition.
                    "key": self._choices.below(self.keys) * 10 + partition,
                    "value": None if kind == "null" else self._values,
                    "schema_id": LATE if kind == "late" else self._schema_id(),
                    "is_garbage": kind == "garbage",
                    "is_poison": kind == "poison",
                }
            )
        self._kafka.produce(partition, records)
        self._world.record(f"producer: {len(records)} records in partition {partition}")

    def _schema_id(self) -> int:
        return self._choices.of(self.schema_ids) if len(self.schema_ids) > 1 else OWN

    def transact(self) -> None:
        """Begin or end a transaction."""
        partition = self._choices.of(list(self._kafka.log))
        if self._kafka.log[partition].open_from is None:
            self._kafka.begin(partition)
        else:
            self._kafka.end(partition, commits=bool(self._choices.below(2)))
        self._world.record(f"producer: transaction in partition {partition}")

    def retain(self) -> None:
        """Delete old records, perhaps some that were not ingested."""
        partition = self._choices.of(list(self._kafka.log))
        part = self._kafka.log[partition]
        start = part.start + self._choices.below(4)
        self._kafka.retain(partition, start)
        self._world.record(f"broker: partition {partition} begins at {part.start}")

    def compact_log(self) -> None:
        """Delete the records that have a newer one for their key."""
        partition = self._choices.of(list(self._kafka.log))
        part = self._kafka.log[partition]
        records = sorted(part.records.values(), key=lambda record: record.offset)
        for index, record in enumerate(records):
            if record.offset < part.stable_end and any(later.key == record.key for later in records[index + 1 :]):
                del part.records[record.offset]
                for oracle in self._oracles:
                    topic_id, position = oracle.position
                    if topic_id != self._kafka.topic_id or record.offset >= position.get(partition, 0):
                        oracle.uncertain.add((record.topic_id, partition, record.offset))
                self._world.record(f"broker: compacted offset {record.offset} of partition {partition}")

    def recreate(self) -> None:
        """Delete the topic and create it again."""
        self._kafka.recreate(len(self._kafka.log))
        self._world.record("operator: recreated the topic")

    def add_partition(self) -> None:
        """Add a partition to a topic that has fewer than three."""
        if (partition := len(self._kafka.log)) < 3:
            self._kafka.log[partition] = Partition()
            self._world.record(f"operator: added partition {partition}")

    def resumable(self, oracle: Oracle) -> str:
        """Return the offsets at which an operator resumes a table: its own, or a few further, if the log allows it."""
        topic_id, position = oracle.position
        offsets = {}
        for p, part in self._kafka.log.items():
            wanted = position.get(p, part.start) if topic_id == self._kafka.topic_id else part.start
            offsets[p] = min(max(wanted, part.start) + self._choices.of((0, 0, 0, 2)), part.stable_end)
        if oracle.chosen is not None:
            oracle.chosen.append(offsets)
        return ",".join(f"{p}:{offset}" for p, offset in offsets.items())

    def end_transactions(self) -> None:
        """Commit the transactions that are open."""
        for partition, part in self._kafka.log.items():
            if part.open_from is not None:
                self._kafka.end(partition, commits=True)

    def events(self) -> dict[str, Callable[[], object]]:
        """Return the events that a schedule may choose, by name."""
        return {
            "produce": self.produce,
            "transact": self.transact,
            "retain": self.retain,
            "compact_log": self.compact_log,
            "recreate": self.recreate,
        }
