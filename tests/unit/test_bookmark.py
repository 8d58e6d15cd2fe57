"""How far one topic was made from another, as a message that a compacted topic keeps."""

from dataclasses import replace

import pytest

from lakehouse.core.bookmark import Bookmark
from lakehouse.core.errors import UnclearState

KNOWN = Bookmark("cluster", "source", "target", "uuid", 7, 2, {0: 10, 1: 0, 11: 3}, "by hand")


def test_a_bookmark_survives_and_a_newer_one_is_refused():
    assert Bookmark.from_json(KNOWN.to_json().encode()) == KNOWN
    with pytest.raises(UnclearState, match="newer release"):
        Bookmark.from_json(KNOWN.to_json().replace('"version": 1', '"version": 2'))


def test_a_bookmark_is_of_one_topic_of_one_cluster():
    assert KNOWN.is_of("cluster", "source")
    assert not KNOWN.is_of("cluster", "recreated")
    assert not replace(KNOWN, cluster_id="other").is_of("cluster", "source")


@pytest.mark.parametrize(
    ("position", "is_past"),
    [({0: 10, 1: 0, 11: 3}, False), ({0: 11, 1: 5, 11: 3, 12: 1}, False), ({0: 50, 11: 2}, True), ({}, True)],
)
def test_a_table_that_was_rolled_back_is_behind_in_any_partition(position, is_past):
    assert KNOWN.is_past(position) == is_past
