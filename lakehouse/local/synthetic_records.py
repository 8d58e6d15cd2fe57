"""Synthetic records from an Avro schema with generator hints, as Confluent's Datagen connector makes them.

Hints stand in a field's type as `arg.properties` (Confluent, avro-random-generator, "Schema annotations"): `options`
(one of a list), `range` (`min` inclusive, `max` exclusive), `regex`, `iteration` (`start`, `step`).
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import fastavro
import rstr

from lakehouse.core.errors import ConfigError
from lakehouse.core.framing import frame

HINTS = ("options", "range", "regex", "iteration")


def records(schema: str, seed: int | None = None) -> Iterator[dict[str, Any]]:
    """Endless records that fit the schema and its hints; the same ones for the same seed.

    Raises: ConfigError naming a field whose values nothing says how to make.
    """
    chance = random.Random(seed)  # noqa: S311 (synthetic records, repeatable by seed)
    fields = {field["name"]: _generator(field["name"], field["type"], chance) for field in json.loads(schema)["fields"]}
    while True:
        yield {name: make() for name, make in fields.items()}


def messages(schema: str, schema_id: int, key: str, seed: int | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Endless (key, value) messages: the key field as UTF-8, the record as Avro in the Confluent wire format."""
    parsed = fastavro.parse_schema(json.loads(schema))
    prefix = frame(schema_id)
    for record in records(schema, seed):
        body = io.BytesIO()
        body.write(prefix)
        fastavro.schemaless_writer(body, parsed, record)
        yield str(record[key]).encode(), body.getvalue()


def _generator(field: str, type_: Any, chance: random.Random) -> Callable[[], Any]:
    hints = type_.get("arg.properties", {}) if isinstance(type_, dict) else {}
    kind = type_["type"] if isinstance(type_, dict) else type_
    match hints:
        case {"options": options}:
            return lambda: chance.choice(options)
        case {"range": {"min": low, "max": high}} if kind in ("int", "long"):
            return lambda: chance.randrange(low, high)
        case {"range": {"min": low, "max": high}} if kind in ("float", "double"):
            return lambda: low + (high - low) * chance.random()
        case {"regex": pattern} if kind == "string":
            generator = rstr.Rstr(chance)
            return lambda: generator.xeger(pattern)
        case {"iteration": {"start": int(start)} as iteration} if kind in ("int", "long"):
            numbers = count(start, iteration.get("step", 1))
            return lambda: next(numbers)
    if kind == "boolean":
        return lambda: chance.random() < 0.5
    if kind == "enum":
        return lambda: chance.choice(type_["symbols"])
    raise ConfigError(
        f"Field '{field}' of type {kind} has no generator hint that fits. Give it 'arg.properties' with one of: "
        f"{', '.join(HINTS)}"
    )
