"""Detection of nondeterministic SQL conditions."""

import pytest

from lakehouse.core.sql import first_nondeterministic


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
def test_first_nondeterministic_clock_or_random_is_found(sql, word):
    assert first_nondeterministic(["price > 1", sql]) == word


@pytest.mark.parametrize(
    "sql",
    [
        "unix_timestamp(at) > 5",
        "`current_date` = 1 OR event.current_date = 2",
        "note = 'rand()' /* now() */ OR note = 'today is the day'",
        "now > rand",
    ],
)
def test_first_nondeterministic_columns_and_texts_are_ignored(sql):
    assert first_nondeterministic([sql]) == ""
