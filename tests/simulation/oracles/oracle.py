"""Judges a simulated table after every commit, and shares no code with the project but the tokens' format.

Each offset that the table's snapshots claim is exactly one of: a row, a dead letter, superseded by a newer record of
its key, deleted by a tombstone, a repetition of a key, or without a record in the log.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from tests.simulation.engine.tables import Letter, MemoryTables, Row, data_files
from tests.simulation.systems.kafka import MemoryKafka, Record
from tests.simulation.systems.memory_files import data_rows
from tests.simulation.systems.registry import OWN
from tests.simulation.world import Machine

Place = tuple[str, int, int]
"""Topic id, partition and offset."""


Range = tuple[str, int, int, int]
"""Topic id, partition, and offsets from (inclusive) and to (exclusive)."""

Position = tuple[str, dict[int, int]]
"""Topic id, and offsets by partition."""

RESUMED = "simulated"
"""The reason that operators give when they resume a table."""

JAVA_TOLERANCE_MS = 60_000
"""Maximum by which an entry of a table's history may be older than the one before it."""


class Violation(AssertionError):
    """A promise was broken."""


class Oracle:
    """The expected contents of a table, from the log and from the batches on main.

    Attributes:
        violations: Broken promises, as sentences.
        is_shared: Whether each batch is chosen from the whole log, so that each partition must have a share in it.
        position: The topic id and the end of the newest batch.
        furthest: The furthest end of a batch that the table ever had, by topic id and partition.
        rolled_back_to: The snapshot that an operator is rolling main back to.
        uncertain: Places of records that the broker deleted while a batch or replay may have been reading them.
        has_dropped: Whether an operator dropped a table with rows.
        chosen: The positions that operators chose; None if tests decide, or after one that is not named by offsets.
        every_letter: Places of all records that ever were dead letters. After a rollback, some become rows in a batch.
    """

    def __init__(self, mode: str, kafka: MemoryKafka, tables: MemoryTables, *, is_shared: bool = False):
        self.mode, self._kafka, self._tables, self.is_shared = mode, kafka, tables, is_shared
        self.violations: list[str] = []
        self.rolled_back_to: int | None = None
        self.uncertain: set[Place] = set()
        self.every_letter: set[Place] = set()
        self.chosen: list[dict[int, int]] | None = None
        self.has_dropped = False
        self.position: Position = ("", {})
        self.furthest: dict[str, dict[int, int]] = {}
        self._ranges: list[Range] = []
        self._main: list[int] = []
        self._parents: dict[int, int | None] = {}
        self._states: list[tuple[int, Position]] = []
        self._pending: set[int] = set()
        self._machine: Machine | None = None
        self._newer: set[int] = set()
        self._letters: Table | None = None
        self._letter_rows: list[Letter] = []
        self._rows: list[Row] = []

    # Commits

    def committed(self, name: str, before: TableMetadata | None, after: TableMetadata) -> None:
        """Judge a commit to a table."""
        if name.startswith("dry_run"):
            return
        table = self._tables.iceberg.loaded(name)
        self._judge_history(name, after)
        for snapshot in reversed(after.snapshots):
            if snapshot.snapshot_id in self._parents:
                break
            self._parents[snapshot.snapshot_id] = snapshot.parent_snapshot_id
        if before is not None and before.current_snapshot_id == after.current_snapshot_id:
            return
        if name.endswith("__dead_letters"):
            self._letters, self._letter_rows = table, rows_of(table)
            self.every_letter |= {place_of(letter.record) for letter in self._letter_rows}
        else:
            self._follow(table)
            self._rows = rows_of(table)
        if self.rolled_back_to is None:
            # Otherwise, an operator is rolling the dead letters back, too.
            self._judge(strict=False)

    def _judge_history(self, name: str, metadata: TableMetadata) -> None:
        """Judge whether Iceberg's Java library can read the metadata (TableMetadata: entries go back by a minute)."""
        for log in (metadata.snapshot_log, metadata.metadata_log):
            times = [entry.timestamp_ms for entry in log[-2:]]
            if times != sorted(times) and times[0] - times[-1] > JAVA_TOLERANCE_MS:
                self._violate(f"the history of {name} goes back by {times[0] - times[-1]} ms, so Java cannot read it")

    def _follow(self, table: Table) -> None:
        """Add the batches of new snapshots of main."""
        new: list[Snapshot] = []
        snapshot = table.current_snapshot()
        if snapshot and snapshot.snapshot_id == self.rolled_back_to:
            self._roll_back(snapshot.snapshot_id)
            return
        while snapshot and snapshot.snapshot_id not in self._main:
            new.append(snapshot)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent in self._main else table.snapshot_by_id(parent or 0)
        parent = new[-1].parent_snapshot_id if new else None
        while parent is not None and parent not in self._main and table.snapshot_by_id(parent) is None:
            # The first of two commits expired while the batch was staged.
            parent = self._parents.get(parent)
        if self._main and parent != self._main[-1]:
            self._violate("main moved back, or its newest snapshot was replaced")
        for snapshot in reversed(new):
            self._main.append(snapshot.snapshot_id)
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            token = json.loads(summary.get("lakehouse.batch", "{}"))
            if token.get("version") == 1:
                if self._newer & {*self._main}:
                    self._violate("a batch follows one in the format of a newer release")
                self._add(token, json.loads(summary.get("lakehouse.decision", "{}")).get("reason"))
            elif token:
                self._newer.add(snapshot.snapshot_id)
            self._add_replayed(json.loads(summary.get("lakehouse.replay", "{}")))
            self._states.append((len(self._ranges), self.position))

    def dropped(self, table: Table) -> None:
        """Forget the table, because an operator dropped it; a program drops tables of dry runs only."""
        if table.name()[-1].startswith("dry_run"):
            return
        if self._tables.world.current:
            self._violate("a program dropped the table")
        if table.name()[-1].endswith("__dead_letters"):
            return
        self.has_dropped = True
        self._main, self._states, self._ranges, self._rows, self._pending = [], [], [], [], set()
        self.position = "", {}
        self.uncertain |= {place for place in self._kafka.every_record if not self._kafka.has(place)}

    def _roll_back(self, snapshot_id: int) -> None:
        """Forget the batches after a snapshot, because an operator rolled main back to it."""
        self.rolled_back_to = None
        if snapshot_id in self._main:
            count = self._main.index(snapshot_id) + 1
            del self._main[count:], self._states[count:]
            ranges, self.position = self._states[-1]
            del self._ranges[ranges:]
            self._pending = set()
            # What was compacted since the batches were read is not read again.
            log = (place for place in self._kafka.every_record if self.position[0] in ("", place[0]))
            gone = (place for place in log if not self._kafka.has(place))
            self.uncertain |= {place for place in gone if place[2] >= self.position[1].get(place[1], 0)}

    def _add(self, batch: dict[str, Any], reason: str | None) -> None:
        topic_id = batch["topic_id"]
        start, end = ({int(p): o for p, o in batch[bound].items()} for bound in ("start", "end"))
        known = self.position[1] if topic_id == self.position[0] else {}
        if reason is None or (self.chosen is not None and reason != RESUMED):
            if self.position[0] not in ("", topic_id):
                self._violate(f"a batch of topic {topic_id} follows one of {self.position[0]} without a decision")
            for p, offset in start.items():
                if known.get(p, offset) != offset:
                    self._violate(
                        f"a batch of partition {p} begins at {offset}, and the one before ended at {known[p]}"
                    )
                if p not in known and any(self._kafka.has((topic_id, p, before)) for before in range(offset)):
                    self._violate(f"the first batch of partition {p} begins at {offset}, after records of the log")
                is_new = bool(known) and p not in known
                if is_new and any((topic_id, p, before) in self._kafka.every_record for before in range(offset)):
                    self._violate(f"partition {p} was added, and begins at {offset}, after lost records")
            if reason and start != end:
                self._violate(f"a program skipped records from {start} to {end} by itself: {reason}")
        if reason is None:
            self._judge_shares(start, end)
            self._ranges += [(topic_id, p, start[p], o) for p, o in end.items() if o > start[p]]
        elif reason == RESUMED and self.chosen is not None and not any(end == c | _added(c, end) for c in self.chosen):
            self._violate(f"an operator chose none of {self.chosen} where a table was resumed at {end}")
        self.position = topic_id, {**known, **end}
        furthest = self.furthest.setdefault(topic_id, {})
        furthest |= {p: max(offset, furthest.get(p, 0)) for p, offset in end.items()}
        log = self._kafka.log if topic_id == self._kafka.topic_id else {}
        self._machine = self._present_machine()
        self._pending = {p for p, part in log.items() if part.stable_end > self.position[1].get(p, part.start)}

    def _add_replayed(self, replay: Mapping[str, Any]) -> None:
        """Add the records that a replay read and that `resume` had skipped: the replay claims them, too."""
        topic_id, start = self.position[0], replay.get("start", {})
        for place in self._kafka.every_record:
            is_read = place[0] == topic_id and place[2] >= start.get(str(place[1]), place[2] + 1)
            if not is_read or place[2] >= replay["end"][str(place[1])] or self._is_claimed(place):
                continue
            if self._kafka.has(place):
                self._ranges.append((*place, place[2] + 1))
                self.uncertain.discard(place)
            else:
                self.uncertain.add(place)

    def _judge_shares(self, start: Mapping[int, int], end: Mapping[int, int]) -> None:
        """Judge that a batch has records of each partition that had some when the batch before it was published.

        A batch that Spark could not decode is halved, as is one whose jobs fail. If another program published the batch
        before, this one may have read the log earlier than that, since a batch that is retried ends where it did.
        """
        # The broker may have deleted the record since the batch was read.
        is_halved = any(
            record.is_poison and topic_id == self._kafka.topic_id and offset >= start.get(p, 0)
            for (topic_id, p, offset), record in self._kafka.every_record.items()
        )
        waiting = {p for p in self._pending & end.keys() if end[p] == start[p]}
        has_failed = any(fault != "none" for _, fault in self._tables.world.covered)
        is_judged = self.is_shared and self._machine is self._present_machine() and not is_halved and not has_failed
        if waiting and is_judged:
            self._violate(f"a batch has no records of partitions {waiting}, which had some before it was chosen")

    def _present_machine(self) -> Machine | None:
        process = self._tables.world.current
        return process.machine if process else None

    # Contents

    def _judge(self, *, strict: bool) -> None:
        every = self._kafka.every_record
        claimed = {
            place: every[place]
            for (topic_id, partition), spans in self._spans().items()
            for start, end in spans
            for offset in range(start, end)
            if (place := (topic_id, partition, offset)) in every and place not in self.uncertain
        }
        every_letter = [(place_of(letter.record), letter) for letter in self.letters()]
        letters = [(place, letter) for place, letter in every_letter if place in claimed]
        row_places = [place_of(row.record) for row in self.rows()]
        for kind, places in (("rows", row_places), ("dead letters", [place for place, _ in letters])):
            if len(places) > len({*places}):
                twice = [place for place, n in Counter(places).items() if n > 1]
                self._violate(f"{kind} exist twice: {twice}")
        pending = {place for place, letter in letters if not letter.recovered}
        recovered = {place for place, letter in letters if letter.recovered}
        rows = {*row_places}
        # The dead letters of a batch that was rolled back or never published stay, and can become rows without it.
        redriven = {place for place, _ in every_letter}
        if surplus := rows - claimed.keys() - self.uncertain - redriven:
            self._violate(f"rows exist that no batch claims: {sorted(surplus)}")
        if bad := {place for place in rows & every.keys() if every[place].is_garbage or every[place].is_poison}:
            self._violate(f"rows exist of records that cannot be decoded: {sorted(bad)}")
        if self.mode == "append":
            if lost := claimed.keys() - rows - pending:
                self._violate(f"records are neither a row nor a dead letter: {sorted(lost)}")
            both = rows & pending
        else:
            both = self._judge_keys(claimed, rows, pending, recovered)
        if both and (strict or not all(self._may_decode_later(claimed[place]) for place in both)):
            self._violate(f"records are a row and a dead letter: {sorted(both)}")

    def _is_claimed(self, place: Place) -> bool:
        """Return whether a batch on main has a record."""
        return any(place[:2] == r[:2] and r[2] <= place[2] < r[3] for r in self._ranges)

    def _spans(self) -> dict[tuple[str, int], list[tuple[int, int]]]:
        """Return the ranges of offsets by topic id and partition, with one for those that follow each other."""
        spans: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for topic_id, partition, start, end in self._ranges:
            of_partition = spans.setdefault((topic_id, partition), [])
            if of_partition and of_partition[-1][1] == start:
                of_partition[-1] = of_partition[-1][0], end
            else:
                of_partition.append((start, end))
        return spans

    def _judge_keys(
        self, claimed: dict[Place, Record], rows: set[Place], pending: set[Place], recovered: set[Place]
    ) -> set[Place]:
        """Judge a table with one row per key, and return the rows that are dead letters as well."""
        bad = {place for place, record in claimed.items() if self._is_bad(record)}
        if lost := bad - pending:
            self._violate(f"records that cannot be decoded are no dead letters: {sorted(lost)}")
        late = {place for place, record in claimed.items() if self._may_decode_later(record)} - bad
        # While dead letters are decoded again, their rows are published first and the letters are marked after.
        good = (claimed.keys() - pending - bad) | (late & pending & rows)
        if self._are_right(rows, {place: claimed[place] for place in good}):
            return rows & pending
        self._violate(f"rows {sorted(rows)} are not the right ones of {sorted(claimed)} without {sorted(pending)}")
        return set()

    def _are_right(self, rows: set[Place], good: Mapping[Place, Record]) -> bool:
        """Return whether a table with one row per key may have these rows after reading these records.

        An uncertain record was read or not. If it was read, it replaced or deleted an older row of its key.
        """
        every = self._kafka.every_record
        # The dead letters of a batch that was never published may have become rows, too.
        letters = {place_of(letter.record) for letter in self.letters()} - good.keys()
        places = (self.uncertain | {place for place in letters if not self._is_claimed(place)}) & every.keys()
        uncertain = {place: every[place] for place in places if not self._is_bad(every[place])}
        possible = {**uncertain, **good}
        by_key: dict[int, list[Place]] = {}
        for place in sorted(possible, key=self._age):
            by_key.setdefault(possible[place].key, []).append(place)
        existing = [every[place].key for place in rows]
        if not rows <= possible.keys() or len(existing) > len(set(existing)):
            return False
        for of_key in by_key.values():
            certain = [place for place in of_key if place in good]
            is_row = any(place in rows for place in of_key)
            if self.mode == "dedup":
                if certain and not is_row:
                    return False
                continue
            # The rows that the key may have: that of its newest certain record, or of a later one that is uncertain.
            last = of_key[of_key.index(certain[-1]) :] if certain else of_key
            may_be_absent = not certain or any(possible[place].value is None for place in last)
            may_be_row = any(place in rows and possible[place].value is not None for place in last)
            if not (may_be_row if is_row else may_be_absent):
                return False
        return True

    def _is_bad(self, record: Record) -> bool:
        """Return whether a record never becomes a row or a deletion."""
        if record.value is None:
            return self.mode == "dedup"
        return record.is_garbage or record.is_poison

    def _may_decode_later(self, record: Record) -> bool:
        """Return whether a record may be a dead letter at first: a schema is registered or a check removed later."""
        return record.schema_id != OWN or record.fails_check

    def _age(self, place: Place) -> tuple[int, int, int]:
        return self._kafka.age(place[0]), place[2], place[1]

    def _violate(self, sentence: str) -> None:
        self.violations.append(sentence)

    def rows(self) -> list[Row]:
        """Return the rows of the table."""
        return self._rows

    def letters(self) -> list[Letter]:
        """Return the dead letters of the table, whether or not they were recovered."""
        return self._letter_rows

    # The end

    def judge_end(self, *, is_redriven: bool = True) -> None:
        """Judge a table after everything has recovered.

        Args:
            is_redriven: Whether a redrive has ended, and not only one that was killed before it marked its letters.
        """
        self._letter_rows = rows_of(self._letters)
        self._judge(strict=is_redriven)
        log, (topic_id, position) = self._kafka.log, self.position
        ends = {p: part.stable_end for p, part in log.items()}
        # What a partition never had is in no token.
        reached = {p: position.get(p, part.start) for p, part in log.items()}
        is_empty = topic_id == "" and all(part.start == ends[p] for p, part in log.items())
        if (topic_id, reached) != (self._kafka.topic_id, ends) and not is_empty:
            self._violate(f"the log ends at {ends} of {self._kafka.topic_id}, and the table at {self.position}")

    def raise_violations(self) -> None:
        """Raise Violation if a promise was broken."""
        if self.violations:
            raise Violation("; ".join(dict.fromkeys(self.violations)))


def _added(chosen: Mapping[int, int], end: Mapping[int, int]) -> dict[int, int]:
    """Return the partitions that were added after an operator chose a position: no record of them is skipped."""
    return {partition: 0 for partition in end if partition not in chosen}


def place_of(record: Record) -> Place:
    """Return the place of a record."""
    return record.topic_id, record.partition, record.offset


def rows_of(table: Table | None) -> list[Any]:
    """Return the rows of main."""
    if table is None:
        return []
    files: Iterable[Any] = data_files(table, table.metadata.current_snapshot_id)
    return [row for file in files for row in data_rows(file.file_path)]


class TruncationOracle(Oracle):
    """An oracle that forgets the rows of lost records, since later records have their places.

    A program may have read a record before it was lost, and one that has its place may be behind the table's position,
    so either may be missing.
    """

    def __init__(self, *arguments: Any, **settings: Any):
        super().__init__(*arguments, **settings)
        self._lost: set[tuple[object, int | None]] = set()

    def truncated(self, record: Record) -> None:
        """Note that a record was lost."""
        self._lost.add((place_of(record), record.value))
        self.uncertain.add(place_of(record))

    def rows(self) -> list[Row]:
        """Return the rows of the table whose records exist or existed last at their places."""
        return [row for row in super().rows() if not self._is_lost(row.record)]

    def letters(self) -> list[Letter]:
        """Return the dead letters of the table whose records exist or existed last at their places."""
        return [letter for letter in super().letters() if not self._is_lost(letter.record)]

    def _is_lost(self, record: Record) -> bool:
        return (place_of(record), record.value) in self._lost
