"""Schedules in which audits refuse batches: blocking checks, files that the engine writes incompletely, and commits of
others to the branch of a batch; with other decisions about the same records: checks, filters, `errors`, retention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial

from pyiceberg.manifest import DataFile

from lakehouse.config.checks import RECORD_COUNT, Check, Range, RowCount
from lakehouse.config.model import Topic
from lakehouse.core.errors import BadRecords, ClockSkew
from lakehouse.core.table_protocol import PART, STAGING_PREFIX
from lakehouse.pipeline.commits.audit import AuditFailed
from lakehouse.pipeline.engine_values import JobFailed
from tests.simulation.choices import Choices
from tests.simulation.engine.tables import Row, data_file
from tests.simulation.oracles.audits import AuditOracle
from tests.simulation.oracles.oracle import Violation
from tests.simulation.schedules.interruptions import Interruptions
from tests.simulation.schedules.schedule import NAME
from tests.simulation.systems.memory_files import copied, data_rows, delete_data, write_data
from tests.simulation.systems.registry import OWN, REFUNDED
from tests.simulation.world import Process

DAMAGES = "lost file", "incomplete file", "wrong count", "extra file", "left out file"
"""What a faulty engine does with the last file of a commit. The last two leave files that are complete."""

SEVERITIES = "blocking", "quarantine", "warn"
LIMITS = 9, 18, 27
"""Values of `max`, of which a greater one lets fewer rows fail."""

REPLACING = "kill", "declare check", "ingest", "foreign commit", "redrive", "replay"


class AuditedSchedule(Interruptions):
    """A schedule in which audits refuse batches.

    Attributes:
        damages: What a faulty engine does.
        damage_percent: The probability that it commits a file wrongly.
        is_recovering: Whether operators do at once what an error names.
    """

    oracle: AuditOracle
    oracle_type = AuditOracle
    recovering = "ingest", "release", "redrive", "replay"
    usual = "produce", "ingest", "declare check"
    last = ()
    damages: Sequence[str] = DAMAGES
    damage_percent, is_recovering = 0, False

    def __init__(self, choices: Choices):
        super().__init__(choices)
        self.fault_percents, self.world.rare_factor = (0, 3, 10), 5
        rows = choices.of((None, timedelta(days=1)))
        retention = self.topic.retention.model_copy(update={"rows": rows})
        update = {"retention": retention, "record": choices.of(("", "Order")), "errors": choices.of(ERRORS)}
        self.topic = self.topic.model_copy(update=update)
        self.oracle.retention = rows
        self.damage_percent = choices.of((0, 10, 30))
        self.engine.on_write = self.damage
        self.source.schema_ids = [OWN, OWN, REFUNDED] if self.topic.record else [OWN]

    # Programs and events

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of operators and others that decide what an audit sees."""
        return ACTIONS

    def programs(self) -> dict[str, Callable[[], object]]:
        """Return the programs, which run with the present configuration, and the release of what checks hold back."""
        programs, topic = super().programs() | {"release": self.release}, self.topic
        return {name: partial(self.observe, topic, work) for name, work in programs.items()}

    def observe(self, topic: Topic, work: Callable[[], object]) -> None:
        """Run a program, and let the oracle know its configuration and its refusal."""
        process = self.world.current
        assert process is not None
        self.oracle.begin(process, topic)
        try:
            work()
        except (AuditFailed, BadRecords) as error:
            self.oracle.refused(process, error)
            raise

    def events(self) -> dict[str, Callable[[], object]]:
        """Return what operators, other writers and time do."""
        return super().events() | {
            "declare check": self.declare_check,
            "remove check": self.remove_check,
            "change errors": self.change_errors,
            "foreign commit": self.commit_to_branch,
            "kill": self.kill,
            "wait": self.wait,
            "decide again": self.decide_again,
        }

    def register(self) -> None:
        """Register the schemas that producers used too early, among them that of another record type."""
        self.registry.ids.add(REFUNDED)
        super().register()

    def declare_check(self) -> None:
        """Declare a check, or another form of one that exists."""
        name = self.choices.of(("small", "tiny", "small", "tiny", "volume"))
        check: Check
        if name == "volume":
            check = RowCount(type="row_count", min=2, severity=self.choices.of(("blocking", "warn")))
        else:
            severity, limit = self.choices.of(SEVERITIES), self.choices.of(LIMITS)
            check = Range(type="range", column="id", max=limit, severity=severity)
        self.configure(checks={**self.topic.checks, name: check})

    def decide_again(self) -> None:
        """Quarantine rows, add them to the table, and replay their records with the check again.

        Each program ends before the next one, since most others would undo a decision before it has an effect.
        """
        check = Range(type="range", column="id", max=self.choices.of(LIMITS), severity="quarantine")
        for checks, program in (({"small": check}, "ingest"), ({}, "redrive"), ({"small": check}, "replay")):
            self.configure(checks=checks)
            self.perform(program)

    def remove_check(self) -> None:
        """Remove a check."""
        if self.topic.checks:
            name = self.choices.of(sorted(self.topic.checks))
            self.configure(checks={other: check for other, check in self.topic.checks.items() if other != name})

    def change_check(self) -> None:
        """Remove all checks, or declare one."""
        if self.topic.checks:
            self.configure(checks={})
        else:
            self.declare_check()

    def change_errors(self) -> None:
        """Change the reaction to records that do not decode."""
        self.configure(errors=self.choices.of(ERRORS))

    def release(self) -> None:
        """Remove all checks, and keep what does not decode as dead letters."""
        self.configure(checks={}, errors="log")

    def configure(self, **settings: object) -> None:
        """Change settings of the topic; programs that run keep theirs."""
        self.topic = self.topic.model_copy(update=settings)
        checks = {name: f"{check.severity} {getattr(check, 'max', '')}" for name, check in self.topic.checks.items()}
        self.world.record(f"operator: errors {self.topic.errors}, checks {checks}")

    def commit_to_branch(self) -> None:
        """Commit to the branch of a batch as another writer: a row, or none."""
        table = self.iceberg.find(NAME)
        branches = [b for b in table.metadata.refs if b.startswith(STAGING_PREFIX)] if table else []
        if table and branches:
            branch = self.choices.of(branches)
            head, log = table.metadata.refs[branch].snapshot_id, [*self.kafka.every_record.values()]
            rows = [Row(self.choices.of(log))] if log and self.choices.below(2) else []
            try:
                self.engine.commit_files(table, branch, head, [data_file(self.world, table, rows)] if rows else ())
            except ClockSkew:
                return
            self.world.record(f"another writer: committed to branch {branch}")

    def kill(self) -> None:
        """Kill all programs."""
        for process in self.world.processes:
            process.machine.is_killed = True
        self.world.record("operator: killed all programs")

    def wait(self) -> None:
        """Let time pass, so that rows and files become old."""
        self.world.advance(self.choices.of((4_000.0, 50_000.0, 100_000.0, 300_000.0)))

    def replacing(self, process: Process) -> Sequence[str]:
        """Return the actions that change what an audit sees."""
        return REPLACING

    def damage(self, branch: str, properties: Mapping[str, str], files: Sequence[DataFile]) -> Sequence[DataFile]:
        """Return the files of a commit; sometimes, the engine writes the last one wrongly, or commits others."""
        if not (files and self.damage_percent and branch.startswith(STAGING_PREFIX)):
            return files
        if not self.choices.happens(self.damage_percent):
            return files
        # Nothing counts the rows of a commit that deletes, and Spark itself counts those that a MERGE updates.
        is_counted = PART not in properties and not any(name.startswith("spark.merge") for name in properties)
        damage = self.choices.of(self.damages if is_counted else DAMAGES[:2])
        *others, file = files
        rows = data_rows(file.file_path)
        self.world.record(f"the engine: {damage}")
        match damage:
            case "lost file":
                delete_data([file.file_path])
            case "incomplete file":
                write_data(file.file_path, rows[:-1], self.world.now())
            case "wrong count":
                return [*others, with_count(file, len(rows) + 1)]
            case "extra file":
                return [*files, data_file(self.world, self.iceberg.loaded(NAME), rows[:1])]
            case "left out file":
                return others
        return files

    # Recovery

    def run(self) -> None:
        """Run the schedule, perhaps with a check from the start."""
        if self.choices.below(2):
            self.declare_check()
        super().run()

    def end_faults(self) -> None:
        """End all faults; what operators declared stays."""
        self.damage_percent, declared = 0, self.topic
        super().end_faults()
        self.topic, self.is_recovering = declared, True

    def finish(self, name: str) -> BaseException | None:
        """Run a program to its end; after the faults, do what its error names, until it passes.

        Raises:
            Violation: What an error names does not help.
        """
        error = super().finish(name)
        for _ in range(ATTEMPTS):
            if not self.is_recovering or not isinstance(error, AuditFailed | BadRecords):
                return error
            self.follow(error)
            error = super().finish(name)
        raise Violation(f"`{name}` is still refused after what its error named: {error}")

    def judge_error(self, error: BaseException | None) -> None:
        """Judge that no error of Spark hides that an audit found a file lost. Of two refusals, operators do what one
        names.

        Raises:
            Violation: One does.
        """
        super().judge_error(error)
        if isinstance(error, JobFailed) and "file memory" in str(error):
            raise Violation(f"a lost file is reported as an error of a check: {error}")
        if isinstance(error, AuditFailed | BadRecords) and self.choices.below(2):
            self.follow(error)

    def follow(self, error: AuditFailed | BadRecords) -> None:
        """Do what an error names.

        Raises:
            Violation: It names nothing that helps.
        """
        if isinstance(error, BadRecords):
            self.require(error, "'errors: log'")
            self.configure(errors=self.choices.of(("log", "skip")))
            return
        failed = [finding.check for finding in error.findings if finding.blocks]
        for name in failed:
            if name == RECORD_COUNT:
                self.require(error, "Retry")
            elif name in self.topic.checks:
                self.require(error, "lakehouse.yaml")
                self.relax(name)
            elif self.is_recovering:
                raise Violation(f"check {name} fails, and nobody declared it: {error}")

    def require(self, error: BaseException, text: str) -> None:
        """Require that an error has a text.

        Raises:
            Violation: It does not.
        """
        if text not in str(error):
            raise Violation(f"an error does not name {text}: {error}")

    def relax(self, name: str) -> None:
        """Quarantine the rows that fail a check, correct it so that none fails, or remove it."""
        check = self.topic.checks[name]
        severities = ("quarantine", "warn") if isinstance(check, Range) else ("warn",)
        relaxed = [check.model_copy(update={"severity": severity}) for severity in severities]
        if isinstance(check, Range):
            relaxed.append(check.model_copy(update={"max": 3_000_000}))
        self.configure(checks={**self.topic.checks, name: self.choices.of(relaxed)})


ATTEMPTS = 6
"""Maximum number of times that an operator does what the error of a program names."""

ERRORS = "log", "skip", "suspend"

ACTIONS = (
    *("produce", "ingest", "declare check", "redrive", "replay", "remove check", "change errors", "register"),
    *("produce", "ingest", "produce", "ingest", "ingest", "maintain", "wait", "foreign commit", "kill", "resume"),
    *("roll back", "other writer", "compact", "replay branch", "dry run", "drop table", "retain", "compact_log"),
    *("other maintenance", "decide again", "decide again"),
)
"""The actions; each decides what an audit sees."""


def with_count(file: DataFile, rows: int) -> DataFile:
    """Return a data file with another number of rows in its manifest."""
    counted = copied(file)
    counted[ROWS_FIELD] = rows
    counted.spec_id = file.spec_id
    return counted


ROWS_FIELD = 4
"""Position of the number of rows among the fields of a data file (Iceberg specification, Manifests)."""
