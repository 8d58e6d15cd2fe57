"""A ledger adds up, or says exactly what does not."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from lakehouse.core.batch import Batch
from lakehouse.core.counts import Counts
from lakehouse.core.errors import UnclearState
from lakehouse.core.ledger import Entry, Held, Logged, Range, beside, coverage, ranges, shared, totals
from lakehouse.core.ledger_findings import findings, held_findings, log_findings, verdict
from lakehouse.pipeline import ledger_page

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def ingest(id_, start, end, topic_id="t", **counts):
    """A commit whose records all became rows, unless told otherwise."""
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


def test_a_ledger_without_a_fault_has_no_findings():
    assert findings([]) == []
    assert findings([FIRST, SECOND]) == []
    assert totals([FIRST, SECOND]) == Counts(consumed=40, rows=40)


def test_every_outcome_counts_once():
    outcomes = dict(rows=1, tombstones=2, superseded=3, deduplicated=4, filtered=5, dead_letters=6, skipped=7)
    entry = ingest(1, {0: 0}, {0: 30}, consumed=28, **outcomes)
    assert findings([entry]) == []
    assert entry.without_record == 2
    for name in outcomes:
        short = replace(entry, counts=replace(entry.counts, **{name: outcomes[name] - 1}))
        assert "sum" in {f.kind for f in faults([short])}


@pytest.mark.parametrize(
    ("wrong", "kind", "said"),
    [
        (replace(FIRST, counts=Counts(consumed=30, rows=29), added=29), "sum", "30 records and tells of rows 29"),
        (replace(FIRST, counts=Counts(30, 31, dead_letters=-1), added=31), "sum", "dead_letters -1"),
        (replace(FIRST, counts=Counts(31, 31), added=31), "more_than_offsets", "31 records from 30 offsets"),
        (replace(FIRST, added=29), "rows", "Iceberg committed 29 rows in snapshot 1, which counts 30"),
    ],
)  # fmt: skip
def test_a_commit_that_does_not_add_up_is_named(wrong, kind, said):
    [found] = faults([wrong])
    assert (found.kind, found.snapshot_id) == (kind, 1)
    assert said in found.said
    assert verdict(wrong, [found]) == kind


def test_a_gap_is_named_by_partition_and_offsets():
    later = ingest(2, {0: 10, 1: 23}, {0: 15, 1: 25})
    [found] = faults([FIRST, later])
    assert (found.kind, found.snapshot_id, found.partition, found.offsets) == ("gap", 2, 1, (20, 22))


def test_an_overlap_is_named_by_partition_and_offsets():
    later = ingest(2, {0: 7, 1: 20}, {0: 15, 1: 25})
    [found] = faults([FIRST, later])
    assert (found.kind, found.snapshot_id, found.partition, found.offsets) == ("overlap", 2, 0, (7, 9))


def test_a_new_partition_begins_anywhere_and_goes_on_where_it_ended():
    grown = ingest(2, {0: 10, 1: 20, 2: 7}, {0: 10, 1: 20, 2: 9})
    assert findings([FIRST, grown, ingest(3, {0: 10, 1: 20, 2: 9}, {0: 10, 1: 20, 2: 10})]) == []
    [found] = faults([FIRST, grown, ingest(3, {0: 10, 1: 20, 2: 8}, {0: 10, 1: 20, 2: 10})])
    assert (found.kind, found.partition, found.offsets) == ("overlap", 2, (8, 8))


def test_a_commit_that_goes_backwards_is_named():
    back = ingest(2, {0: 10, 1: 20}, {0: 4, 1: 30}, consumed=10, rows=10)
    [found] = faults([FIRST, back])
    assert (found.kind, found.partition, found.offsets) == ("backwards", 0, (4, 9))


def test_commits_of_others_do_not_hide_a_gap():
    later = ingest(4, {0: 11, 1: 20}, {0: 15, 1: 25})
    found = faults([FIRST, foreign(2, "replace", 30, 30), foreign(3), later])
    assert [(f.kind, f.offsets) for f in found] == [("gap", (10, 10))]


def test_rows_that_others_changed_are_noted_and_compaction_is_not():
    compaction, deletion = foreign(2, "replace", 30, 30), foreign(3, "delete", deleted=4)
    [noted] = findings([FIRST, compaction, deletion])
    assert (noted.kind, noted.fault, noted.snapshot_id) == ("foreign", False, 3)
    assert [verdict(e, [noted]) for e in (compaction, deletion)] == ["same rows", "changed by another writer"]


def test_another_topic_needs_a_decision():
    other = ingest(3, {0: 0}, {0: 5}, topic_id="new")
    [found] = faults([FIRST, other])
    assert (found.kind, found.snapshot_id) == ("another_topic", 3)
    decided = decision(2, {0: 10, 1: 20}, {0: 0}, topic_id="new")
    assert faults([FIRST, decided, other]) == []
    [found] = faults([FIRST, decided, ingest(3, {0: 2}, {0: 5}, topic_id="new")])
    assert (found.kind, found.offsets) == ("gap", (0, 1))


def test_what_a_decision_skips_is_no_gap_and_is_said():
    skipped = decision(2, {0: 10, 1: 20}, {0: 10, 1: 60})
    entries = [FIRST, skipped, ingest(3, {0: 10, 1: 60}, {0: 11, 1: 61})]
    [noted] = findings(entries)
    assert (noted.kind, noted.fault) == ("decision", False)
    assert "skipped 40 offsets" in noted.said
    assert faults([FIRST, decision(2, {0: 12, 1: 20}, {0: 12, 1: 60})])[0].kind == "gap"


def test_the_ledger_says_where_it_begins():
    [noted] = findings([SECOND])
    assert (noted.kind, noted.fault) == ("begins", False)
    assert "0 from 10, 1 from 20" in noted.said


def test_commits_before_the_first_counts_are_noted_and_after_it_faults():
    old, lost = replace(FIRST, counts=None), replace(SECOND, counts=None)
    assert [(f.kind, f.fault) for f in findings([old, SECOND])] == [("before_counts", False)]
    assert [(f.kind, f.snapshot_id) for f in faults([FIRST, lost])] == [("no_counts", 2)]


def test_a_replay_has_counts_and_no_offsets():
    replay = Entry(3, AT, "replay", "append", None, Counts(2, 1, dead_letters=1), added=1)
    assert findings([FIRST, SECOND, replay]) == []
    assert [f.kind for f in faults([FIRST, SECOND, replace(replay, added=2)])] == ["rows"]
    assert totals([FIRST, replay]) == FIRST.counts


def held(entries, **changes):
    """What a table holds that is as it was counted, but for `changes` by snapshot and partition, as s1p0=rows."""
    rows = {r: r.end - r.start for r in ranges(entries)}
    for name, n in changes.items():
        snapshot_id, partition = map(int, name[1:].split("p"))
        rows |= {r: n for r in rows if (r.snapshot_id, r.partition) == (snapshot_id, partition)}
    return {r: Held(n, n, r.start, r.end - 1) for r, n in rows.items()}


def test_a_table_holds_what_was_counted():
    entries = [FIRST, SECOND]
    assert held_findings(entries, held(entries), {}, append=True) == []
    [missing] = held_findings(entries, held(entries, s1p1=18), {}, append=True)
    assert (missing.kind, missing.snapshot_id) == ("missing_rows", 1)
    assert "Snapshot 1 counts 30 rows, and its offsets have 28" in missing.said
    [surplus] = held_findings(entries, held(entries, s2p0=6), {}, append=True)
    assert (surplus.kind, surplus.snapshot_id) == ("surplus_rows", 2)


def test_dead_letters_are_where_they_were_counted():
    entry = ingest(1, {0: 0}, {0: 10}, consumed=10, rows=8, dead_letters=2)
    [where] = ranges([entry])
    rows = {where: Held(8, 8, 0, 9)}
    assert held_findings([entry], rows, {where: Held(2, 2, 3, 4)}, append=True) == []
    assert [f.kind for f in held_findings([entry], rows, {}, append=True)] == ["missing_dead_letters"]


def test_rows_at_offsets_of_no_commit_are_found():
    rows = held([FIRST]) | {None: Held(3, 3, 90, 92)}
    assert [f.kind for f in held_findings([FIRST], rows, {}, append=True)] == ["unknown_rows"]


def test_newer_records_replace_rows_of_an_upsert_table_and_add_none():
    entries = [FIRST, SECOND]
    assert held_findings(entries, held(entries, s1p0=3), {}, append=False) == []
    assert [f.kind for f in held_findings(entries, held(entries, s1p0=11), {}, append=False)] == ["surplus_rows"]
    assert [f.kind for f in held_findings(entries, held(entries, s2p0=4), {}, append=False)] == ["missing_rows"]
    deleted = [*entries, foreign(3, "delete", deleted=1)]
    assert held_findings(deleted, held(entries, s2p0=4), {}, append=False) == []


def test_a_redrive_adds_rows_to_older_commits_of_an_upsert_table():
    entry = ingest(1, {0: 0}, {0: 10}, consumed=10, rows=8, dead_letters=2)
    redriven = Entry(2, AT, "replay", "overwrite", None, Counts(10, 10), added=10)
    [where] = ranges([entry])
    letters = {where: Held(2, 2, 3, 4)}
    assert held_findings([entry, redriven], {where: Held(10, 10, 0, 9)}, letters, append=False) == []
    [surplus] = held_findings([entry, redriven], {where: Held(11, 11, 0, 9)}, letters, append=False)
    assert surplus.kind == "surplus_rows"


def test_after_a_replay_a_record_is_a_row_or_a_dead_letter_or_both():
    entry = ingest(1, {0: 0}, {0: 12}, consumed=12, rows=8, dead_letters=2, filtered=2)
    replay = Entry(2, AT, "replay", "append", None, Counts(2, 2), added=2)
    [where] = ranges([entry])
    rows, letters = {where: Held(10, 10)}, {where: Held(2, 2)}

    def found(distinct):
        either = {where: Held(distinct + 2, distinct)}
        return [f.kind for f in held_findings([entry, replay], rows, letters, either, append=True)]

    assert found(10) == found(12) == []
    assert found(9) == ["missing_rows_or_dead_letters"]
    assert found(13) == ["surplus_rows_or_dead_letters"]


def test_counts_of_a_newer_release_are_not_misread():
    assert Counts.from_json({"consumed": 2, "rows": 2}) == Counts(2, 2)
    with pytest.raises(UnclearState, match="name quarantined, which a newer release wrote"):
        Counts.from_json({"consumed": 2, "quarantined": 2})


def test_offsets_that_two_topics_used_cannot_be_told_apart():
    entries = [FIRST, decision(2, {0: 10, 1: 20}, {0: 0}, "new"), ingest(3, {0: 0}, {0: 5}, "new")]
    assert shared(ranges(entries)) == {1, 3}
    found = held_findings(entries, {}, {}, append=True)
    assert [(f.kind, f.fault) for f in found] == [("shared_offsets", False)] * 2


def test_rows_of_expired_commits_are_not_unknown():
    assert beside([FIRST]) == []
    assert beside([SECOND]) == [Range(0, 0, 0, 10), Range(0, 1, 0, 20)]


def test_an_offset_that_was_read_again_is_of_the_oldest_commit():
    back = decision(2, {0: 10, 1: 20}, {0: 4, 1: 20})
    again = ingest(3, {0: 4, 1: 20}, {0: 12, 1: 20}, consumed=8, rows=2, deduplicated=6)
    entries = [FIRST, back, again]
    assert faults(entries) == []
    found = [(r.snapshot_id, r.partition, r.start, r.end) for r in ranges(entries)]
    assert found == [(1, 0, 0, 10), (1, 1, 0, 20), (3, 0, 10, 12)]
    assert held_findings(entries, held(entries), {}, append=True) == []
    # An upsert merges what it reads again: how many of those rows are the first commit's is not known.
    merged = [FIRST, back, ingest(3, {0: 4, 1: 20}, {0: 12, 1: 20}, consumed=8, rows=8)]
    assert held_findings(merged, held(merged), {}, append=False) == []


def test_what_a_decision_skipped_may_come_back_by_a_replay():
    skipped = decision(2, {0: 10, 1: 20}, {0: 10, 1: 60})
    replay = Entry(3, AT, "replay", "append", None, Counts(2, 2), added=2)
    assert beside([FIRST, skipped]) == []
    assert beside([FIRST, skipped, replay]) == [Range(0, 1, 20, 60)]


def test_a_record_in_the_log_without_an_outcome_is_lost():
    found = log_findings([FIRST], {1: Logged(30, 1)}, [(1, 0, 7)])
    assert [(f.kind, f.partition, f.offsets) for f in found] == [("lost", 0, (7, 7)), ("lost_records", None, None)]
    assert found[0].said.startswith("LOST: partition 0 offset 7")


def test_records_left_out_on_purpose_are_not_lost():
    entry = ingest(1, {0: 0}, {0: 10}, consumed=10, rows=6, filtered=2, deduplicated=1, skipped=1)
    assert log_findings([entry], {1: Logged(10, 4)}, [(1, 0, n) for n in range(4)]) == []
    found = log_findings([entry], {1: Logged(10, 5)}, [(1, 0, n) for n in range(5)])
    assert [f.kind for f in found] == ["lost"] * 5 + ["lost_records"]
    assert found[-1].said.endswith("dead letters: 1")


def test_records_of_a_commit_without_counts_are_compared_with_the_log():
    old = replace(FIRST, counts=None)
    assert log_findings([old], {1: Logged(30, 0)}, []) == []
    assert [f.kind for f in log_findings([old], {1: Logged(30, 1)}, [(1, 0, 7)])] == ["lost", "lost_records"]


def test_the_log_has_no_more_records_than_were_consumed():
    entry = ingest(1, {0: 0}, {0: 10}, consumed=7, rows=7)
    assert log_findings([entry], {1: Logged(5, 0)}, []) == []
    assert [f.kind for f in log_findings([entry], {1: Logged(8, 0)}, [])] == ["never_read"]


def test_coverage_is_by_topic_and_partition():
    entries = [FIRST, SECOND, decision(3, {0: 15, 1: 25}, {0: 0}, "new"), ingest(4, {0: 0}, {0: 5}, "new")]
    assert [(c.topic[1], c.partition, c.start, c.end, c.commits) for c in coverage(entries)] == [
        ("new", 0, 0, 5, 1),
        ("t", 0, 0, 15, 2),
        ("t", 1, 0, 25, 2),
    ]


def test_a_page_shows_commits_with_offsets_and_verdict():
    entries = [FIRST, ingest(2, {0: 11, 1: 20}, {0: 15, 1: 20})]
    columns, rows = ledger_page.commits(entries, findings(entries))
    newest = dict(zip(columns, rows[0], strict=True))
    assert newest["offsets"] == "0: 11–14"
    assert newest["verdict"] == "gap"
    assert (newest["consumed"], newest["rows"], newest["dead letters"]) == ("4", "4", "0")
    assert rows[1][-1] == "adds up"
    assert ledger_page.summary(entries, findings(entries)).endswith("Faults: 1")
    assert len(rows) == 2 and rows[0][:3] == ["2026-01-02 03:04:05", "2", "ingest"]
    _, found = ledger_page.findings_table(findings(entries))
    assert [kind for kind, _ in found] == ["fault"]


def test_a_page_shows_what_the_tables_hold_of_each_partition():
    entries = [ingest(2, {0: 5, 1: 0}, {0: 15, 1: 4}, consumed=11, rows=9, dead_letters=2)]
    first, second = ranges(entries)
    rows, letters = {first: Held(8), second: Held(1), None: Held(7), Range(0, 0, 0, 5): Held(5)}, {second: Held(2)}
    columns, cells = ledger_page.partitions(entries, rows, letters)
    assert columns[-3:] == ["rows", "dead letters", "neither"]
    assert cells == [["t", "0", "5", "15", "10", "1", "8", "0", "2"], ["t", "1", "0", "4", "4", "1", "1", "2", "1"]]
