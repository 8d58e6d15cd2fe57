"""How the messages of one piece of work are divided among transactions."""

import pytest

from resources import transactions
from resources.transactions import Outgoing, parts


def messages(count, size=0):
    return [Outgoing("topic", b"%d" % n, b"x" * size) for n in range(count)]


def divided(given):
    return [[message.key for message in part] for part in parts(given)]


@pytest.mark.parametrize("bound", [{"MOST_MESSAGES": 3}, {"MOST_BYTES": 3_000}, {"MOST_BYTES": 2_001}])
def test_parts_are_bounded_by_number_and_bytes_and_keep_the_order(monkeypatch, bound):
    for name, value in bound.items():
        monkeypatch.setattr(transactions, name, value)
    given = messages(8, size=1_000 - transactions.OVERHEAD_BYTES - 1)
    assert {message.size for message in given} == {1_000}

    assert divided(given) == [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6", b"7"]]


def test_parts_are_bounded_by_time(monkeypatch):
    monkeypatch.setattr(transactions, "MOST_SECONDS", 0)
    assert divided(messages(3)) == [[b"0"], [b"1"], [b"2"]]


def test_there_is_one_part_of_nothing():
    assert divided([]) == [[]]


def test_headers_count():
    plain = Outgoing("topic", b"key", None)
    assert Outgoing("topic", b"key", None, (("name", b"12345"), ("none", None))).size >= plain.size + 13
