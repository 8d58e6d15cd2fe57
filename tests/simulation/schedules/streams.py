"""Schedules of streams: workers, the compactor, the group and Glue's publisher; two of three entries share a topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import SimpleNamespace
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from lakehouse.config.discovery import environment_name
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import BadRecords, CommitConflict, UnclearState
from lakehouse.core.table_protocol import TOKEN
from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.maintenance import maintain
from lakehouse.pipeline.redrive import redrive
from lakehouse.pipeline.replay import replay
from lakehouse.streaming.publishers import reader_publishers, request_publications
from lakehouse.streaming.stream import Stream
from lakehouse.streaming.stream_events import Event, TopicBackedOff
from tests.simulation.choices import Choices
from tests.simulation.engine.memory_engine import MemoryEngine
from tests.simulation.engine.tables import MemoryTables
from tests.simulation.oracles.oracle import RESUMED, Oracle, Violation
from tests.simulation.oracles.readers import ReaderOracle, newest_batch
from tests.simulation.schedules.schedule import NAMESPACE, RECOVERIES, UNLIMITED, exhaust
from tests.simulation.schedules.source_topic import SourceTopic
from tests.simulation.systems.catalog import MemoryIcebergCatalog, SimulatedCatalog
from tests.simulation.systems.cluster import MemoryCluster
from tests.simulation.systems.readers import MemoryGlueClient, MemorySnowflakeServer, SimulatedGlue, SimulatedSnowflake
from tests.simulation.systems.registry import LATE, MemoryRegistry
from tests.simulation.threads import threads_in_memory
from tests.simulation.world import Machine, World, replaced

TURNS = 160
ROUNDS = 300
"""Maximum number of times that each thread runs until programs without faults have done what they must."""

COMMAND_ROUNDS, PRODUCTION_ROUNDS, SLOWNESS = 5000, 10, 5
"""Maximum number of rounds of a command beside a stream; the rounds after which records are produced, and those of
which the command runs in one."""

CALL_SECONDS = 5.0
"""Time that a call of that command takes: it reads for longer than a reservation lasts without being renewed."""

ACTIONS = (
    *("produce orders", "produce refunds", "stream", "stream once", "register", "time passes", "maintain orders"),
    *("transact orders", "unreadable", "stop", "retain orders", "recreate refunds", "produce orders", "stream"),
    *("resume orders", "resume copies", "resume refunds", "redrive orders", "replay orders", "replay copies"),
)

Ends = Mapping[str, tuple[str, Mapping[int, int]]]
"""The id and the ends of each entry's topic."""


class StreamSchedule:
    """A schedule in which streams ingest two topics into three tables.

    Attributes:
        has_pauses: Whether calls are paused. If so, no schedule ends early or continues after the recovery.
        turns: How often an action or a thread is chosen; half as often in half of the schedules.
        cluster: The class of the cluster.
    """

    has_pauses, turns = False, TURNS
    cluster: type[MemoryCluster] = MemoryCluster

    def __init__(self, choices: Choices):
        self.choices, self.world = choices, World(choices)
        self.actions: Sequence[str] = ACTIONS
        world = self.world
        self._kafka = self.cluster(world, {"orders": choices.of((1, 2)), "refunds": 1})
        self._registry = MemoryRegistry(world, "orders", "refunds")
        self._iceberg = MemoryIcebergCatalog(world)
        engine = MemoryEngine(world, self._kafka, self._iceberg)
        self._clients = Clients(self._kafka, self._registry, engine, SimulatedCatalog.on(self._iceberg))
        topics = self._declared({"max_records_per_batch": choices.of((4, 2)), "continuous": True})
        by_name = {topic.name: topic for topic in topics}
        readers: dict[str, dict[str, str]] = {"glue": {}, "snowflake": {}}
        self._config = Config(namespace=NAMESPACE, topics=by_name, environments={environment_name(): readers})
        self._oracles = {t.name: self._oracle(t, engine) for t in topics}
        self._sources = {
            name: SourceTopic(choices, world, log, *(self._oracles[t.name] for t in topics if t.topic == name))
            for name, log in self._kafka.topics.items()
        }
        self._shows = ReaderOracle(self._iceberg.metadata_at, self._oracles["orders"].violations)
        self._glue = MemoryGlueClient(world, self._shows.on_shown)
        self._snowflake = MemorySnowflakeServer(world, self._iceberg, self._glue, self._shows.on_shown)
        self._streams: dict[Stream, Machine] = {}
        self._errors: Mapping[str, Exception] = {}
        self._reported: set[str] = set()
        self._staged: dict[tuple[str, int], Any] = {}
        self._written: set[tuple[str, int]] = set()
        self._refused: dict[tuple[str, int], tuple[Any, float, int]] = {}
        self._iceberg.on_commit = self._committed

    def _declared(self, limits: Mapping[str, Any]) -> Sequence[Topic]:
        """Return the entries."""
        mode = self.choices.of(("append", "upsert"))
        orders = {"mode": mode, "key": ("id",) if mode == "upsert" else (), "errors": "log"}
        return (
            # The cluster refuses to create this topic of dead letters.
            Topic(name="orders", dead_letter_topic="letters", **orders, **limits),
            Topic(name="copies", kafka_topic="orders", errors="log", **limits),
            Topic(name="refunds", errors=self.choices.of(("log", "suspend")), **limits),
        )

    def _oracle(self, topic: Topic, tables: MemoryTables) -> Oracle:
        return Oracle(topic.mode, self._kafka.topics[topic.topic], tables, is_shared=True)

    # The oracle

    def _committed(self, table: str, before: TableMetadata | None, after: TableMetadata) -> None:
        name = table.removesuffix("__dead_letters")
        self._oracles[name].committed(table, before, after)
        self._shows.committed(table, before, after)
        if before is None or table != name or self.world.current is None:
            return
        if len(after.snapshots) > len(before.snapshots) and before.current_snapshot_id == after.current_snapshot_id:
            self._judge_write(name, self.world.current.machine, after)

    def _judge_write(self, name: str, machine: Machine, table: TableMetadata) -> None:
        """Judge that a stream does not write a batch again that it refused, unless something has changed.

        What it read before another program committed may have decided the first refusal, so the second one counts.
        """
        summary = table.snapshots[-1].summary
        token = json.loads((summary and summary.additional_properties.get(TOKEN)) or "{}")
        if not token:
            return
        start = token["topic_id"], frozenset(token["start"].items())
        decided_by = table.current_snapshot_id, start, frozenset(self._registry.ids)
        refused, at, times = self._refused.get((name, id(machine)), (None, 0.0, 0))
        if decided_by == refused and times > 1 and self.world.monotonic() < at + 3600:
            self._oracles[name].violations.append(f"a refused batch of {name} is written again, and nothing changed")
        self._staged[name, id(machine)] = decided_by
        self._written.add((name, id(machine)))

    def _note(self, event: Event) -> None:
        """Note that a stream refused a batch."""
        process = self.world.current
        topic = getattr(event, "topic", "")
        error = f": {event.error}"[:100] if isinstance(event, TopicBackedOff) else ""
        self.world.record(f"event {type(event).__name__} {getattr(topic, 'name', topic)}{error}")
        if isinstance(event, TopicBackedOff):
            self._reported.add(event.topic)
        if process and isinstance(event, TopicBackedOff) and isinstance(event.error, BadRecords):
            key = event.topic, id(process.machine)
            if key in self._written:
                self._written.remove(key)
                before, _, times = self._refused.get(key, (None, 0.0, 0))
                times = times + 1 if before == self._staged[key] else 1
                self._refused[key] = self._staged[key], self.world.monotonic(), times

    def _raise_violations(self) -> None:
        for oracle in self._oracles.values():
            oracle.raise_violations()

    def _ends(self) -> Ends:
        """Return the id and the ends of each entry's topic."""
        logs = {name: self._kafka.topics[topic.topic] for name, topic in self._config.topics.items()}
        return {name: (log.topic_id, {p: part.stable_end for p, part in log.log.items()}) for name, log in logs.items()}

    def _has(self, name: str, ends: Ends) -> bool:
        """Return whether a table has all records before the ends of a topic that still exists."""
        (topic_id, end), (table_id, position) = ends[name], self._oracles[name].position
        kafka, reached = self._kafka.topics[self._config.topics[name].topic], position if table_id == topic_id else {}
        # Nothing can ingest records that were deleted meanwhile, or those of a topic that was recreated.
        return kafka.topic_id != topic_id or all(
            max(reached.get(p, 0), kafka.log[p].start) >= o for p, o in end.items()
        )

    def _serves(self, name: str, ends: Ends) -> bool:
        """Return whether a continuous stream has done everything for the records before the ends."""
        return self._has(name, ends)

    def _lacking(self, errors: Mapping[str, Exception], ends: Ends) -> list[str]:
        """Return the entries without an error whose tables lack records before the ends."""
        return [name for name in self._config.topics if name not in errors and not self._has(name, ends)]

    # Programs and events

    def _stream(self, *, once: bool) -> None:
        """Run a stream with its publishers, as assets/streaming/service.py does without Dagster."""
        process, ends = self.world.current, self._ends()
        assert process is not None
        stream = Stream(self._config, self._config.topics.values(), self._clients, once=once)
        self._streams[stream] = process.machine
        glue, snowflake = SimulatedGlue.on(self._glue), SimulatedSnowflake.on(self._snowflake)
        readers = SimpleNamespace(catalog=self._clients.catalog, glue=glue, snowflake=snowflake)
        publishers = reader_publishers(self._config, readers, lambda outcome: None)
        for publisher in publishers:
            publisher.start()
        for event in stream.run():
            request_publications(event, stream.topics, publishers)
        for publisher in publishers:
            publisher.finish(None if once else 10.0)
        if once and stream in self._streams:
            self._errors = stream.errors
            for name in self._lacking(stream.errors, ends):
                lacking = f"a stream ended without an error of {name}, and its table lacks records"
                self._oracles[name].violations.append(lacking)
        self._streams.pop(stream, None)

    def _stop(self) -> None:
        """Stop all streams; they finish the batches in progress."""
        for stream in self._streams:
            stream.stop()
        self._streams.clear()

    def _break(self) -> None:
        """Let a topic become unreadable, or all readable again. Jobs that fail meanwhile halve their batches."""
        kafka, names = self._kafka, list(self._kafka.topics)
        if kafka.leaderless or kafka.forbidden:
            kafka.leaderless, kafka.forbidden = set(), set()
        else:
            self.choices.of((kafka.forbidden, kafka.leaderless)).add(self.choices.of(names))
            for oracle in self._oracles.values():
                oracle.is_shared = False
        self.world.record(f"broker: {kafka.leaderless} have no leader, {kafka.forbidden} are forbidden")

    def _programs(self) -> dict[str, Callable[[], object]]:
        topics, clients = self._config.topics, self._clients
        where = lambda name: self._sources[topics[name].topic].resumable(self._oracles[name])  # noqa: E731
        resuming = {
            f"resume {name}": lambda name=name: resume(clients, NAMESPACE, topics[name], where(name), RESUMED)
            for name in topics
        }
        return resuming | {
            "stream": partial(self._stream, once=False),
            "stream once": partial(self._stream, once=True),
            "redrive orders": lambda: redrive(NAMESPACE, topics["orders"], clients),
            "replay orders": lambda: replay(NAMESPACE, topics["orders"], clients, "earliest"),
            "replay copies": lambda: replay(NAMESPACE, topics["copies"], clients, "earliest"),
            "maintain orders": lambda: exhaust(maintain(NAMESPACE, topics["orders"], clients.catalog, clients.engines)),
        }

    def _events(self) -> dict[str, Callable[[], object]]:
        events = [(f"{e} {name}", a) for name, source in self._sources.items() for e, a in source.events().items()]
        wait = lambda: self.world.advance(self.choices.of((5.0, 700.0, 4000.0)))  # noqa: E731
        other = {"register": self._register, "time passes": wait, "stop": self._stop}
        return {**dict(events), **other, "unreadable": self._break}

    def _register(self) -> None:
        self._registry.ids.add(LATE)

    def _act(self) -> None:
        name, programs = self.choices.of(self.actions), self._programs()
        if name not in programs:
            self._events()[name]()
        elif sum(not process.is_thread for process in self.world.processes) < 3:
            self.world.start(f"{name}-{len(self.world.events)}", programs[name])

    # The schedule

    def run(self) -> None:
        """Run the schedule with the threads of streams in memory.

        Raises:
            Violation: A promise was broken.
        """
        with self.replacements():
            try:
                self._run()
            finally:
                self._end_processes()

    def replacements(self) -> AbstractContextManager[None]:
        """Simulate the threads."""
        return replaced(threads_in_memory(self.world, self._note))

    def _run(self) -> None:
        world, choices = self.world, self.choices
        world.fault_percent, world.switch_percent = choices.of((0, 1, 4)), choices.of((0, 5, 20))
        for oracle in self._oracles.values():
            oracle.chosen = []
        self._sources["orders"].produce()
        world.start("stream-0", self._programs()["stream"])
        for turn in range(self.turns):
            if turn == self.turns // 2 and not self.has_pauses and not choices.below(2):
                break
            if not world.processes or choices.happens(15):
                self._act()
            else:
                world.step(choices.of(world.ready()))
            self._raise_violations()
        self._recover()
        self._raise_violations()

    def _end_processes(self) -> None:
        """Kill what still runs, so that no stack of it is left."""
        for process in list(self.world.processes):
            process.machine.is_killed = True
            self.world.step(process)

    def _recover(self) -> None:
        """End all faults; then one stream after the other must ingest everything that can be read."""
        world, kafka = self.world, self._kafka
        world.record("recovery")
        world.fault_percent = world.switch_percent = 0
        for source in self._sources.values():
            source.end_transactions()
        self._register()
        kafka.leaderless, kafka.forbidden = set(), set()
        if self.choices.below(2):
            self._judge_running()
        self._change_topics(UNLIMITED)
        for process in world.processes:
            process.machine.is_killed |= not process.is_thread and self.choices.of((False, True, True))
        # A stream may be about to start.
        self._run_until(lambda: self._stop() or not world.processes, "programs do not end")
        self.choices.of((set(), kafka.leaderless, kafka.forbidden)).add("refunds")
        world.advance(4000)
        unreadable = kafka.leaderless | kafka.forbidden
        for _ in range(RECOVERIES):
            self._finish("stream once")
            errors = {name: error for name, error in self._errors.items() if name not in unreadable}
            if not errors:
                break
            for name, error in errors.items():
                self._remedy(name, error)
        else:
            raise Violation(f"`stream --once` does not end: {errors}")
        for name, oracle in self._oracles.items():
            if name not in unreadable:
                # Those of the others become rows in redrives and replays, which are not repeated if interrupted.
                oracle.judge_end(is_redriven=name == "refunds")
                if not self._is_shown(name):
                    raise Violation(f"`stream --once` has ended, and a reader lacks rows of {name}")
        self._raise_violations()
        if not self.has_pauses and self.choices.below(2) and self.choices.below(2):
            self._ingest_continuously(unreadable)

    def _judge_running(self) -> None:
        """Judge that the streams that still run ingest all records, or report an error of an entry."""
        if all(stream.once or machine.is_killed for stream, machine in self._streams.items()):
            return
        ends = self._ends()
        self._reported.clear()
        # All topics have backed off for long enough.
        self.world.advance(700)
        served = lambda: all(self._serves(name, ends) or name in self._reported for name in ends)  # noqa: E731
        self._run_until(served, "a stream that runs neither ingests all records nor reports an error")

    def _remedy(self, name: str, error: Exception) -> None:
        match error:
            case UnclearState() if "lakehouse resume" in str(error):
                self._finish(f"resume {name}")
            case BadRecords():
                self._keep_dead_letters()
            case _:
                raise Violation(f"`stream --once` fails without faults: {type(error).__name__} {error}") from error

    def _keep_dead_letters(self) -> None:
        """Let no topic stop at a record that cannot be decoded, as the error suggests."""
        self._change_topics({"errors": "log"})

    def _change_topics(self, update: Mapping[str, Any]) -> None:
        topics = {t.name: t.model_copy(update=update) for t in self._config.topics.values()}
        self._config = self._config.model_copy(update={"topics": topics})

    def _ingest_continuously(self, unreadable: set[str]) -> None:
        """Judge that a stream ingests and publishes new records within a minute, whichever topics are unreadable."""
        self._keep_dead_letters()
        world, began = self.world, self.world.monotonic()
        names = [name for name in self._config.topics if name not in unreadable]
        for topic, source in self._sources.items():
            if topic not in unreadable:
                source.produce()
        world.start("stream", self._programs()["stream"])
        ends = self._ends()
        served = lambda: all(self._serves(name, ends) and self._is_shown(name) for name in names)  # noqa: E731
        self._run_until(served, f"a stream does not serve {names}")
        if world.monotonic() - began > 60:
            raise Violation(f"a stream took {world.monotonic() - began:.0f} s to serve {names}")
        self._judge_commands()
        # The records that were produced beside the commands.
        ends = self._ends()
        self._run_until(served, f"a stream does not serve {names} after commands")
        self._stop()
        self._run_until(lambda: not world.processes, "a stream does not stop")

    def _judge_commands(self) -> None:
        """Judge that a redrive and a replay are published beside a stream that always has new records."""
        self.world.switch_percent = 100
        for name in ("replay orders", "redrive orders", "replay orders"):
            process = self.world.start(name, self._programs()[name])

            for turn in range(COMMAND_ROUNDS):
                if turn % PRODUCTION_ROUNDS == 0:
                    self._sources["orders"].produce()
                for other in self.world.ready():
                    # A command reads for longer than a batch takes.
                    if other in self.world.processes and (other is not process or turn % SLOWNESS == 0):
                        self.world.step(other)
                self.world.advance(CALL_SECONDS / SLOWNESS)
                self._raise_violations()
                if process not in self.world.processes:
                    break
            else:
                raise Violation(f"`{name}` does not end beside a stream")
            if isinstance(process.result, CommitConflict):
                raise Violation(f"`{name}` is not published beside a stream: {process.result}")
        self.world.switch_percent = 0

    def _is_shown(self, name: str) -> bool:
        """Return whether the readers have the newest batch; a compaction after it changes no row."""
        table = self._iceberg.find(name)
        if table is None or not (newest := newest_batch(table.metadata)):
            return True
        locations = (
            self._glue.location(NAMESPACE, name),
            self._snowflake.location("DB", NAMESPACE.upper(), name.upper()),
        )
        return all(location and newest_batch(self._iceberg.metadata_at(location)) == newest for location in locations)

    def _finish(self, name: str) -> None:
        self.world.start(name, self._programs()[name])
        self._run_until(lambda: not self.world.processes, f"`{name}` does not end")

    def _run_until(self, is_done: Callable[[], bool], otherwise: str) -> None:
        """Run all threads in turn until something has happened.

        Raises:
            Violation: It does not happen.
        """
        for _ in range(ROUNDS):
            if is_done():
                return
            for process in self.world.ready():
                if process in self.world.processes:
                    self.world.step(process)
            self._raise_violations()
        raise Violation(otherwise)


REPLACING = 3 * ("recreate refunds", "produce refunds")
"""Further actions of half of the schedules, so that a topic is recreated while a stream is paused in a batch of it."""


class PausedStreamSchedule(StreamSchedule):
    """A schedule of streams in which some calls take long."""

    has_pauses = True

    def __init__(self, choices: Choices):
        super().__init__(choices)
        self.actions = ACTIONS + choices.of(((), REPLACING))

    def _run(self) -> None:
        self.world.pause_percent, self.world.rare_factor = self.choices.of((1, 4)), 5
        super()._run()

    def _recover(self) -> None:
        self.world.end_pauses()
        super()._recover()

    def _judge_running(self) -> None:
        for source in self._sources.values():
            source.produce()
        super()._judge_running()
