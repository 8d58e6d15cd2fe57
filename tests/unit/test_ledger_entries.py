"""The ledger of a table's commits, and findings where counts or offsets do not add up."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from lakehouse.core.errors import UnclearState
from lakehouse.core.offsets.batch import Batch, Counts
from lakehouse.core.offsets.ledger import (
    Entry,
    LogContents,
    OffsetRange,
    RangeContents,
    coverage,
    findings,
    held_findings,
    log_findings,
    ranges,
    snapshots_with_shared_offsets,
    totals,
    uncounted_ranges,
    verdict,
)
from lakehouse.pipeline.ledger import ledger_page

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def ingest(id_, start, end, topic_id="t", **counts):
    """Return a commit whose records all became rows, unless `counts` differ."""
    offsets = sum(end[p] - start[p] for p in end)
    counts = Counts(**(counts or {"consumed": offsets, "rows": offsets}))
    batch = Batch("c", "topic", topic_id, start, end)
    return Entry(id_, AT, "ingest", "append", batch, counts, added=counts.rows, has_parent=id_ > 1)


def decision(id_, start, end, topic_id="t"):
    return Entry(id_, AT, "decision", "append", Batch("c", "topic", topic_id, start, end))


def foreign(id_, operation="overwrite", added=0, deleted=0):
    return Entry(id_, AT, "foreign", operation, added=added, deleted=deleted)


FIRST = ingest(1, {0: 0, 1: 0}, {0: 10, 1: 20})
SECOND = ingest(2, {0: 10, 1: 20}, {0: 15, 1: 25})


def faults(entries):
    return [f for f in findings(entries) if f.fault]


def test_findings_without_fault_are_empty():
    assert findings([]) == []
    assert findings([FIRST, SECOND]) == []
    assert totals([FIRST, SECOND]) == Counts(consumed=40, rows=40)


def test_findings_every_outcome_counts_once():
    outcomes = dict(rows=1, tombstones=2, superseded=3, deduplicated=4, filtered=5, dead_letters=6, skipped=7)
    entry = ingest(1, {0: 0}, {0: 30}, consumed=28, **outcomes)
    assert findings([entry]) == []
    assert entry.without_record == 2
    for name in outcomes:
        short = replace(entry, counts=replace(entry.counts, **{name: outcomes[name] - 1}))
        assert "sum" in {f.kind for f in faults([short])}


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (replace(FIRST, counts=Counts(consumed=30, rows=29), added=29), "sum", "30 records but counts rows 29"),
        (replace(FIRST, counts=Counts(30, 31, dead_letters=-1), added=31), "sum", "dead_letters -1"),
        (replace(FIRST, counts=Counts(31, 31), added=31), "more_than_offsets", "31 records from 30 offsets"),
        (replace(FIRST, added=29), "rows", "Iceberg committed 29 rows in snapshot 1, which counts 30"),
    ],
)  # fmt: skip
def test_findings_wrong_counts_are_named(wrong, kind, message):
    [finding] = faults([wrong])
    assert (finding.kind, finding.snapshot_id) == (kind, 1)
    assert message in finding.message
    assert verdict(wrong, [finding]) == kind


def test_findings_gap_names_partition_and_offsets():
    later = ingest(2, {0: 10, 1: 23}, {0: 15, 1: 25})
    [finding] = faults([FIRST, later])
    assert (finding.kind, finding.snapshot_id, finding.partition, finding.offsets) == ("gap", 2, 1, (20, 22))


def test_findings_overlap_names_partition_and_offsets():
    later = ingest(2, {0: 7, 1: 20}, {0: 15, 1: 25})
    [finding] = faults([FIRST, later])
    assert (finding.kind, finding.snapshot_id, finding.partition, finding.offsets) == ("overlap", 2, 0, (7, 9))


def test_findings_new_partition_continues_at_its_end():
    grown = ingest(2, {0: 10, 1: 20, 2: 0}, {0: 10, 1: 20, 2: 9})
    assert findings([FIRST, grown, ingest(3, {0: 10, 1: 20, 2: 9}, {0: 10, 1: 20, 2: 10})]) == []
    [finding] = faults([FIRST, grown, ingest(3, {0: 10, 1: 20, 2: 8}, {0: 10, 1: 20, 2: 10})])
    assert (finding.kind, finding.partition, finding.offsets) == ("overlap", 2, (8, 8))


def test_findings_new_partition_lost_records_only_by_decision():
    later = ingest(3, {0: 10, 1: 20, 2: 7}, {0: 10, 1: 20, 2: 9})
    [finding] = faults([FIRST, later])
    assert (finding.kind, finding.partition, finding.offsets) == ("gap", 2, (0, 6))
    decided = decision(2, {0: 10, 1: 20, 2: 0}, {0: 10, 1: 20, 2: 7})
    assert ["skipped 7 offsets" in finding.message for finding in findings([FIRST, decided, later])] == [True]


def test_findings_commit_backwards_is_named():
    decision_back = ingest(2, {0: 10, 1: 20}, {0: 4, 1: 30}, consumed=10, rows=10)
    [finding] = faults([FIRST, decision_back])
    assert (finding.kind, finding.partition, finding.offsets) == ("backwards", 0, (4, 9))


def test_findings_foreign_commits_do_not_hide_gap():
    later = ingest(4, {0: 11, 1: 20}, {0: 15, 1: 25})
    gaps = faults([FIRST, foreign(2, "replace", 30, 30), foreign(3), later])
    assert [(f.kind, f.offsets) for f in gaps] == [("gap", (10, 10))]


def test_findings_foreign_deletion_is_noted_but_not_compaction():
    compaction, deletion = foreign(2, "replace", 30, 30), foreign(3, "delete", deleted=4)
    [finding] = findings([FIRST, compaction, deletion])
    assert (finding.kind, finding.fault, finding.snapshot_id) == ("foreign", False, 3)
    assert [verdict(e, [finding]) for e in (compaction, deletion)] == ["rows unchanged", "changed by another writer"]


def test_findings_other_topic_needs_decision():
    other = ingest(3, {0: 0}, {0: 5}, topic_id="new")
    [finding] = faults([FIRST, other])
    assert (finding.kind, finding.snapshot_id) == ("another_topic", 3)
    decided = decision(2, {0: 10, 1: 20}, {0: 0}, topic_id="new")
    assert faults([FIRST, decided, other]) == []
    [finding] = faults([FIRST, decided, ingest(3, {0: 2}, {0: 5}, topic_id="new")])
    assert (finding.kind, finding.offsets) == ("gap", (0, 1))


def test_findings_offsets_skipped_by_decision_are_no_gap():
    skipped = decision(2, {0: 10, 1: 20}, {0: 10, 1: 60})
    entries = [FIRST, skipped, ingest(3, {0: 10, 1: 60}, {0: 11, 1: 61})]
    [finding] = findings(entries)
    assert (finding.kind, finding.fault) == ("decision", False)
    assert "skipped 40 offsets" in finding.message
    assert faults([FIRST, decision(2, {0: 12, 1: 20}, {0: 12, 1: 60})])[0].kind == "gap"


def test_findings_ledger_start_is_noted():
    [finding] = findings([SECOND])
    assert (finding.kind, finding.fault) == ("begins", False)
    assert "0 from 10, 1 from 20" in finding.message


def test_findings_missing_counts_are_fault_after_first_counts():
    old, lost = replace(FIRST, counts=None), replace(SECOND, counts=None)
    assert [(f.kind, f.fault) for f in findings([old, SECOND])] == [("before_counts", False)]
    assert [(f.kind, f.snapshot_id) for f in faults([FIRST, lost])] == [("no_counts", 2)]


def test_findings_replay_has_counts_without_offsets():
    replay = Entry(3, AT, "replay", "append", None, Counts(2, 1, dead_letters=1), added=1)
    assert findings([FIRST, SECOND, replay]) == []
    assert [f.kind for f in faults([FIRST, SECOND, replace(replay, added=2)])] == ["rows"]
    assert totals([FIRST, replay]) == FIRST.counts


def table_contents(entries, **changes):
    """Return table contents that match the counts, except for `changes` by snapshot and partition (s1p0=rows)."""
    rows = {r: r.end - r.start for r in ranges(entries)}
    for name, n in changes.items():
        snapshot_id, partition = map(int, name[1:].split("p"))
        rows |= {r: n for r in rows if (r.snapshot_id, r.partition) == (snapshot_id, partition)}
    return {r: RangeContents(n, n, r.start, r.end - 1) for r, n in rows.items()}


def test_held_findings_rows_are_compared_with_counts():
    entries = [FIRST, SECOND]
    assert held_findings(entries, table_contents(entries), {}, append=True) == []
    [missing] = held_findings(entries, table_contents(entries, s1p1=18), {}, append=True)
    assert (missing.kind, missing.snapshot_id) == ("missing_rows", 1)
    assert "Snapshot 1 counts 30 rows, and its offsets have 28" in missing.message
    [surplus] = held_findings(entries, table_contents(entries, s2p0=6), {}, append=True)
    assert (surplus.kind, surplus.snapshot_id) == ("surplus_rows", 2)


def test_held_findings_missing_dead_letters_are_named():
    entry = ingest(1, {0: 0}, {0: 10}, consumed=10, rows=8, dead_letters=2)
    [range_] = ranges([entry])
    rows = {range_: RangeContents(8, 8, 0, 9)}
    assert held_findings([entry], rows, {range_: RangeContents(2, 2, 3, 4)}, append=True) == []
    assert [f.kind for f in held_findings([entry], rows, {}, append=True)] == ["missing_dead_letters"]


def test_held_findings_rows_of_no_commit_are_named():
    rows = table_contents([FIRST]) | {None: RangeContents(3, 3, 90, 92)}
    assert [f.kind for f in held_findings([FIRST], rows, {}, append=True)] == ["unknown_rows"]


def test_held_findings_upsert_may_replace_rows():
    entries = [FIRST, SECOND]
    assert held_findings(entries, table_contents(entries, s1p0=3), {}, append=False) == []
    assert [f.kind for f in held_findings(entries, table_contents(entries, s1p0=11), {}, append=False)] == [
        "surplus_rows"
    ]
    assert [f.kind for f in held_findings(entries, table_contents(entries, s2p0=4), {}, append=False)] == [
        "missing_rows"
    ]
    deleted = [*entries, foreign(3, "delete", deleted=1)]
    assert held_findings(deleted, table_contents(entries, s2p0=4), {}, append=False) == []


def test_held_findings_redrive_adds_rows_to_older_commits():
    entry = ingest(1, {0: 0}, {0: 10}, consumed=10, rows=8, dead_letters=2)
    redrive = Entry(2, AT, "replay", "overwrite", None, Counts(10, 10), added=10)
    [range_] = ranges([entry])
    dead_letters = {range_: RangeContents(2, 2, 3, 4)}
    assert held_findings([entry, redrive], {range_: RangeContents(10, 10, 0, 9)}, dead_letters, append=False) == []
    [surplus] = held_findings([entry, redrive], {range_: RangeContents(11, 11, 0, 9)}, dead_letters, append=False)
    assert surplus.kind == "surplus_rows"


def test_held_findings_replayed_record_is_row_or_dead_letter():
    entry = ingest(1, {0: 0}, {0: 12}, consumed=12, rows=8, dead_letters=2, filtered=2)
    replay = Entry(2, AT, "replay", "append", None, Counts(2, 2), added=2)
    [range_] = ranges([entry])
    rows, dead_letters = {range_: RangeContents(10, 10)}, {range_: RangeContents(2, 2)}

    def kinds(distinct):
        either = {range_: RangeContents(distinct + 2, distinct)}
        return [f.kind for f in held_findings([entry, replay], rows, dead_letters, either, append=True)]

    assert kinds(10) == kinds(12) == []
    assert kinds(9) == ["missing_rows_or_dead_letters"]
    assert kinds(13) == ["surplus_rows_or_dead_letters"]


def test_counts_of_newer_release_are_refused():
    assert Counts.from_json({"consumed": 2, "rows": 2}) == Counts(2, 2)
    with pytest.raises(UnclearState, match="contain quarantined, which a newer release wrote"):
        Counts.from_json({"consumed": 2, "quarantined": 2})


def test_shared_offsets_of_two_topics_are_noted():
    entries = [FIRST, decision(2, {0: 10, 1: 20}, {0: 0}, "new"), ingest(3, {0: 0}, {0: 5}, "new")]
    assert snapshots_with_shared_offsets(ranges(entries)) == {1, 3}
    shared = held_findings(entries, {}, {}, append=True)
    assert [(f.kind, f.fault) for f in shared] == [("shared_offsets", False)] * 2


def test_uncounted_ranges_are_offsets_of_expired_commits():
    assert uncounted_ranges([FIRST]) == []
    assert uncounted_ranges([SECOND]) == [OffsetRange(0, 0, 0, 10), OffsetRange(0, 1, 0, 20)]


def test_ranges_offset_read_again_belongs_to_oldest_commit():
    decision_back = decision(2, {0: 10, 1: 20}, {0: 4, 1: 20})
    second_read = ingest(3, {0: 4, 1: 20}, {0: 12, 1: 20}, consumed=8, rows=2, deduplicated=6)
    entries = [FIRST, decision_back, second_read]
    assert faults(entries) == []
    bounds = [(r.snapshot_id, r.partition, r.start, r.end) for r in ranges(entries)]
    assert bounds == [(1, 0, 0, 10), (1, 1, 0, 20), (3, 0, 10, 12)]
    assert held_findings(entries, table_contents(entries), {}, append=True) == []
    # An upsert merges what it reads again, so the number of the first commit's remaining rows is unknown.
    merged = [FIRST, decision_back, ingest(3, {0: 4, 1: 20}, {0: 12, 1: 20}, consumed=8, rows=8)]
    assert held_findings(merged, table_contents(merged), {}, append=False) == []


def test_uncounted_ranges_replay_may_fill_skipped_offsets():
    skipped = decision(2, {0: 10, 1: 20}, {0: 10, 1: 60})
    replay = Entry(3, AT, "replay", "append", None, Counts(2, 2), added=2)
    assert uncounted_ranges([FIRST, skipped]) == []
    assert uncounted_ranges([FIRST, skipped, replay]) == [OffsetRange(0, 1, 20, 60)]


def test_log_findings_record_without_outcome_is_lost():
    lost = log_findings([FIRST], {1: LogContents(30, 1)}, [(1, 0, 7)])
    assert [(f.kind, f.partition, f.offsets) for f in lost] == [("lost", 0, (7, 7)), ("lost_records", None, None)]
    assert lost[0].message.startswith("LOST: partition 0 offset 7")


def test_log_findings_intentionally_dropped_record_is_not_lost():
    entry = ingest(1, {0: 0}, {0: 10}, consumed=10, rows=6, filtered=2, deduplicated=1, skipped=1)
    assert log_findings([entry], {1: LogContents(10, 4)}, [(1, 0, n) for n in range(4)]) == []
    lost = log_findings([entry], {1: LogContents(10, 5)}, [(1, 0, n) for n in range(5)])
    assert [f.kind for f in lost] == ["lost"] * 5 + ["lost_records"]
    assert lost[-1].message.endswith("dead letters: 1")


def test_log_findings_commit_without_counts_is_compared():
    old = replace(FIRST, counts=None)
    assert log_findings([old], {1: LogContents(30, 0)}, []) == []
    assert [f.kind for f in log_findings([old], {1: LogContents(30, 1)}, [(1, 0, 7)])] == ["lost", "lost_records"]


def test_log_findings_more_records_than_consumed_is_named():
    entry = ingest(1, {0: 0}, {0: 10}, consumed=7, rows=7)
    assert log_findings([entry], {1: LogContents(5, 0)}, []) == []
    assert [f.kind for f in log_findings([entry], {1: LogContents(8, 0)}, [])] == ["never_read"]


def test_coverage_is_by_topic_and_partition():
    entries = [FIRST, SECOND, decision(3, {0: 15, 1: 25}, {0: 0}, "new"), ingest(4, {0: 0}, {0: 5}, "new")]
    assert [(c.topic[1], c.partition, c.start, c.end, c.commits) for c in coverage(entries)] == [
        ("new", 0, 0, 5, 1),
        ("t", 0, 0, 15, 2),
        ("t", 1, 0, 25, 2),
    ]


def test_commits_page_shows_offsets_and_verdict():
    entries = [FIRST, ingest(2, {0: 11, 1: 20}, {0: 15, 1: 20})]
    columns, rows = ledger_page.commits(entries, findings(entries))
    newest = dict(zip(columns, rows[0], strict=True))
    assert newest["offsets"] == "0: 11–14"
    assert newest["verdict"] == "gap"
    assert (newest["consumed"], newest["rows"], newest["dead letters"]) == ("4", "4", "0")
    assert rows[1][-1] == "ok"
    assert ledger_page.summary(entries, findings(entries)).endswith("Faults: 1")
    assert len(rows) == 2 and rows[0][:3] == ["2026-01-02 03:04:05", "2", "ingest"]
    _, cells = ledger_page.findings_table(findings(entries))
    assert [kind for kind, _ in cells] == ["fault"]


def test_partitions_page_shows_table_contents():
    entries = [ingest(2, {0: 5, 1: 0}, {0: 15, 1: 4}, consumed=11, rows=9, dead_letters=2)]
    first, second = ranges(entries)
    rows, dead_letters = (
        {
            first: RangeContents(8),
            second: RangeContents(1),
            None: RangeContents(7),
            OffsetRange(0, 0, 0, 5): RangeContents(5),
        },
        {second: RangeContents(2)},
    )
    columns, cells = ledger_page.partitions(entries, rows, dead_letters)
    assert columns[-3:] == ["rows", "dead letters", "neither"]
    assert cells == [["t", "0", "5", "15", "10", "1", "8", "0", "2"], ["t", "1", "0", "4", "4", "1", "1", "2", "1"]]
