"""Schemas as registered, the prefix of messages that names one, and the columns of their records."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal
from uuid import UUID

if TYPE_CHECKING:
    from pyiceberg.types import StructType


SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]
"""Schema types, as the registry spells them (Confluent Schema Registry API, `schemaType`)."""


@dataclass(frozen=True)
class RegisteredSchema:
    """One version of a subject.

    `references` are the schemas that `text` refers to, directly or indirectly, as (reference name, text), in order of
    dependency. `guid` is empty if the registry did not return it.
    """

    id: int
    text: str
    type: SchemaType = "AVRO"
    references: tuple[tuple[str, str], ...] = ()
    guid: str = field(default="", compare=False)

    @property
    def characters(self) -> int:
        """Number of characters of the text and its references."""
        return len(self.text) + sum(len(text) for _, text in self.references)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the schema without its whitespace, which registries change: 16 hexadecimal digits."""
        parts = (self.type, *(part for reference in self.references for part in reference), self.text)
        return hashlib.sha256("".join(" ".join(parts).split()).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Guids:
    """Schema ids by GUID, and the reason why the registry does not look up others; empty if it does."""

    ids: Mapping[str, int] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class Shape:
    """Columns of a schema's records.

    `struct` has names, Iceberg types and comments in the schema's order; its field ids have no meaning and every field
    is optional. `previous_names` has the earlier names and aliases of a field, newest first, by its dotted path in
    `struct` (list elements are `element`, map values `value`); they distinguish a rename from a drop and an add.
    """

    struct: StructType
    previous_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


MAGIC = b"\x00"
FRAME_BYTES = 5
"""Length of the prefix: the zero byte and the id."""


HEADERS = {"value": "__value_schema_id", "key": "__key_schema_id"}
"""Headers in which serializers write the schema id of the value or key instead of in its prefix: the same bytes as the
prefix, or GUID_MAGIC and the GUID (Confluent, Wire format: schema ID in headers)."""

GUID_MAGIC, GUID_BYTES = b"\x01", 16

NO_ID = 2**32 - 1
"""Id that no schema has, in place of a GUID whose id is not known. The GUID follows it."""


def frame(id_: int) -> bytes:
    """Return the prefix of a message with this schema id."""
    return MAGIC + id_.to_bytes(FRAME_BYTES - len(MAGIC), "big")


def guid(message: bytes) -> str | None:
    """Return the GUID that follows NO_ID in a message; None if there is none."""
    digits = message[FRAME_BYTES : FRAME_BYTES + GUID_BYTES]
    return str(UUID(bytes=digits)) if schema_id(message) == NO_ID and len(digits) == GUID_BYTES else None


def schema_id(message: bytes) -> int | None:
    """Return the schema id of a message; None if it is not in the wire format."""
    if len(message) < FRAME_BYTES or not message.startswith(MAGIC):
        return None
    return int.from_bytes(message[len(MAGIC) : FRAME_BYTES], "big")
