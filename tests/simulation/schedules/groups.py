"""Schedules of streams of one group with a derived entry, lost memberships, and a topic that comes and goes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from zlib import crc32

from pyiceberg.table.metadata import TableMetadata

from lakehouse.config.model import Topic
from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.bookmarks import set_derived_bookmark
from lakehouse.streaming.stream import Stream
from lakehouse.streaming.stream_events import Event
from resources.kafka.stream_group import GroupUnavailable
from tests.simulation.choices import Choices
from tests.simulation.engine.derived_rows import parsed
from tests.simulation.engine.tables import MemoryTables
from tests.simulation.oracles.oracle import RESUMED, Oracle, Place, TruncationOracle, Violation, place_of
from tests.simulation.schedules.derivation import TARGET, derived_topic
from tests.simulation.schedules.schedule import NAMESPACE
from tests.simulation.schedules.source_topic import GOOD
from tests.simulation.schedules.streams import Ends, StreamSchedule
from tests.simulation.systems.cluster import MemoryConsumer
from tests.simulation.systems.kafka import Record
from tests.simulation.systems.message_cluster import MessageCluster
from tests.simulation.threads import threads_in_memory
from tests.simulation.world import Machine, replaced

ACTIONS = (
    *("produce orders", "produce refunds", "stream", "stream once", "time passes", "freeze", "expel", "register"),
    *("produce orders", "produce refunds", "stream", "stop one", "freeze", "expel", "transact orders", "retain orders"),
    *("produce orders", "stream", "unreadable", "delete refunds", "create refunds", "truncate refunds", "reconfigure"),
    *("maintain orders", "resume refunds", "resume orders", "delete derived", "recreate refunds", "kill one"),
)
SHORT_SECONDS = 5.0
"""The longest pause during which other threads run."""

FROZEN_SECONDS = 5.0, 15.0, 100.0, 700.0
"""Seconds for which a machine stands still. After ten, its member is removed from the group."""

TOGETHER_SECONDS = 180
"""Seconds after which streams of a group have served all topics: a lost member's session, and a turn that is waited
for, take 70 of them."""


class GroupSchedule(StreamSchedule):
    """A schedule in which streams of a group ingest and derive.

    Attributes:
        excused: The places of records that an operator decided not to derive.
        is_strict: Whether each batch must be written by the stream to which its topic is assigned.
    """

    cluster, turns = MessageCluster, 240
    _kafka: MessageCluster

    def __init__(self, choices: Choices):
        self.is_grouped = bool(choices.below(2))
        super().__init__(choices)
        self.actions, self.excused, self.is_strict = choices.without_some(ACTIONS), set[Place](), False
        self._alone: list[Machine] = []
        self._derived, self._judged = self._sources.pop(TARGET), 0
        self._sources["refunds"].kinds = GOOD
        if choices.below(2):
            self._kafka.delete("refunds")

    def _declared(self, limits: Mapping[str, Any]) -> Sequence[Topic]:
        return (
            Topic(name="orders", errors=self.choices.of(("log", "suspend")), **limits),
            derived_topic(is_grouped=self.is_grouped).model_copy(update={"continuous": True}),
            Topic(name="refunds", errors="log", **limits),
        )

    def _oracle(self, topic: Topic, tables: MemoryTables) -> Oracle:
        kind = TruncationOracle if topic.name == "refunds" else Oracle
        return kind(topic.mode, self._kafka.topics[topic.topic], tables, is_shared=topic.name == "orders")

    # The oracle

    def _judge_write(self, name: str, machine: Machine, table: TableMetadata) -> None:
        """Judge also that the topic is assigned to the stream, if no membership changes."""
        super()._judge_write(name, machine, table)
        if not self.is_strict or any(machine is other for other in self._alone):
            return
        topic, partitions = self._config.topics[name].topic, len(self._kafka.topics[name].log)
        deciding = topic, crc32(topic.encode()) % partitions
        if not any(member.machine is machine and deciding in member.assigned for member in self._members()):
            self._oracles[name].violations.append(f"a stream writes a batch of {name}, which another one serves")

    def _note(self, event: Event) -> None:
        super()._note(event)
        if "orders" in self._reported:
            # What is derived from it waits, too.
            self._reported.add(TARGET)
        if isinstance(event, GroupUnavailable) and self.world.current:
            self._alone.append(self.world.current.machine)

    def _raise_violations(self) -> None:
        """Judge also that no row was derived twice, unless its group was derived again."""
        derived = self._kafka.produced.topics.get(TARGET)
        number = sum(map(len, derived.partitions)) if derived else 0
        if number != self._judged and not self.is_grouped:
            counts = Counter(place for _, places in self._messages() for place in places)
            if twice := [place for place, count in counts.items() if count > 1]:
                self._oracles[TARGET].violations.append(f"rows were derived twice: {twice}")
        self._judged = number
        super()._raise_violations()

    def _messages(self) -> list[tuple[bytes, list[Place]]]:
        """Return the key and the rows of each derived message, in order."""
        if TARGET not in self._kafka.produced.topics:
            return []
        committed = self._kafka.produced.committed(TARGET, 0)
        return [(m.key or b"", parsed(m.value)[1]) for m in committed]

    def _serves(self, name: str, ends: Ends) -> bool:
        """Return also whether the rows of the source were derived."""
        return super()._serves(name, ends) and (name != TARGET or not self._underived(ends))

    def _lacking(self, errors: Mapping[str, Exception], ends: Ends) -> list[str]:
        """Return also the derived entry if rows of its source were not derived, or not ingested, without an error."""
        is_derived = bool({"orders", TARGET} & errors.keys()) or not (self._underived(ends) or self._pending(ends))
        return super()._lacking(errors, ends) + ([] if is_derived else [TARGET])

    def _pending(self, ends: Ends) -> list[int]:
        """Return the offsets of the first message of each row before the ends that the derived table lacks."""
        (topic_id, end), (_, position) = ends["orders"], self._oracles[TARGET].position
        first: dict[Place, int] = {}
        for record, (_, places) in zip(self._records(), self._messages(), strict=True):
            first |= {place: record.offset for place in places if place not in first}
        required = (o for (id_, p, at), o in first.items() if id_ == topic_id and at < end.get(p, 0))
        return [offset for offset in required if offset >= position.get(0, 0)]

    def _records(self) -> list[Record]:
        """Return the records that the derived messages are, in order."""
        log = self._kafka.topics[TARGET].log
        return [record for part in log.values() for offset, record in sorted(part.records.items())]

    def _underived(self, ends: Ends) -> list[Place]:
        """Return the rows of the source before the ends of which no message, or no newest one, was derived."""
        topic_id, end = ends["orders"]
        messages = dict(self._messages()).items() if self.is_grouped else self._messages()
        derived = {place for _, places in messages for place in places} | self.excused
        rows = (place_of(row.record) for row in self._oracles["orders"].rows())
        return [p for p in rows if p[0] == topic_id and p[2] < end.get(p[1], 0) and p not in derived]

    # Programs and events

    def _programs(self) -> dict[str, Callable[[], object]]:
        topic, where = self._config.topics[TARGET], lambda: self._derived.resumable(self._oracles[TARGET])
        resuming = lambda: resume(self._clients, NAMESPACE, topic, where(), RESUMED)  # noqa: E731
        return super()._programs() | {f"resume {TARGET}": resuming, "bookmark": self._set_bookmark}

    def _set_bookmark(self) -> None:
        """Skip all rows of the source."""
        self.excused |= self._kafka.topics["orders"].every_record.keys()
        set_derived_bookmark(self._config, self._config.topics[TARGET], self._clients, "latest", "simulated")

    def _events(self) -> dict[str, Callable[[], object]]:
        existing = {n: e for n, e in super()._events().items() if self._refunds.log or not n.endswith("refunds")}
        further: dict[str, Callable[[], object]] = {
            "freeze": self._freeze,
            "expel": self._expel,
            "stop one": self._stop_one,
            "kill one": self._kill,
            "create refunds": self._create,
            "delete refunds": partial(self._kafka.delete, "refunds"),
            "truncate refunds": self._lose,
            "delete derived": self._delete,
            "reconfigure": self._reconfigure,
        }
        # Nothing happens to a topic that does not exist.
        return {**dict.fromkeys(ACTIONS, lambda: None), **existing, **further}

    @property
    def _refunds(self) -> Any:
        return self._kafka.topics["refunds"]

    def _create(self) -> None:
        """Create the topic that others create, if it does not exist."""
        if not self._refunds.log:
            self._refunds.recreate(1)
            self.world.record("operator: created refunds")

    def _lose(self) -> None:
        """Let an unclean election lose the newest record, unless a stream with `once` may have to ingest it."""
        part = self._refunds.log.get(0)
        if part and not self._is_once() and part.open_from is None and part.end > part.start:
            record = part.records.get(part.end - 1)
            self._refunds.truncate(0)
            oracle = self._oracles["refunds"]
            if record and isinstance(oracle, TruncationOracle):
                del self._refunds.every_record[place_of(record)]
                oracle.truncated(record)
            self.world.record(f"broker: refunds ends at {part.end}")

    def _delete(self) -> None:
        """Delete the derived topic, so that everything is derived again, unless a stream with `once` derives it."""
        if not self._is_once():
            self._kafka.delete(TARGET)
            self.world.record("operator: deleted the derived topic")

    def _reconfigure(self) -> None:
        """Change all entries; streams that start from now on have the new ones."""
        self._change_topics({"max_records_per_batch": self.choices.of((4, 2, 8)), "errors": "log"})

    def _members(self) -> list[MemoryConsumer]:
        return [member for group in self._kafka.groups.values() for member in group.members]

    def _is_once(self) -> bool:
        """Return whether a stream with `once` runs."""
        return any(stream.once and not machine.is_killed for stream, machine in self._streams.items())

    def _running(self) -> list[Stream]:
        """Return the streams of the group that run."""
        return [stream for stream, machine in self._streams.items() if not (stream.once or machine.is_killed)]

    def _freeze(self) -> None:
        """Let a stream's machine stand still."""
        if running := self._running():
            machine, seconds = self._streams[self.choices.of(running)], self.choices.of(FROZEN_SECONDS)
            machine.frozen_until = self.world.monotonic() + seconds
            self.world.record(f"a stream's machine stands still for {seconds:.0f} s")

    def _expel(self) -> None:
        """Let the coordinator remove a member."""
        if members := self._members():
            member = self.choices.of(members)
            member.group.expel(member)
            self.world.record("the coordinator removed a member")

    def _stop_one(self) -> None:
        """Stop one stream."""
        if running := self._running():
            stream = self.choices.of(running)
            stream.stop()
            del self._streams[stream]

    def _kill(self) -> None:
        """Kill one stream."""
        if running := self._running():
            self._streams[self.choices.of(running)].is_killed = True

    # The schedule

    def replacements(self) -> AbstractContextManager[None]:
        """Simulate the threads, of which another may run while one sleeps."""
        return replaced(threads_in_memory(self.world, self._note) | {time: {"sleep": self._sleep}})

    def _sleep(self, seconds: float) -> None:
        """Let other threads run during a short pause. A long one would be thousands of turns of idle threads."""
        (self._kafka.pause if seconds <= SHORT_SECONDS else self.world.advance)(seconds)

    def _recover(self) -> None:
        self.world.end_pauses()
        super()._recover()
        if lost := self._underived(self._ends()):
            raise Violation(f"`stream --once` has ended, and rows were not derived: {lost}")
        if not (self._kafka.leaderless | self._kafka.forbidden) and self.choices.below(2):
            self._serve_together()

    def _remedy(self, name: str, error: Exception) -> None:
        match error:
            case UnclearState() if "lakehouse bookmark" in str(error):
                self._finish("bookmark")
            case LakehouseError() if "Create it" in str(error) and name == "refunds":
                self._create()
            case _:
                super()._remedy(name, error)

    def _serve_together(self) -> None:
        """Judge that two streams divide the topics, and that one continues when the other loses its membership."""
        self._keep_dead_letters()
        for _ in range(2):
            self.world.start("stream", self._programs()["stream"])
        self._serve_strictly()
        for losing in (self._expel, self._freeze):
            losing()
            self._serve_new()
            self.world.end_pauses()
            self._serve_strictly()
        self._stop_one()
        self._serve_new()
        self._delete()
        self._await_served()
        self._stop()
        self._run_until(lambda: not self.world.processes, "streams do not stop")

    def _serve_strictly(self) -> None:
        """Judge that two streams that have joined their group divide new records."""
        joined = lambda: len(self._members()) == 2 and all(member.is_settled for member in self._members())  # noqa: E731
        self._run_until(lambda: len(self._running()) == 2 and joined(), "streams do not join their group")
        self.is_strict = True
        self._serve_new()
        self.is_strict = False

    def _serve_new(self) -> None:
        """Let streams serve new records."""
        for source in self._sources.values():
            source.produce()
        self._await_served()

    def _await_served(self) -> None:
        began, ends = self.world.monotonic(), self._ends()
        self._run_until(lambda: all(self._serves(name, ends) for name in ends), "streams do not serve all topics")
        if (seconds := self.world.monotonic() - began) > TOGETHER_SECONDS:
            raise Violation(f"streams took {seconds:.0f} s to serve all topics")
