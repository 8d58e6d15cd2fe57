"""The tables of dead letters of the simulated engine; see lakehouse.pipeline.engine.LetterStore."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakehouse.core.offsets.batch import Batch, Positions
from lakehouse.core.table_protocol import DEAD_LETTERS
from lakehouse.core.tables.letter_columns import letter_schema
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.engine_values import (
    Confirmed,
    ExistingRows,
    LetterOrigin,
    LetterSet,
    Place,
    Redecided,
    Redrivable,
    Rejected,
    Target,
)
from tests.simulation.engine.decisions import Decision, digest, is_of, planned, read
from tests.simulation.engine.tables import Letter, MemoryTables
from tests.simulation.oracles.oracle import place_of
from tests.simulation.systems.kafka import Record

LARGE = 2_000
"""Bytes of a header that some records have, which does not fit into small topics of dead letters."""


@dataclass(frozen=True)
class MemoryMissing:
    """Dead letters that their table lacks."""

    letters: Sequence[Letter]

    @property
    def count(self) -> int:
        """Their number."""
        return len(self.letters)


@dataclass(frozen=True)
class MemoryAttempt:
    """Dead letters that were decided again; see lakehouse.pipeline.engine.LetterAttempt."""

    decisions: Sequence[Decision]

    @property
    def count(self) -> int:
        """Their number."""
        return len(self.decisions)

    @property
    def remaining(self) -> LetterSet:
        """Those that do not become rows."""
        stay = [d.record for d in self.decisions if d.reason]
        return LetterSet(len(stay), digest(stay))

    def first_offsets(self) -> dict[int, int]:
        first: dict[int, int] = {}
        for record in (d.record for d in self.decisions if d.reason is None):
            first[record.partition] = min(record.offset, first.get(record.partition, record.offset))
        return first

    def without_record(self, most: int) -> list[Place]:
        return [(d.record.partition, d.record.offset) for d in self.decisions if d.reason == "compacted"][:most]


@dataclass(frozen=True)
class MemoryLetters:
    """The tables of dead letters."""

    tables: MemoryTables

    def read(self, ref: TableRef, topic_id: str, since: Positions, upto: Positions) -> pa.Table:
        letters = self.tables.job("read table", lambda: self.tables.rows(ref))
        of = [letter for letter in letters if is_of(letter.record, topic_id, since, upto)]
        of.sort(key=lambda letter: place_of(letter.record))
        return pa.Table.from_pylist([_row(letter, ref) for letter in of], schema=letter_schema().as_arrow())

    def missing(
        self, rejected: Sequence[Rejected], ref: TableRef, batch: Batch, rows: Target, place: Sequence[str]
    ) -> MemoryMissing:
        def lacking() -> list[Letter]:
            existing = {row.record for row in self.tables.rows(rows.ref, rows.branch)}
            existing |= {letter.record for letter in self.tables.rows(ref) if not letter.recovered}
            letters = [letter for piece in rejected for letter in _letters(piece.decided.decide(), piece.origin)]
            return [letter for letter in letters if letter.record not in existing]

        return MemoryMissing(self.tables.job("missing letters", lacking))

    def discard(self, target: Target, batch: Batch, replaced_by: Any = None) -> None:
        if replaced_by is None:
            self._delete(target, lambda letter: not is_of(letter.record, batch.topic_id, batch.start, batch.end))
        else:
            again = {letter.record for letter in replaced_by.letters}
            self._delete(target, lambda letter: letter.record not in again)

    def put(self, letters: Any, target: Target) -> None:
        if isinstance(letters, Rejected):
            added = _letters(planned(letters.decided, target), letters.origin)
        else:
            added = letters.letters
        self.tables.job("commit", lambda: self.tables.commit(target, None, added))

    def attempt(self, letters: Redrivable) -> MemoryAttempt:
        match letters:
            case Redecided():
                return MemoryAttempt(self.tables.job("attempt", letters.decided.decide))
            case Confirmed():
                known = self.tables.job("replaced", lambda: self._states(letters))
                return MemoryAttempt([_confirmed(decision, known) for decision in letters.attempt.decisions])
            case ExistingRows():
                return MemoryAttempt(self.tables.job("existing_rows", lambda: self._existing(letters)))

    def _states(self, confirmed: Confirmed) -> list[Record]:
        good = [d.record for piece in confirmed.decided for d in piece.decide() if d.is_good]
        return [*good, *(row.record for row in self.tables.rows(confirmed.ref))]

    def _existing(self, existing: ExistingRows) -> list[Decision]:
        places = {(row.record.partition, row.record.offset) for row in self.tables.rows(existing.ref)}
        return [Decision(r, None) for r in read(self.tables, existing.waiting) if (r.partition, r.offset) in places]

    def mark(self, attempt: Any, target: Target, topic_id: str) -> None:
        by_place = {(d.record.topic_id, d.record.partition, d.record.offset): d for d in attempt.decisions}

        def change(letter: Letter) -> Letter:
            decision = by_place.get((letter.record.topic_id, letter.record.partition, letter.record.offset))
            if decision is None or letter.recovered:
                return letter
            return replace(letter, attempts=letter.attempts + 1, recovered=decision.reason is None)

        planned = self.tables.job("plan", lambda: self.tables.head(target.ref, target.branch))
        self.tables.job("commit", lambda: self.tables.commit(target, planned, change=change))

    def _delete(self, target: Target, keep: Callable[[Letter], bool]) -> None:
        planned = self.tables.job("plan", lambda: self.tables.head(target.ref, target.branch))
        self.tables.job("commit deletes", lambda: self.tables.commit(target.deleting(), planned, keep=keep))


def _letters(decisions: Sequence[Decision], origin: LetterOrigin) -> list[Letter]:
    return [Letter(d.record, d.reason) for d in decisions if d.reason and _is_letter(d, origin)]


def _confirmed(decision: Decision, states: Sequence[Record]) -> Decision:
    """Return the decision, or that the record stays a dead letter if its key has no row or later record."""
    record = decision.record
    same = [state for state in states if (state.key, state.partition) == (record.key, record.partition)]
    has_state = any(state.offset >= record.offset for state in same)
    is_settled = bool(decision.reason) or decision.is_filtered or has_state
    return decision if is_settled else replace(decision, reason="compacted")


def _is_letter(decision: Decision, origin: LetterOrigin) -> bool:
    return decision.reason == "check" or (decision.reason is not None and not origin.only_quarantined)


def _row(letter: Letter, ref: TableRef) -> dict[str, Any]:
    """Return the columns of a dead letter that the pipeline reads; the others are null."""
    record = letter.record
    identity = ":".join(map(str, place_of(record))).encode()
    source = {
        "topic": ref.name.removesuffix(DEAD_LETTERS),
        "partition": record.partition,
        "offset": record.offset,
        "headers": [{"key": "lakehouse.note", "value": bytes(LARGE)}] if (record.value or 0) % 4 == 1 else [],
        "value": identity,
    }
    return {"error_reason": letter.reason, "error_message": letter.reason, "source_record": {**source, "key": b"k"}}
