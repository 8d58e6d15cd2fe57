"""Bookmarks of derived topics."""

from dataclasses import replace

import pytest

from lakehouse.core.errors import UnclearState
from lakehouse.core.offsets.bookmark import Bookmark

BOOKMARK = Bookmark("cluster", "source", "target", "uuid", 7, 2, {0: 10, 1: 0, 11: 3}, "by hand")


def test_bookmark_round_trips_and_newer_version_is_refused():
    assert Bookmark.from_json(BOOKMARK.to_json().encode()) == BOOKMARK
    with pytest.raises(UnclearState, match="newer release"):
        Bookmark.from_json(BOOKMARK.to_json().replace('"version": 1', '"version": 3'))


def test_bookmark_of_further_snapshots_round_trips():
    bookmark = replace(BOOKMARK, further={5: {0: 3, 10: 4}, 6: {}})
    assert Bookmark.from_json(bookmark.to_json()) == bookmark
    assert '"version": 2' in bookmark.to_json()
    assert '"version": 1' in BOOKMARK.to_json() and "further" not in BOOKMARK.to_json()


def test_is_of_other_topic_or_cluster_is_false():
    assert BOOKMARK.is_of("cluster", "source")
    assert not BOOKMARK.is_of("cluster", "recreated")
    assert not replace(BOOKMARK, cluster_id="other").is_of("cluster", "source")


@pytest.mark.parametrize(
    ("position", "is_past"),
    [({0: 10, 1: 0, 11: 3}, False), ({0: 11, 1: 5, 11: 3, 12: 1}, False), ({0: 50, 11: 2}, True), ({}, True)],
)
def test_is_past_compares_every_partition(position, is_past):
    assert BOOKMARK.is_past(position) == is_past
