"""Rows on a branch are published only where its commits are those of one writer, each once, and whole."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse.core.batch import PART, REPLAY, TOKEN, Batch
from lakehouse.core.counts import Counts
from lakehouse.core.errors import CommitConflict
from lakehouse.pipeline.audit import CONSERVATION, Staged, audit
from resources.catalog import Catalog

BRANCH = "ingest_1"
BATCH = Batch("c", "orders", "t", {0: 0}, {0: 3})
OWN = {TOKEN: BATCH.to_json()}


def rows(count):
    return pa.table({"a": pa.array(range(count), pa.int64())})


class Lake:
    """A table that a writer stages a batch of three rows in."""

    def __init__(self, folder, published):
        (folder / "warehouse").mkdir()
        settings = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        self.catalog = Catalog(type="sql", **settings)
        self.other = SqlCatalog("lake", **settings)
        self.other.create_namespace("trading")
        self.table = self.other.create_table(("trading", "orders"), rows(1).schema)
        if published:
            self.table.append(rows(5))
        self.base = self.table.metadata.current_snapshot_id

    def branch(self):
        if self.base is None:
            self.table.append(rows(0))
        self.table.manage_snapshots().create_branch(self.table.metadata.current_snapshot_id, BRANCH).commit()
        if self.base is None:
            self.without_main()

    def without_main(self):
        """Leave the branch of a table that was never published to, at an empty snapshot, as Spark makes it."""
        file = Path(self.table.metadata_location.removeprefix("file://"))
        metadata = json.loads(file.read_text()) | {"current-snapshot-id": None, "snapshot-log": []}
        del metadata["refs"]["main"]
        file = file.with_name("00009-unpublished.metadata.json")
        file.write_text(json.dumps(metadata))
        self.other.drop_table(("trading", "orders"))
        self.table = self.other.register_table(("trading", "orders"), str(file))

    def stage(self, count=3, properties=OWN, branch=BRANCH):
        self.table.append(rows(count), branch=branch, snapshot_properties=properties)

    def audited(self, **changes):
        staged = Staged(BRANCH, self.base, OWN, 1, 3, Counts(consumed=3, rows=3))
        found = audit(None, self.catalog.load("trading", "orders"), (), replace(staged, **changes))
        return next(finding for finding in found if finding.check == CONSERVATION)


@pytest.fixture(params=[True, False], ids=["a table with rows", "a new table"])
def lake(request, tmp_path):
    lake = Lake(tmp_path, request.param)
    lake.branch()
    return lake


def test_a_batch_in_one_commit_passes(lake):
    lake.stage()
    found = lake.audited()
    assert found.passed, found.said
    assert found.numbers["committed_rows"] == 3 and found.numbers["offsets_without_record"] == 0


def test_a_batch_in_two_commits_passes(lake):
    lake.stage(0, {PART: "delete"})
    lake.stage()
    assert lake.audited().passed


def test_a_replay_in_several_writes_passes_when_all_are_there(lake):
    for _ in range(2):
        lake.stage(0, {PART: "delete"})
        lake.stage(properties={REPLAY: "{}"})
    replay = {"summary": {REPLAY: "{}"}, "offsets": 9, "counts": Counts(consumed=6, rows=6)}

    assert lake.audited(**replay, writes=2).passed
    assert "2 commits belong to this batch, expected 3" in lake.audited(**replay, writes=3).said


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        (lambda lake: [lake.stage(), lake.stage()], "2 commits belong to this batch, expected 1"),
        (lambda lake: [lake.stage(), lake.stage(1, {})], "the branch has snapshots of another writer"),
        (lambda lake: [lake.stage(1, {}), lake.stage()], "the branch has snapshots of another writer"),
        (lambda lake: lake.stage(properties={}), "does not say that it holds this batch's offsets"),
        (lambda lake: lake.stage(properties={TOKEN: "{}"}), "does not say that it holds this batch's offsets"),
        (lambda lake: lake.stage(2), "committed_rows 2"),
    ],
    ids=["written twice", "joined after", "joined before", "no position", "another position", "a row less"],
)
def test_a_branch_that_is_not_the_batch_fails(lake, stage, said):
    stage(lake)
    found = lake.audited()
    assert not found.passed and found.blocks
    assert said in found.said


def test_each_file_of_each_commit_must_be_whole(lake):
    lake.stage(0, {PART: "delete"})
    lake.stage()
    table = lake.catalog.load("trading", "orders")
    entries = table.inspect.entries(table.metadata.refs[BRANCH].snapshot_id).to_pylist()
    newest = max(entry["sequence_number"] for entry in entries)
    [path] = [e["data_file"]["file_path"] for e in entries if e["sequence_number"] == newest]
    Path(path.removeprefix("file://")).unlink()

    found = lake.audited()

    assert not found.passed and "1 data files are missing or incomplete" in found.said


def test_a_branch_that_was_made_after_another_publication_is_a_conflict(tmp_path):
    lake = Lake(tmp_path, published=True)
    lake.stage(branch="main")
    lake.branch()
    lake.stage()

    with pytest.raises(CommitConflict, match="run it again"):
        lake.audited()


def test_a_publication_meanwhile_is_left_to_the_commit(lake):
    lake.stage()
    lake.stage(branch="main", properties={})
    assert lake.audited().passed
