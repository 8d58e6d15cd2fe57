"""Conditions whose answer is not the row's alone."""

import pytest

from lakehouse.core.inconstant import found


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("event_time <= now()", "now"),
        ("event_time <= CURRENT_TIMESTAMP + INTERVAL 3 SECONDS", "CURRENT_TIMESTAMP"),
        ("price > 5 -- rand()\n OR uuid () = name", "uuid"),
        ("unix_timestamp( ) > at", "unix_timestamp"),
        ("at <= timestamp 'Today UTC'", "'Today UTC'"),
        ("name = 'it\\'s' AND random(1) < price", "random"),
    ],
)
def test_the_clock_and_chance_are_found(sql, word):
    assert found(["price > 1", sql]) == word


@pytest.mark.parametrize(
    "sql",
    [
        "unix_timestamp(at) > 5",
        "`current_date` = 1 OR event.current_date = 2",
        "note = 'rand()' /* now() */ OR note = 'today is the day'",
        "now > rand",
    ],
)
def test_columns_texts_and_comments_are_left_alone(sql):
    assert found([sql]) == ""
