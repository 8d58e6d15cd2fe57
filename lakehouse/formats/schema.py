"""What a schema registry says of a schema, and what its records look like as columns, whatever the format."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pyiceberg.types import StructType

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]
"""Schema types, as the registry spells them (Confluent Schema Registry API, `schemaType`)."""


@dataclass(frozen=True)
class RegisteredSchema:
    """One version of a subject.

    `references` are the schemas that `text` refers to, also indirectly, as (name it refers by, text), each after
    those it needs itself.
    """

    id: int
    text: str
    type: SchemaType = "AVRO"
    references: tuple[tuple[str, str], ...] = ()

    @property
    def characters(self) -> int:
        """The size of the text together with its references."""
        return len(self.text) + sum(len(text) for _, text in self.references)

    @property
    def fingerprint(self) -> str:
        """Tells two schemas apart, however a registry spaces them: 16 hexadecimal digits."""
        said = (self.type, *(part for reference in self.references for part in reference), self.text)
        return hashlib.sha256("".join(" ".join(said).split()).encode()).hexdigest()[:16]


BRANCH = "Avro union branch "
"""How the comment of a union's member begins, which the branch's name follows."""


@dataclass(frozen=True)
class Shape:
    """A schema's records as columns.

    `struct` has names, Iceberg types and comments in the schema's order; its field ids mean nothing and every field is
    optional. `former` are the names that a field had before or may have had, newest first, by its dotted path in
    `struct` (list elements are `element`, map values `value`): by them a rename is told from a drop and an add.
    """

    struct: StructType
    former: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
