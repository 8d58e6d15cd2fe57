"""Division of messages into transactions."""

import pytest

from resources.kafka import transactions
from resources.kafka.transactions import Outgoing, split


def messages(count, size=0):
    return [Outgoing("topic", b"%d" % n, b"x" * size) for n in range(count)]


def keys_by_part(outgoing):
    return [[message.key for message in part] for part in split(outgoing)]


@pytest.mark.parametrize("bound", [{"MAX_MESSAGES": 3}, {"MAX_BYTES": 3_000}, {"MAX_BYTES": 2_001}])
def test_parts_are_bounded_by_count_and_bytes_in_order(monkeypatch, bound):
    for name, value in bound.items():
        monkeypatch.setattr(transactions, name, value)
    outgoing = messages(8, size=1_000 - transactions.OVERHEAD_BYTES - 1)
    assert {message.size for message in outgoing} == {1_000}

    assert keys_by_part(outgoing) == [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6", b"7"]]


def test_parts_are_bounded_by_time(monkeypatch):
    monkeypatch.setattr(transactions, "MAX_SECONDS", 0)
    assert keys_by_part(messages(3)) == [[b"0"], [b"1"], [b"2"]]


def test_parts_of_nothing_is_one_empty_part():
    assert keys_by_part([]) == [[]]


def test_size_includes_headers():
    plain = Outgoing("topic", b"key", None)
    assert Outgoing("topic", b"key", None, (("name", b"12345"), ("none", None))).size >= plain.size + 13
