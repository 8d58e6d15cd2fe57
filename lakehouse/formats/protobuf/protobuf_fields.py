"""Fields of Protobuf messages, which columns and decoders have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "int", "long", "decimal", "float", "double", "boolean", "string", "binary", "enum", "struct", "timestamp", "json",
    "list", "map",
]  # fmt: skip


@dataclass(frozen=True)
class Field:
    """A field of a message, the element of a list, or the key or value of a map.

    `fields` are those of a struct, the one element of a list, or the key and value of a map. `symbols` are the numbers
    and names of an enum, which is `closed` if other numbers are not valid. `previous_names` are the names of its
    number in earlier versions. Fields with the same `oneof` exclude each other; a `required` one is in every message.
    """

    name: str
    number: int
    kind: Kind
    fields: tuple[Field, ...] = ()
    symbols: tuple[tuple[int, str], ...] = ()
    message: str = ""
    previous_names: tuple[str, ...] = ()
    closed: bool = False
    oneof: str = ""
    required: bool = False
