"""The engine in memory of tests/simulation behaves as Spark does: each test runs the same programs with both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from lakehouse.config.checks import Range, Severity
from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.core.offsets.batch import Counts
from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.commits.audit import AuditFailed
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.maintenance import compact_incrementally
from lakehouse.pipeline.redrive import Redriven, redrive
from lakehouse.pipeline.replay import replay
from tests.contract.sites import FILLER, GARBAGE, MemorySite, Sent, ServerSite, Site
from tests.simulation.choices import Choices
from tests.simulation.schedules.schedule import Schedule

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


def run(site: Site) -> Counts:
    """Ingest, and return the sum of the counts."""
    return sum((published.counts for published in ingest(site.namespace, site.topic, site.clients)), Counts())


def table_of(site: Site) -> Any:
    """Return the table."""
    return site.clients.catalog.chain(site.topic.table_in(site.namespace)).require_published()[1]


def test_append_keeps_each_row_and_gives_reasons_of_dead_letters(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1), Sent("a", 1), Sent("b", GARBAGE), Sent("c", None))
    assert run(site) == Counts(consumed=4, rows=2, dead_letters=2)
    site.produce(Sent("d", 4, is_late=True), Sent("e", 5))
    assert run(site) == Counts(consumed=2, rows=1, dead_letters=1)
    assert site.rows() == [("a", 1), ("a", 1), ("e", 5)]
    letters = [(2, "undecodable", 1, False), (3, "null_value", 1, False), (4, "unknown_schema", 1, False)]
    assert site.letters() == letters
    assert set(table_of(site).metadata.refs) == {"main", "lakehouse-offsets"}


def test_upsert_keeps_newest_row_of_key_and_deletes_by_tombstones(make_site: Any) -> None:
    site = make_site("upsert")
    site.produce(Sent("a", 1), Sent("a", 2), Sent("b", 3), Sent("c", None))
    assert run(site) == Counts(consumed=4, rows=2, tombstones=1, superseded=1)
    assert site.rows() == [("a", 2), ("b", 3)]
    site.produce(Sent("a", None), Sent("b", GARBAGE), Sent("b", 5), Sent("d", 6))
    assert run(site) == Counts(consumed=4, rows=2, tombstones=1, dead_letters=1)
    assert site.rows() == [("b", 5), ("d", 6)]
    site.produce(Sent("b", None), Sent("b", 7), Sent("d", 8), Sent("d", None))
    assert run(site) == Counts(consumed=4, rows=1, tombstones=1, superseded=2)
    assert site.rows() == [("b", 7)]


def test_dedup_keeps_first_row_of_key(make_site: Any) -> None:
    site = make_site("dedup")
    site.produce(Sent("a", GARBAGE), Sent("a", 1), Sent("a", 2), Sent("b", 3))
    assert run(site) == Counts(consumed=4, rows=2, dead_letters=1, deduplicated=1)
    site.produce(Sent("b", 4), Sent("c", 5), Sent("c", None))
    assert run(site) == Counts(consumed=3, rows=1, dead_letters=1, deduplicated=1)
    assert site.rows() == [("a", 1), ("b", 3), ("c", 5)]


def test_redrive_appends_decodable_dead_letters_and_counts_attempts(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1), Sent("b", 2, is_late=True), Sent("c", GARBAGE))
    run(site)
    before = redrive(site.namespace, site.topic, site.clients)
    assert site.letters() == [(1, "unknown_schema", 2, False), (2, "undecodable", 2, False)]
    site.register_late()
    after = redrive(site.namespace, site.topic, site.clients)
    assert (before, after) == (Redriven(2, 0), Redriven(2, 1))
    assert site.rows() == [("a", 1), ("b", 2)]
    assert site.letters() == [(1, "unknown_schema", 3, True), (2, "undecodable", 3, False)]
    assert set(table_of(site).metadata.refs) == {"main", "lakehouse-offsets", "lakehouse-replay"}
    site.produce(Sent("d", 4))
    run(site)
    assert set(table_of(site).metadata.refs) == {"main", "lakehouse-offsets"}


def test_redriven_row_does_not_replace_newer_row_of_its_key(make_site: Any) -> None:
    site = make_site("upsert")
    site.produce(Sent("a", 1, is_late=True), Sent("b", 2, is_late=True), Sent("a", 3))
    assert run(site) == Counts(consumed=3, rows=1, dead_letters=2)
    site.register_late()
    redrive(site.namespace, site.topic, site.clients)
    assert site.rows() == [("a", 3), ("b", 2)]
    assert [letter[-1] for letter in site.letters()] == [True, True]


@pytest.mark.parametrize("mode", ("append", "upsert", "dedup"))
def test_replay_changes_no_row_and_marks_dead_letters_that_became_rows(make_site: Any, mode: str) -> None:
    site = make_site(mode)
    site.produce(Sent("a", 1), Sent("b", 2, is_late=True), Sent("c", 3))
    run(site)
    site.register_late()
    replay(site.namespace, site.topic, site.clients, "earliest")
    assert site.rows() == [("a", 1), ("b", 2), ("c", 3)]
    assert [letter[-1] for letter in site.letters()] == [True]


def with_check(site: Site, severity: Severity | None) -> None:
    """Declare a check that an amount of 8 fails and one of 5 passes, on both engines; None removes it."""
    checks = {"low": Range(type="range", column="amount", max=6, severity=severity)} if severity else {}
    site.topic = site.topic.model_copy(update={"checks": checks})


def test_replay_with_check_again_returns_redriven_row_to_dead_letters(make_site: Any) -> None:
    site = make_site("upsert")
    site.produce(Sent("a", 5), Sent("a", 8))
    with_check(site, "quarantine")
    assert run(site) == Counts(consumed=2, rows=1, dead_letters=1)
    with_check(site, None)
    assert redrive(site.namespace, site.topic, site.clients) == Redriven(1, 1)
    assert (site.rows(), site.letters()) == ([("a", 8)], [(1, "check", 2, True)])
    with_check(site, "quarantine")
    replay(site.namespace, site.topic, site.clients, "earliest")
    assert (site.rows(), site.letters()) == ([("a", 5)], [(1, "check", 1, False)])
    with_check(site, None)
    assert redrive(site.namespace, site.topic, site.clients) == Redriven(1, 1)
    assert site.rows() == [("a", 8)]


def test_blocking_check_refuses_new_rows_only(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 8))
    run(site)
    with_check(site, "blocking")
    site.produce(Sent("a", 5))
    assert run(site) == Counts(consumed=1, rows=1)
    site.produce(Sent("a", 5), Sent("a", 8))
    with pytest.raises(AuditFailed, match=r"low: 1 of 2 rows fail.*lakehouse\.yaml"):
        run(site)
    with_check(site, "warn")
    assert run(site) == Counts(consumed=2, rows=2)


def test_replay_into_branch_leaves_main_unchanged(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1), Sent("b", 2, is_late=True))
    run(site)
    site.register_late()
    replay(site.namespace, site.topic, site.clients, "earliest", branch="again")
    assert (site.rows(), site.rows("again")) == ([("a", 1)], [("a", 1), ("b", 2)])


def test_aborted_records_are_skipped_and_open_transactions_wait(make_site: Any) -> None:
    site = make_site("append")
    for commits in (False, True):
        site.produce(Sent("a", 1))
        site.begin()
        site.produce(Sent("b", 2), Sent("c", GARBAGE))
        assert run(site) == Counts(consumed=1, rows=1)
        site.end(commits=commits)
        site.produce(Sent("d", 3))
        ended = Counts(consumed=3, rows=2, dead_letters=1) if commits else Counts(consumed=1, rows=1)
        assert run(site) == ended
    assert site.rows() == [("a", 1), ("a", 1), ("b", 2), ("d", 3), ("d", 3)]


def test_deleted_records_stop_ingestion_until_resumed(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1), Sent("b", 2))
    run(site)
    site.produce(Sent("c", 3), Sent("d", 4))
    site.retain(3)
    with pytest.raises(UnclearState, match="lakehouse resume"):
        run(site)
    assert site.rows() == [("a", 1), ("b", 2)]
    resume(site.clients, site.namespace, site.topic, "earliest", "records were deleted")
    assert run(site) == Counts(consumed=1, rows=1)
    assert site.rows() == [("a", 1), ("b", 2), ("d", 4)]


def test_recreated_topic_stops_ingestion_until_resumed(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1), Sent("b", GARBAGE))
    run(site)
    site.recreate()
    site.produce(Sent("c", 3))
    with pytest.raises(UnclearState, match="lakehouse resume"):
        run(site)
    resume(site.clients, site.namespace, site.topic, "earliest", "the topic was recreated")
    assert run(site) == Counts(consumed=1, rows=1)
    assert site.rows() == [("a", 1), ("c", 3)]
    with pytest.raises(UnclearState, match="was recreated"):
        replay(site.namespace, site.topic, site.clients, "earliest")


def test_replay_of_deleted_range_is_refused(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1), Sent("b", 2))
    run(site)
    site.retain(1)
    with pytest.raises(LakehouseError, match="no longer has offsets 0 to 0.*Nothing was changed"):
        replay(site.namespace, site.topic, site.clients, "0:0")
    assert site.rows() == [("a", 1), ("b", 2)]


def test_compaction_merges_files_and_keeps_rows(make_site: Any) -> None:
    site = make_site("append")
    site.produce(*(Sent(f"{number:02}", number) for number in range(20)))
    run(site)
    compacted = compact_incrementally(site.namespace, site.topic, site.clients.catalog, site.clients.engines)
    assert (compacted.before.data_files, compacted.after.data_files) == (5, 1)
    site.produce(Sent("20", 20))
    assert run(site) == Counts(consumed=1, rows=1)
    assert site.rows() == [(f"{number:02}", number) for number in range(21)]


def test_compacted_records_are_not_read(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1), Sent("b", 2), Sent("a", GARBAGE), Sent("c", 3), Sent("a", 4), Sent("b", None))
    site.compact()
    counts = run(site)
    assert counts.consumed == counts.rows + counts.dead_letters
    assert [row for row in site.rows() if row[0] != FILLER] == [("a", 4), ("c", 3)]
    assert site.letters() == [(5, "null_value", 1, False)]
    assert run(site) == Counts()


def test_expiry_keeps_rows_references_and_positions(make_site: Any) -> None:
    site = make_site("append")
    for number in range(3):
        site.produce(Sent(f"{number}", number))
        run(site)
    ref, metadata = site.topic.table_in(site.namespace), table_of(site).metadata
    earlier = metadata.snapshots[-2].snapshot_id
    site.clients.engine.create_branch(ref, "kept", earlier)
    site.clients.engine.maintenance.expire(ref, LATER, 1)
    after = table_of(site).metadata
    kept = {snapshot.snapshot_id for snapshot in after.snapshots}
    assert kept == {earlier, metadata.current_snapshot_id}
    assert after.refs.keys() == {*metadata.refs, "kept"}
    assert (site.rows(), site.rows("kept")) == ([("0", 0), ("1", 1), ("2", 2)], [("0", 0), ("1", 1)])
    site.produce(Sent("3", 3))
    assert run(site) == Counts(consumed=1, rows=1)


def test_dropped_table_is_ingested_from_the_start(make_site: Any) -> None:
    site = make_site("append")
    site.produce(Sent("a", 1), Sent("b", GARBAGE), Sent("c", 3))
    run(site)
    site.drop_table()
    assert run(site) == Counts(consumed=3, rows=2, dead_letters=1)
    assert (site.rows(), site.letters()) == ([("a", 1), ("c", 3)], [(1, "undecodable", 1, False)])
