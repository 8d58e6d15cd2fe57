"""A schema registry in memory."""

from __future__ import annotations

import json
import math

from lakehouse.core.errors import Unreachable
from lakehouse.formats.schema import RegisteredSchema
from tests.simulation.world import World

SCHEMA = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": n, "type": ["null", "long"]} for n in ("id", "amount")]}
)
KEY = '"long"'

OWN, LATE, DERIVED = 1, 2, 3
"""Ids of the topic's schema, of one that a producer uses before it is registered under another subject, and of that of
derived messages."""


class MemoryRegistry:
    """The client protocol of resources.schema_registry.SchemaRegistry that the pipeline uses."""

    def __init__(self, world: World, *topics: str):
        self._world, self._topics = world, topics
        self.ids = {OWN}

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """Return the versions of a subject."""
        return self._call("versions", lambda: [RegisteredSchema(OWN, SCHEMA)])

    def by_id(self, id_: int, deadline: float = math.inf) -> RegisteredSchema | None:
        """Return a schema by its id; None if there is none."""
        return self._call("by_id", lambda: RegisteredSchema(id_, SCHEMA) if id_ in self.ids else None)

    def subjects(self, id_: int) -> frozenset[str]:
        """Return the subjects of a schema."""
        subjects = frozenset(f"{topic}-value" for topic in self._topics)
        return self._call("subjects", lambda: subjects if id_ == OWN else frozenset({"other-value"}))

    def register(self, subject: str, schema: str) -> int:
        """Register the schema of derived messages, and return its id."""
        return self._call("register", lambda: DERIVED)

    def not_found(self) -> frozenset[int]:
        """Return no ids: nothing is cached."""
        return frozenset()

    def _call(self, operation, effect):
        unreachable = lambda cause: Unreachable("The schema registry", "memory", "that it is up", cause)  # noqa: E731
        return self._world.call(f"registry.{operation}", effect, unreachable)
