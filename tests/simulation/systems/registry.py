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
RENAMED = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": ["null", "long"]},
            {"name": "price", "type": ["null", "long"], "aliases": ["amount"]},
        ],
    }
)
"""The same schema, with another name of a field."""

TEXT = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": ["null", "long"]}, {"name": "amount", "type": ["null", "string"]}],
    }
)
"""A schema that does not fit the table of the others."""

REFUND = json.dumps({"type": "record", "name": "Refund", "fields": [{"name": "id", "type": ["null", "long"]}]})
"""The schema of another record type."""

OWN, LATE, DERIVED, NEXT, OTHER, REFUNDED = 1, 2, 3, 4, 5, 6
SCHEMAS = {OWN: SCHEMA, LATE: SCHEMA, NEXT: RENAMED, OTHER: TEXT, REFUNDED: REFUND}
"""Ids of the topic's schema, of one that a producer uses before it is registered under another subject, of that of
derived messages, of the topic's next schema, of one that does not fit its table, and of that of another type."""


class MemoryRegistry:
    """The client protocol resources.protocols.RegistryClient.

    Attributes:
        ids: The ids of all schemas.
        own_ids: Those of the topic's subject.
    """

    def __init__(self, world: World, *topics: str):
        self._world, self._topics = world, topics
        self.ids, self.own_ids = {OWN}, [OWN]
        self._versions = [RegisteredSchema(OWN, SCHEMA)]
        self._keys: set[str] = set()

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """Return the versions of a subject. Keys of other than derived messages are text, without a schema."""
        is_known = not subject.endswith("-key") or subject in self._keys
        return self._call("versions", lambda: list(self._versions) if is_known else [])

    def rename_field(self) -> None:
        """Register the topic's next schema, in which a field has another name."""
        if NEXT not in self.ids:
            self.ids.add(NEXT)
            self._versions.append(RegisteredSchema(NEXT, RENAMED))
            self.own_ids.append(NEXT)
        self._world.record("producer: registered a schema with a renamed field")

    def change_type(self) -> None:
        """Register a schema of the topic in which a field has another type."""
        if OTHER not in self.ids:
            self.ids.add(OTHER)
            self._versions.append(RegisteredSchema(OTHER, TEXT))
            self.own_ids.append(OTHER)
        self._world.record("producer: registered a schema with another type")

    def by_id(self, id_: int, deadline: float = math.inf) -> RegisteredSchema | None:
        """Return a schema by its id; None if there is none."""
        return self._call("by_id", lambda: RegisteredSchema(id_, SCHEMAS[id_]) if id_ in self.ids else None)

    def id_of(self, guid: str, deadline: float = math.inf) -> int | None:
        """Return no id: the records have no headers."""
        return None

    def subjects(self, id_: int) -> frozenset[str]:
        """Return the subjects of a schema."""
        subjects = frozenset(f"{topic}-value" for topic in self._topics)
        return self._call("subjects", lambda: frozenset({"other-value"}) if id_ in (LATE, REFUNDED) else subjects)

    def register(self, subject: str, schema: str) -> int:
        """Register the schema of derived messages, and return its id."""

        def effect() -> int:
            if subject.endswith("-key"):
                self._keys.add(subject)
            return DERIVED

        return self._call("register", effect)

    def not_found(self) -> frozenset[int]:
        """Return no ids: nothing is cached."""
        return frozenset()

    def _call(self, operation, effect):
        unreachable = lambda cause: Unreachable("The schema registry", "memory", "that it is up", cause)  # noqa: E731
        return self._world.call(f"registry.{operation}", effect, unreachable)
