"""Lag: offsets and times in, how far behind out."""

import pytest

from lakehouse.core.errors import LakehouseError
from lakehouse.core.lag import Behind, Lag, lag, pending, snapshots_behind


def test_what_waits_is_what_is_past_the_position():
    assert pending({0: 10, 1: 20, 2: 4}, {0: 10, 1: 25, 2: 6}) == {1: 20, 2: 4}
    assert pending({0: 3}, {0: 5}) == {0: 3}


def test_lag_is_counted_from_the_oldest_that_waits():
    found = lag({1: 20, 2: 4}, {0: 10, 1: 25, 2: 6}, {1: 9_000, 2: 4_000}, now_ms=10_000)
    assert found == Lag(records=7, seconds=6.0)


def test_an_idle_topic_and_one_with_only_markers_waiting_are_fresh():
    assert lag({}, {0: 10}, {}, 10_000) == Lag(0, 0.0)
    assert lag({0: 9}, {0: 10}, {0: None}, 10_000) == Lag(1, 0.0)


def test_a_clock_that_runs_a_little_ahead_gives_no_negative_lag():
    assert lag({0: 1}, {0: 2}, {0: 11_000}, 10_000).seconds == 0


def test_how_long_a_record_from_the_future_has_waited_is_unknown():
    hours = 3 * 3_600_000
    with pytest.raises(LakehouseError, match="partition 1.* 10,800 s in the future. How long it has waited is unknown"):
        lag({0: 1, 1: 7}, {0: 2, 1: 9}, {0: 4_000, 1: 10_000 + hours}, 10_000)


COMMITS = [(3, 3_000), (2, 2_000), (1, 1_000)]


def test_a_reader_is_as_far_behind_as_the_first_snapshot_it_misses_is_old():
    assert (snapshots_behind(COMMITS, 3, 10_000).snapshots, snapshots_behind(COMMITS, 3, 10_000).seconds) == (0, 0)
    behind = snapshots_behind(COMMITS, 1, 10_000)
    assert (behind.snapshots, behind.seconds) == (2, 8.0)


def test_a_snapshot_that_main_never_had_was_never_published():
    assert snapshots_behind(COMMITS, 9, 10_000) is None


def test_a_reader_that_shows_nothing_is_behind_since_the_first_snapshot():
    assert snapshots_behind(COMMITS, None, 10_000) == Behind(3, 9.0)
    assert snapshots_behind([], None, 10_000) == Behind(0, 0.0, nothing=True)
