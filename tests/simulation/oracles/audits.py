"""Judges what audits let pass: each publication, by the configuration of the program that wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from lakehouse.config.checks import RowCheck, RowCount
from lakehouse.config.model import Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.core.offsets.batch import Counts
from lakehouse.core.table_protocol import COUNTS, DEAD_LETTERS, STAGING_PREFIX
from lakehouse.pipeline.commits.audit import AuditFailed
from lakehouse.pipeline.commits.footers import added_files
from tests.simulation.engine.checks import fails
from tests.simulation.engine.tables import MemoryTables, Row, data_files
from tests.simulation.oracles.oracle import Oracle, Place, Violation, place_of
from tests.simulation.schedules.schedule import NAME
from tests.simulation.systems.kafka import MemoryKafka, Record
from tests.simulation.systems.memory_files import data_rows, exists
from tests.simulation.systems.registry import OWN, REFUNDED
from tests.simulation.world import Process


class AuditOracle(Oracle):
    """The oracle of a table, which also judges publications, refusals and deleted rows.

    Attributes:
        retention: The age at which maintenance deletes rows; None if it deletes none.
    """

    retention: timedelta | None = None

    def __init__(self, mode: str, kafka: MemoryKafka, tables: MemoryTables):
        super().__init__(mode, kafka, tables)
        self._programs: dict[Process, tuple[Topic, float]] = {}
        self._branches: dict[str, Process] = {}
        self._last: dict[Process, str] = {}
        self._publisher: Topic | None = None

    def begin(self, process: Process, topic: Topic) -> None:
        """Note the configuration with which a program runs, and when it began."""
        self._programs[process] = topic, self._tables.world.now()

    def refused(self, process: Process, error: LakehouseError) -> None:
        """Judge that nothing of a refused batch is visible, and that a redrive is refused because of its own rows."""
        if self._last.get(process, "").endswith(DEAD_LETTERS):
            self._violate(f"dead letters of a refused batch were published: {error}")
        if isinstance(error, AuditFailed) and process.name.startswith("redrive") and self.mode == "append":
            self._judge_refused_redrive(process, error)

    def _judge_refused_redrive(self, process: Process, error: AuditFailed) -> None:
        """Judge that a check which refused a redrive fails in a partition to which the redrive adds rows."""
        table = self._tables.iceberg.find(NAME)
        branches = [branch for branch, author in self._branches.items() if author is process]
        if table is None or branches[-1] not in table.metadata.refs:
            return
        staged = data_files(table, table.metadata.refs[branches[-1]].snapshot_id)
        rows = [row.record for file in staged if exists(file.file_path) for row in data_rows(file.file_path)]
        partitions = {record.partition for record in {*rows} - {row.record for row in self.rows()}}
        for finding in error.findings:
            check = self._programs[process][0].checks.get(finding.check)
            if finding.blocks and isinstance(check, RowCheck):
                failing = {record.partition for record in rows if fails(check.failure_condition, record)}
                if not partitions & failing:
                    self._violate(f"a redrive was refused because of rows that it does not change: {error}")

    # Commits

    def committed(self, name: str, before: TableMetadata | None, after: TableMetadata) -> None:
        """Judge a commit to a table."""
        process = self._tables.world.current
        refs = before.refs if before else {}
        for branch in after.refs:
            if process and branch not in refs and branch.startswith(STAGING_PREFIX):
                self._branches.setdefault(branch, process)
                if name == NAME:
                    # Another attempt: the one before may have been refused between its two publications.
                    self._last[process] = name
        previous = before.current_snapshot_id if before else None
        if previous == after.current_snapshot_id or name.startswith("dry_run"):
            super().committed(name, before, after)
            return
        table = self._tables.iceberg.loaded(name)
        self._judge_files(name, table)
        branches = [
            b for b, ref in refs.items() if ref.snapshot_id == after.current_snapshot_id and b in self._branches
        ]
        author = self._branches[branches[0]] if branches else None
        if author:
            self._last[author] = name
        self._publisher = self._programs[author][0] if author in self._programs else None
        rows = {row.record for row in self._rows}
        if name.endswith(DEAD_LETTERS):
            super().committed(name, before, after)
            return
        if not branches and process and self.rolled_back_to is None:
            self._judge_deleted(process, table, rows)
        super().committed(name, before, after)
        if author and self._publisher:
            self._judge_publication(self._publisher, table, previous, rows)

    def _follow(self, table: Table) -> None:
        """Add the batches of new snapshots, without records that the publishing program filters or skips."""
        super()._follow(table)
        every = self._kafka.every_record
        self.uncertain |= {place for place, record in every.items() if is_of_other_type(record)}
        if self._publisher and self._publisher.errors != "log":
            letters = {place_of(letter.record) for letter in self.letters()}
            skipped = (p for p in every.keys() - letters if every[p].schema_id != OWN or self._is_skipped(every[p]))
            self.uncertain |= {place for place in skipped if self._may_skip(table, place)}

    def _is_skipped(self, record: Record) -> bool:
        # One that aborts decoding is a dead letter.
        return not record.is_poison and (self._is_bad(record) or (record.value is None and self.mode == "append"))

    def _may_skip(self, table: Table, place: Place) -> bool:
        """Return whether the newest commit may have skipped a record: a replay reads what `resume` had skipped."""
        is_replay = "lakehouse.replay" in _summary(table)
        is_skipping = self._publisher is not None and self._publisher.errors == "skip"
        return self._is_in_batch(table, place) and (is_skipping or is_replay)

    def _is_in_batch(self, table: Table, place: Place) -> bool:
        summary = _summary(table)
        batch = json.loads(summary.get("lakehouse.batch", summary.get("lakehouse.replay", "{}")))
        topic_id, start, end = batch.get("topic_id", self.position[0]), batch.get("start", {}), batch.get("end", {})
        p = str(place[1])
        return place[0] == topic_id and p in end and start.get(p, 0) <= place[2] < end[p]

    # Judgements

    def _judge_files(self, name: str, table: Table) -> None:
        """Judge that each data file of main exists with all its rows.

        Raises:
            Violation: One does not.
        """
        for file in data_files(table, table.metadata.current_snapshot_id):
            if not exists(file.file_path) or len(data_rows(file.file_path)) != file.record_count:
                raise Violation(f"{name} has a data file that is missing or incomplete")

    def _judge_publication(self, topic: Topic, table: Table, previous: int | None, before: set[Record]) -> None:
        """Judge the rows that a program published.

        Args:
            topic: Its configuration.
            table: The table.
            previous: The snapshot of main before.
            before: The records of the rows before.
        """
        is_replay = "start" in json.loads(_summary(table).get("lakehouse.replay", "{}"))
        places = (lambda record: self._is_in_batch(table, place_of(record))) if is_replay else lambda record: False
        judged = [row.record for row in self.rows() if row.record not in before or places(row.record)]
        for name, check in topic.checks.items():
            if isinstance(check, RowCheck) and check.severity != "warn":
                judged_rows = judged if check.severity == "blocking" else [r for r in judged if r not in before]
                if failing := [place_of(r) for r in judged_rows if fails(check.failure_condition, r)]:
                    self._violate(f"rows were published that fail check {name} ({check.severity}): {failing}")
        if filtered := [place_of(r) for r in judged if is_of_other_type(r)]:
            self._violate(f"rows of another record type were published: {filtered}")
        if "lakehouse.decision" not in _summary(table) and "lakehouse.batch" in _summary(table):
            self._judge_counts(topic, table, judged)

    def _judge_counts(self, topic: Topic, table: Table, new: Sequence[Record]) -> None:
        """Judge the counts of a batch: they balance, and agree with the rows, dead letters and filtered records."""
        snapshot = table.current_snapshot()
        assert snapshot is not None
        stored = json.loads(table.properties[COUNTS])[str(snapshot.snapshot_id)]
        counts = Counts(**stored)
        committed = sum(file.record_count for file in added_files(table, snapshot))
        if not counts.is_balanced or committed != counts.rows:
            self._violate(f"a batch has the counts {stored}, and {committed} rows")
        for check in topic.checks.values():
            if isinstance(check, RowCount) and check.severity == "blocking" and counts.rows < (check.min or 0):
                self._violate(f"a batch of {counts.rows} rows was published, and fails check {check}")
        letters = [place for place in map(place_of, self._of_letters()) if self._is_in_batch(table, place)]
        if len(letters) != counts.dead_letters:
            self._violate(f"a batch has {counts.dead_letters} dead letters, and their table {letters}")
        records = [p for p, r in self._kafka.every_record.items() if self._is_in_batch(table, p)]
        if not all(map(self._kafka.has, records)):
            # The broker may have deleted them before they were read.
            return
        if len(records) != counts.consumed:
            self._violate(f"a batch consumed {counts.consumed} records, and its range has {records}")
        if topic.record:
            every = self._kafka.every_record
            refunds = sum(is_of_other_type(every[p]) and p not in letters for p in records)
            is_exact = topic.errors == "log"
            if counts.filtered > refunds or (is_exact and counts.filtered != refunds):
                self._violate(f"a batch filtered {counts.filtered} records, and its range has {refunds}")

    def _of_letters(self) -> Iterator[Record]:
        return (letter.record for letter in self.letters())

    def _judge_deleted(self, process: Process, table: Table, before: set[Record]) -> None:
        """Judge that a commit without a batch deleted rows only by their age, and then all of that age."""
        rows: list[Row] = [
            row for file in data_files(table, table.metadata.current_snapshot_id) for row in data_rows(file.file_path)
        ]
        if not (deleted := before - {row.record for row in rows}):
            return
        now = self._tables.world.now()
        # The clock of the program may have jumped since it began.
        times = now, self._programs[process][1] if process in self._programs else now
        age = self.retention.total_seconds() if self.retention else float("inf")
        if young := [place_of(record) for record in deleted if record.at >= max(times) - age]:
            self._violate(f"rows were deleted that are not old: {young}")
        if old := [place_of(row.record) for row in rows if row.record.at < min(times) - age]:
            self._violate(f"old rows were kept: {old}")
        # Which records of a key were read does not tell any more which row it has.
        keys = {record.key for record in deleted}
        self.uncertain |= {place for place, record in self._kafka.every_record.items() if record.key in keys}


def is_of_other_type(record: Record) -> bool:
    """Return whether a record has another type than the table."""
    return record.schema_id == REFUNDED and record.value is not None and not record.is_poison


def _summary(table: Table) -> dict[str, str]:
    snapshot = table.current_snapshot()
    return snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
