"""Synthetic records obey the hints of their schema."""

import io
import json
import re
from itertools import islice

import fastavro
import pytest

from lakehouse.config.loader import PROJECT
from lakehouse.core.errors import ConfigError
from lakehouse.local.synthetic_records import messages, records

TRADES = (PROJECT / "schemas/stock_trades.avsc").read_text()
USERS = (PROJECT / "schemas/users.avsc").read_text()


@pytest.mark.parametrize("schema", [TRADES, USERS])
def test_every_value_obeys_its_hint(schema):
    hints = {field["name"]: field["type"]["arg.properties"] for field in json.loads(schema)["fields"]}
    seen = {name: set() for name in hints}
    for record in islice(records(schema, seed=1), 3_000):
        for name, value in record.items():
            seen[name].add(value)
            match hints[name]:
                case {"options": options}:
                    assert value in options
                case {"range": {"min": low, "max": high}}:
                    assert low <= value < high
                case {"regex": pattern}:
                    assert re.fullmatch(pattern, value)
    for name, hint in hints.items():
        if "options" in hint:
            assert seen[name] == set(hint["options"])
        if "regex" in hint:
            assert len(seen[name]) == 9


def test_the_same_seed_gives_the_same_records():
    assert list(islice(records(TRADES, 5), 50)) == list(islice(records(TRADES, 5), 50))
    assert list(islice(records(TRADES, 5), 50)) != list(islice(records(TRADES, 6), 50))


def test_messages_are_keyed_and_framed():
    parsed = fastavro.parse_schema(json.loads(TRADES))
    for (key, value), record in zip(islice(messages(TRADES, 258, "symbol", 3), 20), records(TRADES, 3), strict=False):
        assert value[:5] == b"\x00\x00\x00\x01\x02"
        assert fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed) == record
        assert key.decode() == record["symbol"]


def schema(type_):
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": type_}]})


def test_iterations_and_bare_types():
    counting = {"type": "long", "arg.properties": {"iteration": {"start": 3, "step": 2}}}
    assert [r["a"] for r in islice(records(schema(counting)), 3)] == [3, 5, 7]
    assert {r["a"] for r in islice(records(schema("boolean"), 1), 50)} == {True, False}
    assert {r["a"] for r in islice(records(schema({"type": "enum", "name": "E", "symbols": ["X"]})), 5)} == {"X"}


@pytest.mark.parametrize("type_", ["string", {"type": "int", "arg.properties": {"regex": "a"}}])
def test_a_field_that_nothing_says_how_to_make_is_named(type_):
    with pytest.raises(ConfigError, match="Field 'a' of type .* has no generator hint"):
        next(records(schema(type_)))
