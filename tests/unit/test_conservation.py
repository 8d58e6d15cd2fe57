"""Audit of record counts: a staged branch passes only with exactly one writer's commits, each once and complete."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse.core.errors import CommitConflict
from lakehouse.core.offsets.batch import Batch, Counts
from lakehouse.core.table_protocol import PART, REPLAY, TOKEN
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.commits.audit import RECORD_COUNT, Staged, audit
from resources.iceberg.catalog import Catalog

BRANCH = "ingest_1"
NO_BATCH = "no snapshot has exactly the properties of this batch"
BATCH = Batch("c", "orders", "t", {0: 0}, {0: 3})
SUMMARY = {TOKEN: BATCH.to_json()}


def rows(count):
    return pa.table({"a": pa.array(range(count), pa.int64())})


class Lake:
    """A table in which a writer stages a batch of three rows."""

    def __init__(self, folder, published, columns=None):
        (folder / "warehouse").mkdir()
        settings = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        self.catalog = Catalog(type="sql", **settings)
        self.iceberg = SqlCatalog("lake", **settings)
        self.iceberg.create_namespace("trading")
        self.table = self.iceberg.create_table(("trading", "orders"), pa.schema(columns or rows(1).schema))
        if published:
            self.table.append(rows(5))
        self.base = self.table.metadata.current_snapshot_id

    def branch(self):
        if self.base is None:
            self.table.append(self.table.schema().as_arrow().empty_table())
        self.table.manage_snapshots().create_branch(self.table.metadata.current_snapshot_id, BRANCH).commit()
        if self.base is None:
            self.remove_main()

    def remove_main(self):
        """Give the table no main branch, and a branch at an empty snapshot, as Spark does for an unpublished table."""
        file = Path(self.table.metadata_location.removeprefix("file://"))
        metadata = json.loads(file.read_text()) | {"current-snapshot-id": None, "snapshot-log": []}
        del metadata["refs"]["main"]
        file = file.with_name("00009-unpublished.metadata.json")
        file.write_text(json.dumps(metadata))
        self.iceberg.drop_table(("trading", "orders"))
        self.table = self.iceberg.register_table(("trading", "orders"), str(file))

    def stage(self, count=3, properties=SUMMARY, branch=BRANCH):
        self.table.append(rows(count), branch=branch, snapshot_properties=properties)

    def audited(self, **changes):
        staged = Staged(BRANCH, self.base, SUMMARY, 3, [Counts(consumed=3, rows=3)])
        findings = audit(None, self.catalog.load(TableRef("trading", "orders")), (), replace(staged, **changes))
        return next(finding for finding in findings if finding.check == RECORD_COUNT)


@pytest.fixture(params=[True, False], ids=["a table with rows", "a new table"])
def lake(request, tmp_path):
    lake = Lake(tmp_path, request.param)
    lake.branch()
    return lake


def test_audit_batch_in_one_commit_passes(lake):
    lake.stage()
    finding = lake.audited()
    assert finding.passed, finding.message
    assert finding.numbers["committed_rows"] == 3 and finding.numbers["offsets_without_record"] == 0


def test_audit_batch_in_two_commits_passes(lake):
    lake.stage(0, {PART: "delete"})
    lake.stage()
    assert lake.audited().passed


def test_audit_replay_passes_only_with_all_writes(lake):
    for _ in range(2):
        lake.stage(0, {PART: "delete"})
        lake.stage(properties={REPLAY: "{}"})
    replay, written = {"summary": {REPLAY: "{}"}, "offsets": 9}, Counts(consumed=3, rows=3)

    assert lake.audited(**replay, writes=[written] * 2).passed
    finding = lake.audited(**replay, writes=[written] * 3)
    assert not finding.passed and "2 commits belong to this batch, expected 3" in finding.message


def test_audit_write_without_a_row_that_another_write_has_twice_fails(lake):
    for count in (2, 4):
        lake.stage(count, {REPLAY: "{}"})
    finding = lake.audited(summary={REPLAY: "{}"}, offsets=6, writes=[Counts(consumed=3, rows=3)] * 2)
    assert not finding.passed
    assert "its writes committed [2, 4] rows, expected [3, 3]" in finding.message


def test_audit_summary_that_differs_from_footers_fails(lake):
    """The summary of a merge has numbers that the writer chose; the footers have two rows."""
    lake.stage(2, SUMMARY | {"spark.merge-into.num-target-rows-inserted": "3"})
    finding = lake.audited()
    assert not finding.passed and finding.numbers["committed_rows"] == 3
    assert "the files of its commits have [2] rows, expected [3]" in finding.message


@pytest.mark.parametrize(
    ("places", "passes"),
    [
        ([(0, 5), (0, 7), (2, 0)], True),
        ([(0, 5), (0, 7), (0, 8)], False),
        ([(0, 4), (0, 7), (0, 6)], False),
        ([(2, 0), (2, 1), (2, 3)], False),
        ([(0, 5), (0, 6), (3, 0)], False),
        ([(None, None), (0, 5), (0, 6)], True),
    ],
    ids=[
        "of the batch",
        "after it",
        "before it",
        "after that of its partition",
        "of another partition",
        "without a place",
    ],
)
def test_audit_rows_of_offsets_that_were_not_read_fail(tmp_path, places, passes):
    lake = Lake(tmp_path, published=False, columns={"kafka_partition": pa.int32(), "kafka_offset": pa.int64()})
    lake.branch()
    columns = zip(*places, strict=True)
    placed = pa.table(
        [pa.array(column, type_) for column, type_ in zip(columns, (pa.int32(), pa.int64()), strict=True)],
        names=["kafka_partition", "kafka_offset"],
    )
    lake.table.append(placed, branch=BRANCH, snapshot_properties=SUMMARY)

    finding = lake.audited(place=("kafka_partition", "kafka_offset"), extent={0: (5, 8), 2: (0, 3)})

    assert finding.passed is passes, finding.message
    assert passes or "1 data files have rows of other offsets" in finding.message


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (lambda lake: [lake.stage(), lake.stage()], "2 commits belong to this batch, expected 1"),
        (lambda lake: [lake.stage(), lake.stage(1, {})], "the branch has snapshots of another writer"),
        (lambda lake: [lake.stage(1, {}), lake.stage()], "the branch has snapshots of another writer"),
        (lambda lake: lake.stage(properties={}), NO_BATCH),
        (lambda lake: lake.stage(properties={TOKEN: "{}"}), NO_BATCH),
        (
            lambda lake: lake.stage(properties=SUMMARY | {REPLAY: "{}"}),
            "no snapshot has exactly the properties of this batch",
        ),
        (lambda lake: [lake.stage(0, {PART: "delete"} | SUMMARY), lake.stage()], "snapshots of another writer"),
        (lambda lake: lake.stage(2), "committed_rows 2"),
    ],
    ids=[
        *("written twice", "joined after", "joined before", "no position", "another position", "another property"),
        *("position in a part", "missing row"),
    ],
)
def test_audit_branch_that_is_not_the_batch_fails(lake, stage, message):
    stage(lake)
    finding = lake.audited()
    assert not finding.passed and finding.blocks
    assert message in finding.message


def test_audit_missing_data_file_fails(lake):
    lake.stage(0, {PART: "delete"})
    lake.stage()
    table = lake.catalog.load(TableRef("trading", "orders"))
    entries = table.inspect.entries(table.metadata.refs[BRANCH].snapshot_id).to_pylist()
    newest = max(entry["sequence_number"] for entry in entries)
    [path] = [e["data_file"]["file_path"] for e in entries if e["sequence_number"] == newest]
    Path(path.removeprefix("file://")).unlink()

    finding = lake.audited()

    assert not finding.passed and "1 data files are missing or incomplete" in finding.message


def test_audit_branch_based_on_later_publication_conflicts(tmp_path):
    lake = Lake(tmp_path, published=True)
    lake.stage(branch="main")
    lake.branch()
    lake.stage()

    with pytest.raises(CommitConflict, match="Retry the run or command"):
        lake.audited()


def test_audit_concurrent_publication_passes_until_commit(lake):
    lake.stage()
    lake.stage(branch="main", properties={})
    assert lake.audited().passed
