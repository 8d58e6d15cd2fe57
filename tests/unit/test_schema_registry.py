"""What is asked of a schema registry is bounded, and what it does not answer is never "not found"."""

import time

import pytest
from registry_server import RegistryServer

from lakehouse.budget import MAX_CHARACTERS, MAX_REFERENCES
from lakehouse.errors import SchemaError, Unreachable
from resources import schema_registry
from resources.schema_registry import SchemaRegistry


@pytest.fixture
def server():
    with RegistryServer().listening() as server:
        yield server


@pytest.fixture
def registry(server):
    return SchemaRegistry(url=server.address)


def test_references_come_after_what_they_need_themselves(server, registry):
    server.add(1, "money", "money")
    server.add(2, "price", "price", references={"money.avsc": "money"})
    server.add(3, "order", references={"price.avsc": "price", "money.avsc": "money"})
    found = registry.by_id(3)
    assert (found.text, found.references) == ("order", (("money.avsc", "money"), ("price.avsc", "price")))
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("references", "said"),
    [
        # One after the other, side by side, and in a circle.
        (lambda i: {f"s{i + 1}": f"s{i + 1}"}, "refers to more than"),
        (lambda i: {f"s{n}": f"s{n}" for n in range(1, 1_000)} if i == 0 else {}, "refers to more than"),
        (lambda i: {f"s{(i + 1) % 3}": f"s{(i + 1) % 3}"}, "refers to itself"),
    ],
)
def test_references_without_end_are_followed_so_far(server, registry, references, said):
    for i in range(1_000):
        server.add(i, "{}", f"s{i}", references=references(i))
    with pytest.raises(SchemaError, match=said):
        registry.by_id(0)
    with pytest.raises(SchemaError, match=said):
        registry.latest("s0")
    assert len(server.requests) <= 2 * (1 + MAX_REFERENCES)


def test_references_are_read_up_to_a_size(server, registry):
    for i in range(10):
        server.add(i, "x" * (MAX_CHARACTERS // 4), f"s{i}", references={f"s{i + 1}": f"s{i + 1}"})
    with pytest.raises(SchemaError, match=f"more than {MAX_CHARACTERS:,}"):
        registry.by_id(0)
    assert len(server.requests) <= 5


def test_not_found_is_remembered_for_a_while_and_asked_again_when_asked(server, registry, monkeypatch):
    server.add(7, "{}")
    assert [registry.by_id(id_) for id_ in (8, 9)] == [None, None]
    assert registry.by_id(7)
    assert registry.not_found() == {8, 9}

    server.add(9, "{}")
    assert registry.by_id(9)
    assert server.asked_ids == [8, 9, 7, 9]

    monkeypatch.setattr(schema_registry, "NOT_FOUND_SECONDS", 0)
    assert registry.not_found() == frozenset()


def test_what_is_remembered_is_bounded(registry, monkeypatch):
    monkeypatch.setattr(schema_registry, "MOST_NOT_FOUND", 3)
    for id_ in range(6):
        registry.by_id(id_)
    assert registry.not_found() == {3, 4, 5}


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_an_error_is_not_not_found(server, registry, status):
    server.status = status
    with pytest.raises(Unreachable):
        registry.by_id(1)
    assert registry.not_found() == frozenset()


def test_no_request_begins_after_the_deadline(server, registry):
    with pytest.raises(Unreachable, match="too slowly"):
        registry.by_id(1, deadline=time.monotonic() - 1)
    assert server.requests == []
    assert registry.not_found() == frozenset()
