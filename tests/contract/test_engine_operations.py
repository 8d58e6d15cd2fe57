"""Each operation of the engine does the same in memory and on Spark: both run these programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, get_args

import pytest

from lakehouse.config import checks
from lakehouse.config.checks import Range
from lakehouse.config.settings import Deletion
from lakehouse.core.offsets.batch import Batch, Counts, Positions
from lakehouse.core.offsets.ledger import LogContents, OffsetRange, RangeContents
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.compaction_values import DataFiles, Rewritten
from lakehouse.pipeline.engine import Engine, LetterStore, Maintenance
from lakehouse.pipeline.engine_values import (
    ChangedColumns,
    Checking,
    Confirmed,
    Contents,
    Controls,
    Deciding,
    Decoding,
    DuplicateKeys,
    Duplicates,
    Ends,
    ExistingRows,
    FirstRows,
    GroupRows,
    IsEmpty,
    JobFailed,
    LateRows,
    LetterOrigin,
    LetterPlaces,
    LetterSet,
    LettersOf,
    Logged,
    LogRange,
    LostRows,
    NullKeys,
    Places,
    PoisonLetters,
    Question,
    Reading,
    Records,
    Redecided,
    Redrivable,
    Rejected,
    RowPlaces,
    Rows,
    RowsBetween,
    RowsInColumnsOf,
    Side,
    SnapshotRows,
    Target,
    Trial,
    WaitingLetters,
    Written,
    WrongNewest,
)
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.redrive import redrive
from lakehouse.pipeline.schemas.decoding import resolve_schemas
from lakehouse.pipeline.schemas.schema_decision import decide_schema
from resources.iceberg.snapshots import last_batch
from tests.contract.sites import GARBAGE, MemorySite, Sent, ServerSite, Site
from tests.simulation.choices import Choices
from tests.simulation.schedules.schedule import Schedule
from tests.support.intercepted import InterceptedEngines

EARLIER, LATER = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""Times before and after all records and snapshots."""


@pytest.fixture(params=("memory", "server"))
def make_site(request: Any) -> Iterator[Any]:
    if request.param == "server":
        resources = request.getfixturevalue("resources")
        yield lambda mode: ServerSite(resources, mode)
        return
    with ExitStack() as stack:
        yield lambda mode: MemorySite(stack, Schedule(Choices(None), modes=(mode,)))


def run(site: Site) -> None:
    list(ingest(site.namespace, site.topic, site.clients))


def ref_of(site: Site) -> TableRef:
    return site.topic.table_in(site.namespace)


def snapshot_of(site: Site, ref: TableRef, branch: str = "main") -> int:
    return site.clients.catalog.load(ref).refs()[branch].snapshot_id


def batch_of(site: Site) -> Batch:
    """Return the batch from the first offset to the end of the newest one of the table."""
    batch = last_batch(site.clients.catalog.load(ref_of(site)))
    assert batch is not None
    return Batch(batch.cluster_id, batch.topic, batch.topic_id, {0: 0}, batch.end)


def decoding_of(site: Site) -> Decoding[Side]:
    schemas = resolve_schemas(site.clients.schema_registry, site.topic)
    return decide_schema(site.topic, schemas, site.clients.catalog.load(ref_of(site))).schemas.decoding()


def rows_of(site: Site, branch: str = "main", key: tuple[str, ...] = ()) -> RowPlaces:
    ref = ref_of(site)
    return RowPlaces(ref, snapshot_of(site, ref, branch), site.topic.metadata.names, key)


def letters_of(site: Site) -> LetterPlaces:
    ref = ref_of(site).dead_letters
    return LetterPlaces(ref, snapshot_of(site, ref), [batch_of(site).topic_id])


def test_count_of_rows_and_letters_by_range(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1), Sent("a", 1), Sent("b", GARBAGE), Sent("c", 3))
    run(site)
    engine, first, rest = site.clients.engine, OffsetRange(1, 0, 0, 2), OffsetRange(2, 0, 2, 4)
    rows, letters, batch = rows_of(site), letters_of(site), batch_of(site)

    def contents(places: list[Places], *ranges: OffsetRange) -> Any:
        return engine.count(Contents(places, ranges))

    assert contents([rows], first) == {first: RangeContents(2, 2, 0, 1), None: RangeContents(1, 1, 3, 3)}
    both = {first: RangeContents(2, 2, 0, 1), rest: RangeContents(2, 2, 2, 3)}
    assert contents([rows, letters], first, rest) == both
    assert engine.count(Logged(batch, [first, rest], [rows, letters])) == ({1: LogContents(2), 2: LogContents(2)}, [])
    assert engine.count(Logged(batch, [first, rest], [])) == ({1: LogContents(2), 2: LogContents(2)}, [])
    assert engine.count(Logged(batch, [rest], [rows])) == ({2: LogContents(2, 1)}, [(2, 0, 2)])


def test_count_of_rows_that_were_written_twice(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1), Sent("a", 2), Sent("c", 3))
    run(site)
    engine, target = site.clients.engine, Target(ref_of(site), "twice", {})
    engine.create_branch(target.ref, target.branch, snapshot_of(site, target.ref))
    decided = engine.decide(LogRange(batch_of(site)), decoding_of(site))
    engine.write(decided, target, "append", (), empty=False)
    twice = rows_of(site, "twice", ("id",))
    assert engine.count(Duplicates(twice)) == [(0, 0, 2), (0, 1, 2), (0, 2, 2)]
    assert engine.count(Duplicates(twice, allowed=2)) == []
    assert engine.count(DuplicateKeys(twice, {"id"})) == [("a", 4), ("c", 2)]
    assert sorted(engine.count(DuplicateKeys(twice, {"amount"}))) == [("(sensitive)", 2), ("(sensitive)", 4)]
    assert engine.count(NullKeys(target.ref, "twice", ("id",))) == 0


def test_count_of_keys_without_their_newest_row(make_site: Any) -> None:
    site = make_site("upsert")
    site.produce(Sent("a", 1), Sent("b", 2))
    run(site)
    before = rows_of(site, key=("id",))
    site.produce(Sent("a", 3), Sent("b", None), Sent("c", 4), Sent("d", GARBAGE))
    run(site)
    engine, target = site.clients.engine, Target(ref_of(site), "before", {})
    decided = engine.decide(LogRange(batch_of(site)), decoding_of(site))
    expected = [(0, 2, False), (0, 3, True), (0, 4, False)]
    assert engine.count(WrongNewest(decided, letters_of(site), before)) == expected
    assert engine.count(WrongNewest(decided, None, rows_of(site, key=("id",)))) == []
    # The branch lacks the newest rows, which no record replaces if only the first two were read.
    engine.create_branch(target.ref, target.branch, before.snapshot_id)
    batch, place = batch_of(site), site.topic.metadata.place
    read = engine.decide(
        LogRange(Batch(batch.cluster_id, batch.topic, batch.topic_id, {0: 0}, {0: 2})), decoding_of(site)
    )
    main = snapshot_of(site, target.ref)
    assert engine.count(LostRows(main, target, [read], batch, ("id",), place)) == [(0, 2), (0, 4)]
    assert engine.count(LostRows(main, target, [decided], batch, ("id",), place)) == []
    assert engine.count(LostRows(None, target, [read], batch, ("id",), place)) == []


def test_newest_record_of_key_in_partitions_has_latest_timestamp(make_site: Any) -> None:
    site = make_site("upsert")
    site.produce(Sent("x", 0, at=5), Sent("a", 1, at=10), Sent("b", 2, at=10), Sent("c", 3, at=30))
    run(site)
    before = rows_of(site, key=("id",))
    site.add_partition()
    # Offsets of the added partition are lower than those of records which are older.
    moved = Sent("d", 8, partition=1, at=60), Sent("a", 4, partition=1, at=20), Sent("b", None, partition=1, at=20)
    site.produce(*moved, Sent("c", 5, partition=1, at=20), Sent("d", 7, at=50))
    run(site)

    assert site.rows() == [("a", 4), ("c", 3), ("d", 8), ("x", 0)]
    engine, batch = site.clients.engine, last_batch(site.clients.catalog.load(ref_of(site)))
    assert batch is not None
    whole = Batch(batch.cluster_id, batch.topic, batch.topic_id, {0: 0, 1: 0}, batch.end)
    decided = engine.decide(LogRange(whole), decoding_of(site))
    assert engine.count(WrongNewest(decided, None, rows_of(site, key=("id",)))) == []
    wrong = [(1, 0, False), (1, 1, False), (1, 2, True)]
    assert engine.count(WrongNewest(decided, None, before)) == wrong


def test_first_record_of_key_in_partitions_has_earliest_timestamp(make_site: Any) -> None:
    site = make_site("dedup")
    site.add_partition()
    site.produce(Sent("x", 0, at=5), Sent("a", 1, at=20), Sent("a", 2, partition=1, at=30))
    run(site)

    assert site.rows() == [("a", 1), ("x", 0)]


def test_declared_value_of_a_column_deletes_the_row_of_its_key(make_site: Any) -> None:
    site = make_site("upsert")
    site.topic = site.topic.model_copy(update={"delete": Deletion(column="amount", value=7)})
    site.produce(Sent("a", 1), Sent("b", 2), Sent("c", 7))
    run(site)
    before = rows_of(site, key=("id",))
    site.produce(Sent("a", 7), Sent("d", 7), Sent("b", 7), Sent("b", 3), Sent("e", None))
    run(site)

    assert site.rows() == [("b", 3)]
    engine = site.clients.engine
    decided = engine.decide(LogRange(batch_of(site)), decoding_of(site))
    assert engine.count(WrongNewest(decided, None, rows_of(site, key=("id",)))) == []
    assert engine.count(WrongNewest(decided, None, before)) == [(0, 3, True), (0, 6, False)]


def letter_batch(site: Site, start: int, end: int) -> Batch:
    whole = batch_of(site)
    return Batch(whole.cluster_id, whole.topic, whole.topic_id, {0: start}, {0: end})


def test_write_commits_to_a_branch(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1))
    run(site)
    engine, target = site.clients.engine, Target(ref_of(site), "branch", {"note": "first"})
    engine.create_branch(target.ref, target.branch)
    assert engine.write(None, target) == Written(Counts())
    summary = site.clients.catalog.load(target.ref).snapshot_by_name("branch").summary
    assert summary.additional_properties["note"] == "first"
    site.produce(Sent("a", 2), Sent("b", 3), Sent("c", GARBAGE))
    decided = engine.decide(LogRange(letter_batch(site, 1, 4)), decoding_of(site))
    written = engine.write(decided, target, "dedup", ("id",))
    assert written.counts == Counts(consumed=3, rows=1, dead_letters=1, deduplicated=1)
    written = engine.write(decided, target, "upsert", ("id",))
    assert written.counts == Counts(consumed=3, rows=2, dead_letters=1)
    assert site.rows("branch") == [("a", 2), ("b", 3)]
    assert site.rows() == [("a", 1)]
    with pytest.raises(JobFailed):
        engine.write(decided, replace(target, branch="missing"), "append")
    with pytest.raises(JobFailed):
        engine.write(None, replace(target, branch="missing"))


def test_other_records_of_files_with_rows_are_decided(make_site: Any) -> None:
    site = make_site("append")
    site.use_compiled_decoder()
    site.produce(Sent("a", 1))
    run(site)
    engine, target = site.clients.engine, Target(ref_of(site), "branch", {})
    decoding = replace(decoding_of(site), reads_header_ids=False)
    engine.create_branch(target.ref, target.branch)
    site.produce(Sent("b", 2), Sent("c", GARBAGE), Sent("d", 4, is_late=True))
    table = site.clients.catalog.iceberg().load_table((site.namespace, site.topic.table))
    files = engine.row_files(letter_batch(site, 1, 4), decoding, table, lambda: None)
    assert files.rows == sum(file.record_count for file in files.files) == 1
    others = engine.decide(files.others, decoding)
    assert [offset for _, offset, _ in others.first_faults() if offset] == [2, 3]
    assert engine.write(others, target).counts == Counts(consumed=2, dead_letters=2)
    files = engine.row_files(letter_batch(site, 1, 2), decoding, table, lambda: None)
    assert files.rows == 1
    assert engine.write(engine.decide(files.others, decoding), target).counts == Counts()


def test_branches_begin_at_existing_snapshots(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1))
    run(site)
    engine, ref = site.clients.engine, ref_of(site)
    base = snapshot_of(site, ref)
    site.produce(Sent("b", 2))
    run(site)
    engine.create_branch(ref, "at_base", base)
    assert snapshot_of(site, ref, "at_base") == base
    for name, snapshot_id in (("at_missing", base + 1), ("at_base", None)):
        with pytest.raises(JobFailed):
            engine.create_branch(ref, name, snapshot_id)


def test_decided_records_have_faults_and_ids(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 8), Sent("b", GARBAGE), Sent("c", 4, is_late=True))
    run(site)
    engine, records = site.clients.engine, LogRange(batch_of(site))
    low = Range(type="range", column="amount", max=6, severity="quarantine")
    decoding = replace(decoding_of(site), quarantine={"low": low.test})
    decided = engine.decide(records, decoding, headers=True)
    assert [(offset, partition) for partition, offset, _ in decided.first_faults() if offset] == [(1, 0), (2, 0)]
    [late] = decided.unknown_schema_ids(5)
    assert decided.unknown_schema_ids(5, [late]) == decided.unknown_schema_ids(5, side="key") == []
    assert decided.quarantined({"low": ["amount"]})["low"][0] == 1
    refused = engine.decide(records, decoding, refused="poison")
    assert refused.unknown_schema_ids(5) == []
    kept = engine.decide(replace(records, left_out=[(0, 1)]), decoding)
    assert [offset for _, offset, _ in kept.first_faults() if offset] == [2]
    assert engine.completes(Deciding(decided)) and engine.completes(Reading(records))
    assert engine.completes(Controls(decoding, explained=True))
    site.retain(2)
    lost = engine.decide(records, decoding)
    assert not engine.completes(Deciding(lost))
    with pytest.raises(JobFailed):
        engine.completes(Reading(records))


def test_kept_records_are_those_of_the_log(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1), Sent("b", GARBAGE), Sent("c", 3))
    run(site)
    engine, decoding = site.clients.engine, decoding_of(site)
    records = LogRange(batch_of(site), left_out=[(0, 0)])
    kept = engine.keep(records)
    of_log, of_kept = (engine.decide(log, decoding, headers=True).first_faults() for log in (records, kept))
    assert of_kept == of_log
    assert [offset for _, offset, _ in of_kept] == [1]
    engine.release(kept)
    assert engine.decide(records, decoding).first_faults() == of_log


def test_checks_of_a_snapshot(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 8), Sent("b", 5))
    run(site)
    ref, names = ref_of(site), site.topic.metadata.names
    declared = {"low": Range(type="range", column="amount", max=6)}
    scope = checks.scope(ref.spark_path(), snapshot_of(site, ref), {}, names, {})
    engine = site.clients.engine
    assert engine.completes(Checking(declared, scope))
    result = engine.check(declared, scope, {"low": ["amount"]})["low"]
    assert (result.checked, result.failing) == (2, 1)


def test_letters_are_put_read_and_discarded(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1), Sent("b", GARBAGE), Sent("c", None))
    run(site)
    engine, batch, ref = site.clients.engine, batch_of(site), ref_of(site).dead_letters
    letters, branch = engine.letters, Target(ref, "branch", {})
    waiting = engine.count(LettersOf(ref, batch))
    assert (waiting.count, waiting.recovered) == (2, 0)
    assert letters.read(ref, batch.topic_id, {0: 2}, {0: 3}).num_rows == 1
    assert engine.count(PoisonLetters(ref, batch)) == []
    engine.create_branch(ref, branch.branch, snapshot_of(site, ref))
    letters.discard(branch, letter_batch(site, 2, 3))
    assert engine.count(LettersOf(ref, batch, "branch")).count == 1
    letters.discard(branch, batch)
    assert engine.count(LettersOf(ref, batch, "branch")) == LetterSet()
    origin = LetterOrigin(batch.topic, batch.topic_id, site.topic.name, ref_of(site))
    rejected = Rejected(engine.decide(LogRange(batch), decoding_of(site), headers=True), origin)
    letters.put(rejected, branch)
    assert engine.count(LettersOf(ref, batch, "branch")) == waiting
    with pytest.raises(JobFailed):
        letters.put(rejected, replace(branch, branch="missing"))


def test_missing_letters_replace_those_that_became_rows(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1), Sent("b", 2, is_late=True), Sent("c", GARBAGE))
    run(site)
    site.register_late()
    redrive(site.namespace, site.topic, site.clients)
    engine, batch, ref = site.clients.engine, batch_of(site), ref_of(site).dead_letters
    letters, branch, before = engine.letters, Target(ref, "branch", {}), Target(ref_of(site), "before", {})
    engine.create_branch(ref, branch.branch, snapshot_of(site, ref))
    engine.create_branch(before.ref, before.branch, site.clients.catalog.load(before.ref).history()[0].snapshot_id)
    origin = LetterOrigin(batch.topic, batch.topic_id, site.topic.name, ref_of(site))
    place = site.topic.metadata.place
    all_refused = Rejected(engine.decide(LogRange(batch), decoding_of(site), headers=True, refused="poison"), origin)
    # The first snapshot has the first row only, and the third record waits already.
    missing = letters.missing([all_refused], ref, batch, before, place)
    assert missing.count == 1
    letters.discard(branch, batch, replaced_by=missing)
    assert engine.count(LettersOf(ref, batch, "branch")).count == 1
    letters.put(missing, branch)
    assert engine.count(LettersOf(ref, batch, "branch")).count == 2
    assert engine.count(PoisonLetters(ref, batch)) == []


def test_attempts_decide_which_letters_become_rows(make_site: Any) -> None:
    site = make_site("upsert")
    topic, low = site.topic, Range(type="range", column="amount", max=6, severity="quarantine")
    site.topic = topic.model_copy(update={"checks": {"low": low}})
    site.produce(Sent("a", 8), Sent("b", GARBAGE), Sent("c", 5))
    run(site)
    site.topic = topic
    engine, batch, place = site.clients.engine, batch_of(site), site.topic.metadata.place
    letters, ref = engine.letters, ref_of(site).dead_letters
    waiting = WaitingLetters(ref, snapshot_of(site, ref), batch)
    decided = engine.decide(waiting, decoding_of(site))
    attempt = letters.attempt(Redecided(decided, ("id",)))
    assert (attempt.count, attempt.remaining.count, attempt.first_offsets()) == (2, 1, {0: 0})
    # Neither a row nor a record that was read has the key.
    read = engine.decide(LogRange(letter_batch(site, 2, 3)), decoding_of(site))
    confirmed = letters.attempt(Confirmed(attempt, [read], ref_of(site), ("id",), place))
    assert (confirmed.remaining.count, confirmed.without_record(5)) == (2, [(0, 0)])
    read = engine.decide(LogRange(batch), decoding_of(site))
    confirmed = letters.attempt(Confirmed(attempt, [read], ref_of(site), ("id",), place))
    assert (confirmed.remaining.count, confirmed.without_record(5)) == (1, [])
    assert letters.attempt(ExistingRows(waiting, ref_of(site), place)).count == 0
    branch = Target(ref, "branch", {})
    engine.create_branch(ref, branch.branch, waiting.snapshot_id)
    letters.mark(confirmed, branch, batch.topic_id)
    marked = engine.count(LettersOf(ref, batch, "branch"))
    assert (marked.count, marked.recovered) == (2, 1)
    with pytest.raises(JobFailed):
        letters.attempt(Redecided(engine.decide(replace(waiting, snapshot_id=1), decoding_of(site))))


def test_maintenance_keeps_rows(make_site: Any) -> None:
    site = make_site("append")
    # Five batches; Spark leaves fewer small files alone.
    site.produce(*(Sent("a", amount) for amount in range(20)))
    run(site)
    before = site.rows()
    ref, catalog = ref_of(site), site.clients.catalog
    work = site.clients.engine.maintenance
    files = DataFiles(target_bytes=10_000_000, small_bytes=1_000_000)
    assert work.compact(ref, files) == Rewritten(5, 1)
    for others in ("delete files", "manifests"):
        work.compact(ref, others)
    assert site.rows() == before
    assert work.expire(ref, LATER, 1) == 0, "the tag of the offsets has all files before the compaction"
    assert len(catalog.load(ref).snapshots()) == 2
    assert work.remove_orphans(catalog.cleaning, ref, EARLIER) == 0
    deleted = [work.delete_rows(ref, "kafka_timestamp", time) for time in (EARLIER, LATER, LATER)]
    assert (deleted, site.rows()) == ([False, True, False], [])
    missing = replace(ref, name="missing")
    for operation in (
        lambda: work.compact(missing, files),
        lambda: work.expire(missing, LATER, 1),
        lambda: work.remove_orphans(catalog.cleaning, missing, EARLIER),
        lambda: work.delete_rows(missing, "kafka_timestamp", EARLIER),
    ):
        with pytest.raises(JobFailed):
            operation()


def test_rows_of_a_snapshot_are_derived(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1), Sent("b", 2), Sent("a", 3))
    run(site)
    ref, names = ref_of(site), site.topic.metadata.names
    engine, rows = site.clients.engine, SnapshotRows(ref, snapshot_of(site, ref), names)
    ends: list[tuple[Rows, Positions]] = [
        (rows, {0: 3}),
        (RowsBetween(rows, {0: 0}, {0: 2}), {0: 2}),
        (FirstRows(rows, 1), {0: 1}),
        (LateRows(rows, [(rows, {0: 1})], {0: 2}), {0: 2}),
        (RowsInColumnsOf(rows, rows), {0: 3}),
        (GroupRows([rows], [FirstRows(rows, 2)], ("id",)), {0: 3}),
        (GroupRows([RowsBetween(rows, {}, {0: 2})], [FirstRows(rows, 1)], ("id",)), {0: 1}),
    ]
    assert [(of, engine.count(Ends(of))) for of, _ in ends] == ends
    assert not engine.count(IsEmpty(rows))
    assert engine.count(IsEmpty(RowsBetween(rows, {0: 3}, {0: 3})))
    assert engine.count(ChangedColumns(rows, rows)) == []
    derived = engine.derive(rows, ids)
    assert not derived.reads(["amount"])
    schema = derived.avro_schema("Ids") if isinstance(site, ServerSite) else ""
    assert derived.messages(None, (1, schema)).num_rows == 3
    derived.lineage()
    with pytest.raises(JobFailed):
        engine.count(Ends(replace(rows, snapshot_id=1)))


def ids(rows: Any) -> Any:
    """Return a column of rows: a transform."""
    return rows.select("id")


def test_count_of_missing_snapshots_fails(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1))
    run(site)
    ref, batch, range_ = ref_of(site), batch_of(site), OffsetRange(1, 0, 0, 1)
    missing = RowPlaces(ref, 1, site.topic.metadata.names, ("id",))
    decided = site.clients.engine.decide(LogRange(batch), decoding_of(site))
    questions: list[Question[Any]] = [
        Contents([missing], [range_]),
        Duplicates(missing),
        DuplicateKeys(missing, ()),
        Logged(batch, [range_], [missing]),
        WrongNewest(decided, None, missing),
    ]
    for question in questions:
        with pytest.raises(JobFailed):
            site.clients.engine.count(question)


class Recorder(Mapping[str, Any]):
    """Interceptors of all operations, which record the name of each call and the types of its arguments."""

    def __init__(self) -> None:
        self.calls: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        def intercept(operation: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
            self.calls |= {name, *(f"{name} {type(argument).__name__}" for argument in arguments)}
            return operation(*arguments, **settings)

        return intercept

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


PARTS = {"letters": LetterStore, "maintenance": Maintenance}
VALUES = {
    "decide": get_args(Records),
    "completes": get_args(Trial),
    "count": Question.__subclasses__(),
    "letters.attempt": get_args(Redrivable),
    "letters.put": (Rejected,),
    "maintenance.compact": (DataFiles, str),
}
"""The values of which an operation takes one."""


def operations() -> set[str]:
    """Return the operations of an engine, and those with each kind of value."""

    def public(protocol: type, prefix: str = "") -> set[str]:
        return {prefix + name for name in vars(protocol) if not name.startswith("_")}

    names = public(Engine) - PARTS.keys()
    names |= {name for part, protocol in PARTS.items() for name in public(protocol, f"{part}.")}
    return names | {f"{name} {value.__name__}" for name, values in VALUES.items() for value in values}


def test_programs_call_each_operation_of_the_engine() -> None:
    recorder = Recorder()

    def recorded(stack: ExitStack, mode: str) -> Site:
        site = MemorySite(stack, Schedule(Choices(None), modes=(mode,)))
        site.clients = replace(site.clients, engines=InterceptedEngines(site.clients.engines, recorder))
        return site

    programs = [value for name, value in globals().items() if name.startswith("test_")]
    for program in programs:
        if "make_site" in program.__code__.co_varnames[: program.__code__.co_argcount]:
            with ExitStack() as stack:
                program(partial(recorded, stack))
    assert operations() - recorder.calls == set()
