"""The rules of derivations that need no system: what is complete, new, late and lost, and how it is divided."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from lakehouse.config.model import Topic
from lakehouse.core.errors import UnclearState
from lakehouse.core.offsets.batch import Batch, furthest, nearest
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.core.table_protocol import RECREATED, REPLAYS, TOKEN
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.derivation.late_rows import derived_snapshots, lost_rows
from lakehouse.pipeline.derivation.positions import OffsetPosition, SnapshotPosition
from lakehouse.pipeline.derivation.progress import Progress
from lakehouse.pipeline.derivation.single_rows import ends_of_first, fitting_rows
from lakehouse.pipeline.derivation.source_table import SourceTable
from lakehouse.pipeline.engine_values import Ends, LateRows
from resources.iceberg.table_chain import TableChain
from resources.kafka.transactions import MAX_BYTES

BOOKMARK = Bookmark("cluster", "source", "target", "identity", "lake.t", "flags", "uuid", 1, 2, {0: 10, 1: 4})
TOPICS = {
    "spark": Topic.model_validate({"name": "orders"}),
    "tableflow": Topic.model_validate({"name": "orders", "engine": "tableflow"}),
}
DERIVED = Topic.model_validate({"name": "flags", "source": {"type": "derived", "from": "orders", "transform": "a:b"}})


@dataclass
class Snapshot:
    """A snapshot of a table, with the offsets of its rows in partition 0."""

    snapshot_id: int
    offsets: set[int]
    batch_end: int | None = None
    parent_snapshot_id: int | None = None
    summary: Any = None

    def __post_init__(self) -> None:
        token = Batch("cluster", "orders", "source", {0: 0}, {0: self.batch_end}).to_json() if self.batch_end else None
        properties = {TOKEN: token} if token else {}
        self.summary = SimpleNamespace(additional_properties=properties, operation="append")


@dataclass
class Store:
    """A table with snapshots of main, newest first, and those that main lacks; and the engine that reads it."""

    main: list[Snapshot]
    other: list[Snapshot] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    uuid: str = "uuid"

    def __post_init__(self) -> None:
        for snapshot, parent in zip(self.main, self.main[1:], strict=False):
            snapshot.parent_snapshot_id = parent.snapshot_id
        self.metadata = SimpleNamespace(table_uuid=self.uuid)

    def current_snapshot(self) -> Snapshot:
        return self.main[0]

    def snapshot_by_id(self, snapshot_id: int) -> Snapshot | None:
        return next((s for s in (*self.main, *self.other) if s.snapshot_id == snapshot_id), None)

    def count(self, question: Ends) -> dict[int, int]:
        offsets = self._offsets(question.rows)
        return {0: max(offsets) + 1} if offsets else {}

    def _offsets(self, rows: Any) -> set[int]:
        if isinstance(rows, LateRows):
            had = {offset for of, end in rows.derived for offset in self._offsets(of) if offset < end.get(0, 0)}
            return {offset for offset in self._offsets(rows.rows) - had if offset < rows.since.get(0, 0)}
        snapshot = self.snapshot_by_id(rows.snapshot_id)
        assert snapshot is not None
        return snapshot.offsets

    def source(self, engine: str = "spark") -> SourceTable:
        table: Any = self
        ref = TableRef("shop", "orders")
        return SourceTable.of(TOPICS[engine], TableChain((ref, table)), ref, table, table)


@pytest.mark.parametrize(
    ("end", "is_late", "is_complete"),
    [
        ({0: 10, 1: 4}, False, True),
        ({0: 10, 1: 4}, True, False),
        ({0: 11, 1: 4}, False, False),
        ({0: 9, 1: 5}, True, True),
    ],
    ids=["nothing is new", "late rows", "new rows", "rolled back behind the bookmark"],
)
def test_progress_is_complete_without_new_rows_or_until_caught_up(end, is_late, is_complete):
    rest = Batch("cluster", "orders", "source", dict(BOOKMARK.offsets), end)
    assert Progress(BOOKMARK, rest, BOOKMARK, is_late).is_complete == is_complete
    assert not Progress(None, rest, BOOKMARK, is_late).is_complete


def test_furthest_and_nearest_compare_each_partition():
    assert furthest({1: 5, 0: 2}, {0: 3, 2: 1}) == {0: 3, 1: 5, 2: 1}
    assert nearest({0: 2, 1: 5}, {1: 3, 2: 7}) == {0: 0, 1: 3}


def test_fitting_rows_divides_too_many_bytes_down_to_one_row():
    assert fitting_rows(1000, MAX_BYTES) == 1000
    assert fitting_rows(1000, 4 * MAX_BYTES) == 125
    assert fitting_rows(3, 100 * MAX_BYTES) == 1
    assert fitting_rows(1, 2 * MAX_BYTES) == 1


def test_ends_of_first_late_rows_complete_earlier_partitions():
    assert ends_of_first({0: 3, 1: 7}, {0: 10, 1: 20, 2: 30}) == {0: 10, 1: 7, 2: 0}


def test_bookmark_of_another_table_covers_none_of_its_replays():
    assert (BOOKMARK.replays_of("uuid"), BOOKMARK.replays_of("next")) == (2, 0)
    assert BOOKMARK.with_further(5, {0: 1}).with_further(6, {0: 2}).further == {5: {0: 1}, 6: {0: 2}}


def test_offsets_are_late_after_a_replay_or_rollback_only():
    bookmark = replace(BOOKMARK, replays=0)
    store = Store([Snapshot(2, set(), 12), Snapshot(1, set(), 10)])
    assert not OffsetPosition(store.source(), is_grouped=False).may_have_late_rows(bookmark)
    store.properties[REPLAYS] = "1"
    assert OffsetPosition(store.source(), is_grouped=False).may_have_late_rows(bookmark)
    rolled_back = Store([Snapshot(0, set(), 5)], [Snapshot(1, set(), 10)])
    assert OffsetPosition(rolled_back.source(), is_grouped=False).may_have_late_rows(bookmark)


def test_groups_of_an_interrupted_derivation_are_late():
    store, begun = Store([Snapshot(1, set(), 10)]), replace(BOOKMARK, replays=0).with_further(1, {0: 10})
    assert OffsetPosition(store.source(), is_grouped=True).may_have_late_rows(begun)
    assert not OffsetPosition(store.source(), is_grouped=False).may_have_late_rows(begun)


def test_snapshot_position_has_late_rows_in_each_other_snapshot():
    store = Store([Snapshot(2, {0, 1}), Snapshot(1, {0})])
    position = SnapshotPosition(store.source("tableflow"), SimpleNamespace())
    assert position.may_have_late_rows(BOOKMARK)
    assert not position.may_have_late_rows(replace(BOOKMARK, snapshot_id=2))


def test_newest_rows_of_tableflow_reach_the_bookmark_after_retention():
    kafka = SimpleNamespace(describe=lambda names: {name: SimpleNamespace(topic_id="source") for name in names})
    kafka.cluster_id = lambda: "cluster"
    position = SnapshotPosition(Store([Snapshot(1, {3, 4})]).source("tableflow"), kafka)
    newest = position.newest()
    assert newest == Batch("cluster", "orders", "source", {0: 0}, {0: 5})
    assert position.reachable(newest, {0: 3, 1: 8}).end == {0: 5, 1: 8}


def test_rows_of_recreated_topic_share_a_table_of_tableflow_only():
    store = Store([Snapshot(1, set(), 10)])
    offsets, snapshots = OffsetPosition(store.source(), False), SnapshotPosition(store.source("tableflow"), None)
    assert not offsets.may_have_rows_of_recreated(BOOKMARK)
    assert snapshots.may_have_rows_of_recreated(BOOKMARK)
    assert not snapshots.may_have_rows_of_recreated(replace(BOOKMARK, table_uuid="dropped"))
    store.properties[RECREATED] = "cluster/source"
    assert offsets.may_have_rows_of_recreated(BOOKMARK)


def test_late_rows_are_before_the_end_of_the_batch_that_was_derived():
    source = Store([Snapshot(1, {0, 1}, 2)]).source()
    position = OffsetPosition(source, is_grouped=False)
    derived = derived_snapshots(source, position, BOOKMARK, {1: BOOKMARK.offsets})
    assert (derived.known, derived.lost, derived.before) == ({1: BOOKMARK.offsets}, {}, {0: 2, 1: 0})


def test_snapshot_without_offsets_or_that_is_expired_is_lost():
    for snapshots in ([Snapshot(1, {0})], [Snapshot(2, {0}, 3)]):
        source = Store(snapshots).source()
        derived = derived_snapshots(source, OffsetPosition(source, False), BOOKMARK, {1: BOOKMARK.offsets})
        assert (derived.lost, derived.before) == ({1: BOOKMARK.offsets}, BOOKMARK.offsets)


def test_late_rows_of_the_next_table_are_dead_letters_before_it():
    source = Store([Snapshot(2, {0}, 3)], uuid="next").source()
    derived = derived_snapshots(source, OffsetPosition(source, False), BOOKMARK, BOOKMARK.snapshots_of("next"))
    assert (derived.known, derived.lost, derived.before) == ({}, {}, {0: 0, 1: 0})


def test_lost_rows_are_those_of_snapshots_that_main_lacks():
    store = Store([Snapshot(1, {0, 1}, 2)], [Snapshot(3, {0, 1, 2, 5}, 6), Snapshot(4, {0, 1}, 2)])
    bookmark = BOOKMARK.with_further(3, {0: 4}).with_further(4, {0: 2})
    assert lost_rows(store.source(), bookmark, is_restorable=False) == {3: {0: 3}}
    store.properties[RECREATED] = "cluster/source"
    assert lost_rows(store.source(), bookmark, is_restorable=False) == {3: {0: 4}, 4: {0: 2}}


def test_lost_rows_of_expired_snapshots_are_kept_as_one():
    bookmark = BOOKMARK.with_further(7, {0: 4, 1: 1}).with_further(6, {0: 2, 1: 3})
    source = Store([Snapshot(1, {0, 1}, 2)]).source()
    assert lost_rows(source, bookmark, is_restorable=False) == {6: {0: 4, 1: 3}}


@pytest.mark.parametrize(("engine", "remedy"), [("spark", "--at 0:10,1:4 --reason"), ("tableflow", "--at latest")])
def test_unclear_state_names_the_position_to_skip_to(engine, remedy):
    source = Store([Snapshot(2, set(), 12)]).source(engine)
    position = OffsetPosition(source, False) if engine == "spark" else SnapshotPosition(source, None)
    error = position.unclear_state(DERIVED, 1, BOOKMARK.offsets)
    assert isinstance(error, UnclearState) and f"lakehouse bookmark flags {remedy}" in str(error)
