"""Lag of tables and readers, by offsets and times."""

import pytest

from lakehouse.core.errors import LakehouseError
from lakehouse.core.offsets.lag import Lag, lag, pending, snapshots_behind


def test_pending_returns_positions_behind_end():
    assert pending({0: 10, 1: 20, 2: 4}, {0: 10, 1: 25, 2: 6}) == {1: 20, 2: 4}
    assert pending({0: 3}, {0: 5}) == {0: 3}


def test_lag_counts_from_oldest_pending_record():
    behind = lag({1: 20, 2: 4}, {0: 10, 1: 25, 2: 6}, {1: 9_000, 2: 4_000}, now_ms=10_000)
    assert behind == Lag(missing=7, seconds=6.0)


def test_lag_idle_topic_or_only_markers_is_zero():
    assert lag({}, {0: 10}, {}, 10_000) == Lag(0, 0.0)
    assert lag({0: 9}, {0: 10}, {0: None}, 10_000) == Lag(1, 0.0)


def test_lag_clock_slightly_ahead_is_not_negative():
    assert lag({0: 1}, {0: 2}, {0: 11_000}, 10_000).seconds == 0


def test_lag_record_from_future_raises():
    hours = 3 * 3_600_000
    with pytest.raises(LakehouseError, match="partition 1.* 10,800 s in the future. Its lag is unknown"):
        lag({0: 1, 1: 7}, {0: 2, 1: 9}, {0: 4_000, 1: 10_000 + hours}, 10_000)


COMMITS = [(3, 3_000), (2, 2_000), (1, 1_000)]


def test_snapshots_behind_counts_from_first_missed_snapshot():
    assert snapshots_behind(COMMITS, 3, 10_000) == Lag(0, 0.0, "snapshot")
    assert snapshots_behind(COMMITS, 1, 10_000) == Lag(2, 8.0, "snapshot")


def test_snapshots_behind_unpublished_snapshot_is_none():
    assert snapshots_behind(COMMITS, 9, 10_000) is None


def test_snapshots_behind_empty_reader_counts_from_first():
    assert snapshots_behind(COMMITS, None, 10_000) == Lag(3, 9.0, "snapshot")
    assert snapshots_behind([], None, 10_000).describe() == "nothing is published yet"
