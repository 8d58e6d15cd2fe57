"""One schedule: processes of the project, producers, operators and faults, in an order that choices decide."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from lakehouse.config.checks import Range
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import ClockSkew, LakehouseError, TransientError, UnclearState
from lakehouse.core.offsets.lag import Lag
from lakehouse.pipeline.batches.dry_run import dry_run
from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.maintenance import compact_incrementally, maintain
from lakehouse.pipeline.redrive import Redriven, redrive
from lakehouse.pipeline.replay import replay
from lakehouse.readers.reader_lag import measure_lag
from tests.simulation.choices import Choices
from tests.simulation.engine.memory_engine import MemoryEngine
from tests.simulation.immutable import computed_once, parsed_once
from tests.simulation.oracles.oracle import RESUMED, Oracle, Place, Violation, place_of
from tests.simulation.schedules.source_topic import KINDS, SourceTopic
from tests.simulation.schedules.table_events import drop, table_events
from tests.simulation.systems.catalog import MemoryIcebergCatalog, SimulatedCatalog
from tests.simulation.systems.kafka import MemoryKafka
from tests.simulation.systems.memory_files import RECORD_FILES, empty_store
from tests.simulation.systems.registry import LATE, MemoryRegistry
from tests.simulation.world import FAULTS, MISTAKES, Process, World, replaced, simulated_time

NAMESPACE, NAME = "lake", "orders"
CONFIG = Config(namespace=NAMESPACE, topics={}, environments={})
CHECKS = {"small": Range(type="range", column="id", max=9, severity="quarantine")}
"""A check that quarantines rows: which ones fail, `Record.fails_check` decides."""
BRANCHES = "again", "main"
TURNS = 60
UNLIMITED = {"max_records_per_batch": 1000}
RECOVERIES = 40
"""Maximum number of runs and commands until everything has recovered."""


@dataclass
class Outcome:
    """The result of a schedule.

    Attributes:
        violation: The broken promise; empty if there is none.
        world: The world at the end, with its trace.
        drawn: The choices.
    """

    violation: str
    world: World
    drawn: list[int] = field(default_factory=list)


class Schedule:
    """The systems of one world, and what happens in it.

    Attributes:
        turns: How often an action or a process is chosen; half as often in half of the schedules.
        fault_percents: The probabilities of a fault per call, of which each schedule has one.
        oracle_type: The class of the oracle.
        catalog_type: The class of the catalog.
        recovering: The commands after which everything has recovered; none that a skipped record aborts.
        chosen: The actions of this schedule.
        redriven: The report of the last redrive, with the rows and the dead letters before.
    """

    turns = TURNS
    fault_percents: Sequence[int] = (0, 3, 10)
    oracle_type: type[Oracle] = Oracle
    catalog_type: Callable[[World], MemoryIcebergCatalog] = MemoryIcebergCatalog
    recovering: Sequence[str] = ("ingest", "redrive", "replay")
    chosen: Sequence[str]
    redriven: tuple[Redriven, set[Place], set[Place]]

    def __init__(
        self,
        choices: Choices,
        kafka: type[MemoryKafka] = MemoryKafka,
        modes: Sequence[str] = ("append", "upsert", "dedup"),
    ):
        self.choices, self.world = choices, World(choices)
        mode = choices.of(modes)
        self.topic = Topic(
            name=NAME,
            mode=mode,
            key=("id",) if mode != "append" else (),
            errors="log",
            max_records_per_batch=choices.of((4, 2, 1)),
            retention={"snapshots": choices.of(("7d", "1h")), "min_snapshots": 1},
        )
        self.kafka = kafka(self.world, NAME, partitions=choices.of((1, 2)))
        self.registry = MemoryRegistry(self.world, NAME)
        self.iceberg = self.catalog_type(self.world)
        engine = self.engine = MemoryEngine(self.world, self.kafka, self.iceberg)
        self.clients = Clients(
            self.kafka, self.registry, engine, SimulatedCatalog.on(self.iceberg, **self.catalog_settings())
        )
        self.oracle = self.oracle_type(mode, self.kafka, engine)
        self.iceberg.on_commit = self.oracle.committed
        self.iceberg.on_drop = self.oracle.dropped
        self.source = SourceTopic(choices, self.world, self.kafka, self.oracle)
        self.source.schema_ids = self.registry.own_ids

    def catalog_settings(self) -> dict[str, str]:
        """Return the settings of the catalog that programs declare."""
        return {}

    # Actions

    def programs(self) -> dict[str, Callable[[], object]]:
        """Return the programs that users and Dagster start, by name."""
        clients, topic = self.clients, self.topic
        return {
            "ingest": lambda: exhaust(ingest(NAMESPACE, topic, clients)),
            "redrive": lambda: self.redrive(topic),
            "replay": lambda: replay(NAMESPACE, topic, clients, "earliest"),
            "maintain": lambda: exhaust(maintain(NAMESPACE, topic, clients.catalog, clients.engines)),
            "compact": lambda: compact_incrementally(NAMESPACE, topic, clients.catalog, clients.engines),
            "replay branch": lambda: replay(NAMESPACE, topic, clients, "earliest", branch=self.choices.of(BRANCHES)),
            "dry run": lambda: dry_run(NAMESPACE, topic, clients, 2),
            "resume": lambda: resume(clients, NAMESPACE, topic, self.source.resumable(self.oracle), RESUMED),
        }

    def redrive(self, topic: Topic) -> None:
        """Redrive the dead letters, and keep the report, with the rows and the dead letters before."""
        letters = {place_of(letter.record) for letter in self.oracle.letters() if not letter.recovered}
        before = {place_of(row.record) for row in self.oracle.rows()}
        self.redriven = redrive(NAMESPACE, topic, self.clients), before, letters

    def register(self) -> None:
        """Register the schema that a producer used too early."""
        self.registry.ids.add(LATE)
        self.world.record("producer: registered the late schema")

    def measure(self) -> None:
        """Compare the verdict about freshness with the truth."""
        resources: Any = self.clients
        lag = measure_lag("iceberg", CONFIG, self.topic, resources)
        if "unexpected" in lag.failure:
            raise Violation(f"the freshness could not be measured: {lag.failure}")
        (topic_id, position), log = self.oracle.position, self.kafka.log
        reached = position if topic_id == self.kafka.topic_id else {}
        waiting = [r.at for p, part in log.items() for o, r in part.records.items() if o >= reached.get(p, 0)]
        is_late = bool(waiting) and min(waiting) < self.world.now() - self.topic.max_lag_seconds - 1
        behind = topic_id != self.kafka.topic_id or any(position.get(p, 0) < part.end for p, part in log.items())
        is_complete = isinstance(lag.behind, Lag) and not lag.behind.missing
        if lag.is_fresh and (is_late or (is_complete and behind and topic_id)):
            raise Violation(f"the table is called fresh, and is behind: {lag.description}")

    def change_check(self) -> None:
        """Declare a check that quarantines rows, or remove it."""
        self.topic = self.topic.model_copy(update={"checks": {} if self.topic.checks else CHECKS})
        self.world.record(f"operator: {'declared' if self.topic.checks else 'removed'} the check")

    def events(self) -> dict[str, Callable[[], object]]:
        """Return what happens at once, by name."""
        of_table = table_events(self.world, self.engine, self.oracle, NAME)
        return (
            self.source.events()
            | of_table
            | {
                "register": self.register,
                "rename field": self.registry.rename_field,
                "change type": self.registry.change_type,
                "change check": self.change_check,
                "measure": self.measure,
            }
        )

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of programs and events, the usual ones several times; the first is the simplest."""
        return *ACTIONS, *OF_TABLES

    def act(self) -> None:
        """Perform one action."""
        programs = self.programs()
        name = self.choices.of(self.chosen)
        if name in programs:
            if len(self.world.processes) < 4:
                self.world.start(f"{name}-{len(self.world.events)}", programs[name])
        else:
            self.events()[name]()

    # The schedule

    def run(self) -> None:
        """Run the events with faults, then recover without faults, and judge.

        Raises:
            Violation: A promise was broken.
        """
        world, choices, self.oracle.chosen = self.world, self.choices, []
        world.fault_percent, world.switch_percent = choices.of(self.fault_percents), choices.of((0, 10, 40))
        self.chosen, world.faults = choices.without_some(self.actions), choices.without_some(FAULTS)
        # The first kinds are good records.
        self.source.kinds, self.source.keys = choices.without_some(KINDS)[choices.of((0, 2)) :], choices.of((2, 6))
        if "change check" in self.chosen and choices.below(2):
            self.change_check()
        self.source.produce()
        world.start("ingest-0", self.programs()["ingest"])
        for turn in range(self.turns):
            if turn == self.turns // 2 and not choices.below(2):
                break
            self.take_turn()
            self.oracle.raise_violations()
        self.recover()
        self.oracle.judge_end(is_redriven="redrive" in self.recovering)
        self.judge_columns()
        self.judge_branches()
        self.oracle.raise_violations()

    def take_turn(self) -> None:
        """Perform an action, or run a process."""
        if not self.world.processes or self.choices.happens(40):
            self.act()
        else:
            process = self.choices.of(self.world.ready())
            self.world.step(process)
            self.judge_error(process.result)

    def perform(self, name: str) -> None:
        """Perform an action to its end."""
        if name in self.programs():
            self.judge_error(self.finish(name))
        else:
            self.events()[name]()

    def judge_error(self, error: BaseException | None) -> None:
        """Judge that no error says that metadata files are missing, since all exist and tables name the newest 100."""
        if "no remaining metadata file" in str(error) and not self.iceberg.has_long_log():
            raise Violation(f"metadata files are called missing, and exist: {error}")

    def judge_columns(self) -> None:
        """Judge that a renamed field is one column.

        Raises:
            Violation: The table has a column of each name.
        """
        table = self.iceberg.find(NAME)
        if table and {"amount", "price"} <= {*table.schema().column_names}:
            raise Violation("a renamed field became another column")

    def judge_branches(self) -> None:
        """Judge that maintenance drops the branches and tables of programs that were killed.

        Raises:
            Violation: A branch or table of a dry run is left.
        """
        if not self.left_by_dry_runs():
            return
        self.world.advance(100_000)
        if (error := self.finish("maintain")) is None and (left := self.left_by_dry_runs()):
            raise Violation(f"a dry run that was killed left {left}")
        self.judge_error(error)

    def left_by_dry_runs(self) -> list[str]:
        """Return the branches and tables of dry runs."""
        table = self.iceberg.find(NAME)
        names = [*(table.metadata.refs if table else ()), *self.iceberg.names()]
        return [name for name in names if name.startswith("dry_run")]

    def end_faults(self) -> None:
        """End all faults, processes and transactions, and what keeps records from being decoded.

        Most of the programs that still run are killed: otherwise, they would take most of the time.
        """
        world = self.world
        world.record("recovery")
        world.fault_percent = world.switch_percent = 0
        for process in list(world.processes):
            process.machine.is_killed |= self.choices.of((False, True, True))
            self.run_to_end(process)
        self.source.end_transactions()
        self.register()
        if self.topic.checks:
            self.change_check()
        world.advance(4000)

    def recover(self) -> None:
        """End all faults, and run commands until the table has every record; the rest of the log becomes one batch."""
        self.end_faults()
        limited, self.topic = self.topic, self.topic.model_copy(update=UNLIMITED)
        commands = [*self.recovering]
        for _ in range(RECOVERIES):
            if not commands:
                return
            error = self.finish(commands[0])
            self.oracle.raise_violations()
            match error:
                case None:
                    match commands.pop(0):
                        case "ingest":
                            self.topic = limited
                        case "redrive":
                            self.judge_redrive()
                case UnclearState() if "lakehouse resume" in str(error) and commands[0] != "resume":
                    commands.insert(0, "resume")
                case UnclearState() if "newer release" in str(error):
                    self.remove_newer_token()
                case UnclearState() if "which continues it" in str(error):
                    drop(self.world, self.iceberg, f"{NAME}__v2")
                case UnclearState() if commands[0] in ("redrive", "replay") and "into a branch" in str(error):
                    # What a topic had before it was recreated stays.
                    commands.pop(0)
                case TransientError() if "was aborted" in str(error) and self.skipped_poison():
                    self.recovering = [*filter(commands.pop(0).__ne__, self.recovering)]
                case TransientError() | ClockSkew():
                    self.world.advance(4000)
                case LakehouseError() if commands[0] in ("redrive", "replay") and "No record of" in str(error):
                    commands.pop(0)
                case _:
                    raise Violation(f"`{commands[0]}` fails without faults: {type(error).__name__} {error}") from error
        raise Violation(f"{commands} do not end: {error}")

    def judge_redrive(self) -> None:
        """Judge that a redrive made each dead letter a row that decodes, unless what replaced it cannot be read.

        It also reports the rows that it added.

        Raises:
            Violation: It left another one, or reports another number.
        """
        report, before, letters = self.redriven
        added = {place_of(row.record) for row in self.oracle.rows()} - before
        # The rows of a redrive that was killed before it marked the dead letters are counted by both.
        is_judged = self.topic.mode != "upsert" and not before & letters
        if is_judged and report.recovered - report.deduplicated - report.filtered != len(added):
            raise Violation(f"a redrive reports {report}, and added {sorted(added)}")
        topic_id, position = self.oracle.position
        waiting = [x.record for x in self.oracle.letters() if not x.recovered and x.reason != "poison"]
        present = [r for r in waiting if r.topic_id == topic_id and r.offset < position.get(r.partition, 0)]
        left = [place_of(r) for r in present if not (r.is_garbage or r.is_poison or r.value is None)]
        if self.topic.mode == "upsert":
            poison = self.skipped_poison()
            left = [x for x in left if self.kafka.has(x) and not any(x[:2] == p[:2] and x < p for p in poison)]
        if left:
            raise Violation(f"a redrive left dead letters that decode: {left}")

    def skipped_poison(self) -> list[tuple[str, int, int]]:
        """Return the records that abort decoding, are no dead letters, and that an operator skipped."""
        letters = {place_of(letter.record) for letter in self.oracle.letters()}
        poison = (place_of(r) for part in self.kafka.log.values() for r in part.records.values() if r.is_poison)
        _, position = self.oracle.position
        return [place for place in poison if place not in letters and place[2] < position.get(place[1], 0)]

    def remove_newer_token(self) -> None:
        """Roll back the snapshot of a newer release; if what it followed is expired, drop the table."""
        # The operator's clock may be behind the table's history.
        self.world.advance(4000)
        before = self.iceberg.loaded(NAME).metadata.current_snapshot_id
        self.events()["roll back"]()
        if self.iceberg.loaded(NAME).metadata.current_snapshot_id == before:
            self.events()["drop table"]()

    def finish(self, name: str) -> BaseException | None:
        """Run a program to its end, and return its error."""
        process = self.world.start(name, self.programs()[name])
        self.run_to_end(process)
        return process.result

    def run_to_end(self, process: Process) -> None:
        """Run a process to its end."""
        while process in self.world.processes:
            self.continue_program(process)

    def continue_program(self, process: Process) -> None:
        """Run a process until it passes the control on, or one of its threads if it waits for them."""
        self.world.step(next(ready for ready in self.world.ready() if ready.machine is process.machine))


ACTIONS = (
    *("produce", "ingest", "redrive", "register", "maintain", "compact", "replay", "measure", "transact"),
    *("produce", "ingest", "produce", "ingest", "ingest", "retain", "compact_log", "resume", "recreate"),
)
"""The actions of ingestion in all kinds: see `Schedule.actions`."""

OF_TABLES = (
    *("roll back", "drop table", "other writer", "newer release", "replay branch", "dry run", "rename field"),
    *("other maintenance", "change check"),
)
"""The actions of the kind that has ingestion alone."""


def exhaust(results: Iterable[object]) -> None:
    """Run a generator to its end."""
    for _ in results:
        pass


def run(choices: Choices, kind: type[Schedule] = Schedule) -> Outcome:
    """Run one schedule of a kind."""
    with ExitStack() as stack:
        stack.enter_context(empty_store())
        stack.enter_context(parsed_once())
        schedule = kind(choices)
        stack.enter_context(simulated_time(schedule.world))
        violation = ""
        try:
            schedule.run()
        except Violation as error:
            violation = str(error)
        except (*MISTAKES, LakehouseError) as error:
            # Programs return their errors; here, one ended a measurement or an action of an operator.
            violation = f"{type(error).__name__} {error}".strip()
        if violation:
            schedule.world.record(f"VIOLATION: {violation}")
        return Outcome(violation, schedule.world, choices.drawn)


def simulation() -> ExitStack:
    """Return a context in which schedules run."""
    stack = ExitStack()
    # Programs report what they retry.
    logging.disable(logging.CRITICAL)
    stack.callback(logging.disable, logging.NOTSET)
    stack.enter_context(replaced(RECORD_FILES))
    stack.enter_context(computed_once())
    return stack
