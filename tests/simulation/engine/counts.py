"""Answers to questions about tables, the log and decided records in the simulated engine; see
lakehouse.pipeline.engine.Engine.count."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from lakehouse.core.offsets.batch import Batch
from lakehouse.core.offsets.ledger import NAMED, LogContents, OffsetRange, RangeContents
from lakehouse.pipeline.engine_values import (
    Answer,
    ChangedColumns,
    Contents,
    DuplicateKeys,
    Duplicates,
    Ends,
    IsEmpty,
    LetterPlaces,
    LetterSet,
    LettersOf,
    Logged,
    LogRange,
    LostRows,
    NullKeys,
    Place,
    Places,
    PoisonLetters,
    Question,
    WrongNewest,
)
from tests.simulation.engine.decisions import digest, is_of, one_a_key, read
from tests.simulation.engine.derived_rows import MemoryDerivation
from tests.simulation.engine.tables import Letter, MemoryTables
from tests.simulation.systems.kafka import Record


def count(tables: MemoryTables, question: Question[Answer]) -> Answer:
    """Answer a question."""
    result: Any
    match question:
        case NullKeys():
            result = 0
        case LettersOf():
            letters = tables.job("read table", lambda: tables.rows(question.ref, question.branch or "main"))
            result = _letter_set(letters, question.batch)
        case PoisonLetters():
            letters = tables.job("read table", lambda: tables.rows(question.ref))
            result = _poisonous(letters, question.batch)
        case LostRows():
            # It is no job of its own, since the error of one is that of the write before it.
            result = _lost_rows(tables, question)
        case Contents():
            result = tables.job("contents", lambda: _contents(tables, question))
        case Duplicates():
            result = tables.job("duplicates", lambda: _duplicates(tables, question))
        case DuplicateKeys():
            result = tables.job("duplicate keys", lambda: _duplicate_keys(tables, question))
        case Logged():
            result = tables.job("logged", lambda: _logged(tables, question))
        case WrongNewest():
            result = tables.job("wrong newest", lambda: _wrong_newest(tables, question))
        case Ends():
            result = MemoryDerivation(tables).ends(question.rows)
        case IsEmpty():
            result = MemoryDerivation(tables).is_empty(question.rows)
        case ChangedColumns():
            result = []
    return result


def _letter_set(letters: Sequence[Letter], batch: Batch) -> LetterSet:
    of = [letter for letter in letters if is_of(letter.record, batch.topic_id, batch.start, batch.end)]
    return LetterSet(len(of), digest(letter.record for letter in of), sum(letter.recovered for letter in of))


def _poisonous(letters: Sequence[Letter], batch: Batch) -> list[Place]:
    poison = (letter.record for letter in letters if letter.reason == "poison" and not letter.recovered)
    return [_place(record) for record in poison if is_of(record, batch.topic_id, batch.start, batch.end)]


def _lost_rows(tables: MemoryTables, question: LostRows) -> list[Place]:
    if question.base is None:
        return []
    batch = question.batch
    after = {row.record.key: row.record for row in tables.rows(question.target.ref, question.target.branch)}
    decisions = [decision for piece in question.decided for decision in piece.decide()]
    places = {_place(d.record) for d in decisions}
    good = [d.record for d in decisions if d.is_good]
    lost = []
    for record in (row.record for row in tables.rows(question.target.ref, "main", question.base)):
        is_newer = functools.partial(_is_as_new, record)
        is_read = batch.start.get(record.partition, 0) <= record.offset < batch.end.get(record.partition, 0)
        states = [*filter(None, [after.get(record.key)]), *good]
        if is_read and _place(record) not in places and not any(map(is_newer, states)):
            lost.append(_place(record))
    return lost


def _is_as_new(record: Record, other: Record) -> bool:
    if record.key != other.key:
        return False
    return record.partition != other.partition or record.offset <= other.offset


def _contents(tables: MemoryTables, question: Contents) -> dict[OffsetRange | None, RangeContents]:
    contents: dict[OffsetRange | None, list[Place]] = {}
    for place in (_place(record) for of in question.places for record in _records(tables, of)):
        contents.setdefault(_range_of(place, question.ranges), []).append(place)
    offsets = {range_: [offset for _, offset in places] for range_, places in contents.items()}
    return {
        range_: RangeContents(len(places), len({*places}), min(offsets[range_]), max(offsets[range_]))
        for range_, places in contents.items()
    }


def _duplicates(tables: MemoryTables, question: Duplicates) -> list[tuple[int, int, int]]:
    occurrences = Counter(map(_place, _records(tables, question.places)))
    return sorted((*place, n) for place, n in occurrences.items() if n > question.allowed)[:NAMED]


def _duplicate_keys(tables: MemoryTables, question: DuplicateKeys) -> list[tuple[str, int]]:
    occurrences = Counter(_key(question.rows.key, record) for record in _records(tables, question.rows))
    is_shown = {*question.rows.key} <= {*question.shown}
    return sorted((str(key) if is_shown else "(sensitive)", n) for key, n in occurrences.items() if n > 1)[:NAMED]


def _logged(tables: MemoryTables, question: Logged) -> tuple[dict[int, LogContents], list[tuple[int, int, int]]]:
    known = {_place(record) for of in question.outcomes for record in _records(tables, of)}
    records: Counter[int] = Counter()
    missing: dict[int, list[tuple[int, int, int]]] = {}
    for place in sorted(map(_place, read(tables, LogRange(question.batch)))):
        if range_ := _range_of(place, question.ranges):
            records[range_.snapshot_id] += 1
            if question.outcomes and place not in known:
                missing.setdefault(range_.snapshot_id, []).append((range_.snapshot_id, *place))
    contents = {id_: LogContents(n, len(missing.get(id_, ()))) for id_, n in records.items()}
    return contents, [lost for id_ in sorted(missing) for lost in missing[id_][:NAMED]]


def _wrong_newest(tables: MemoryTables, question: WrongNewest) -> list[tuple[int, int, bool]]:
    letters = {_place(record) for record in _records(tables, question.letters)} if question.letters else set()
    decisions = question.decided.decide()
    good = [d.record for d in decisions if d.is_good and _place(d.record) not in letters]
    deletions = {_place(d.record) for d in decisions if d.is_deletion}
    rows: dict[Any, list[Record]] = {}
    for row in _records(tables, question.rows):
        rows.setdefault(_key(question.rows.key, row), []).append(row)
    by_key: dict[Any, list[Record]] = {}
    for record in good:
        by_key.setdefault(_key(question.rows.key, record), []).append(record)
    wrong = []
    for key, records in by_key.items():
        last = one_a_key(records, max, lambda record: record.partition).values()
        newest = max(last, key=lambda record: record.at)
        if sum(record.at == newest.at for record in last) > 1:
            continue
        older = [row for row in rows.get(key, ()) if _is_older(row, newest)]
        is_deletion = _place(newest) in deletions
        if older or (not is_deletion and key not in rows):
            wrong.append((*_place(newest), is_deletion))
    return sorted(wrong)[:NAMED]


def _is_older(row: Record, other: Record) -> bool:
    return row.offset < other.offset if row.partition == other.partition else row.at < other.at


def _records(tables: MemoryTables, places: Places) -> Iterable[Record]:
    rows = tables.rows(places.ref, snapshot_id=places.snapshot_id)
    topic_ids = places.topic_ids if isinstance(places, LetterPlaces) else None
    return [row.record for row in rows if topic_ids is None or row.record.topic_id in topic_ids]


def _range_of(place: Place, ranges: Sequence[OffsetRange]) -> OffsetRange | None:
    partition, offset = place
    return next((r for r in ranges if r.partition == partition and r.start <= offset < r.end), None)


def _place(record: Record) -> Place:
    return record.partition, record.offset


def _key(columns: Sequence[str], record: Record) -> Any:
    return _place(record) if tuple(columns) == ("kafka_partition", "kafka_offset") else record.key
