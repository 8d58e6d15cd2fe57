"""Synthetic records of an Avro schema with generator hints, as Confluent's Datagen connector generates them.

Hints are the `arg.properties` of a field's type (Confluent, avro-random-generator, "Schema annotations"): `options`
(one of a list), `range` (`min` inclusive, `max` exclusive), `regex`, `iteration` (`start`, `step`).
"""

import io
import json
import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import fastavro
import rstr

from lakehouse.core.errors import ConfigError
from lakehouse.formats.schema import frame

HINTS = ("options", "range", "regex", "iteration")


def records(schema: str, seed: int | None = None) -> Iterator[dict[str, Any]]:
    """Generate endless records of the schema; the same ones for the same seed."""
    chance = random.Random(seed)  # noqa: S311 (synthetic records, repeatable by seed)
    fields = {field["name"]: _generator(field["name"], field["type"], chance) for field in json.loads(schema)["fields"]}
    while True:
        yield {name: make() for name, make in fields.items()}


def messages(schema: str, schema_id: int, key: str, seed: int | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Generate endless (key, value) messages: the key field as UTF-8, the record as Avro in Confluent's wire format."""
    parsed = fastavro.parse_schema(json.loads(schema))
    prefix = frame(schema_id)
    for record in records(schema, seed):
        body = io.BytesIO()
        body.write(prefix)
        fastavro.schemaless_writer(body, parsed, record)
        yield str(record[key]).encode(), body.getvalue()


def headers(generation: int, iteration: int) -> list[tuple[str, bytes]]:
    """Return the headers that the connector's only task adds to a record (DatagenTask.poll), as text.

    Args:
        generation: Number of earlier starts of the task.
        iteration: Number of records that it produced before.
    """
    numbers = {"task.generation": generation, "task.id": 0, "current.iteration": iteration}
    return [(name, str(number).encode()) for name, number in numbers.items()]


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
        f"Field '{field}' of type {kind} has no generator hint that fits. Add 'arg.properties' with one of: "
        f"{', '.join(HINTS)}"
    )
