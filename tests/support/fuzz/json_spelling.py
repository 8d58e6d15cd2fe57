"""JSON texts of values, with the spelling of each number and of text."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any, Literal

Spelling = Literal["utf-8", "ascii", "escaped"]


@dataclass(frozen=True)
class Spelled:
    """A value with its spelling in the message."""

    text: str


@dataclass(frozen=True)
class Members:
    """An object with its members, whose names may be repeated."""

    items: tuple[tuple[str, Any], ...]


def dumped(value: Any, spelling: Spelling = "utf-8") -> str:
    """Return the JSON text of a value, with the given spellings of numbers and one of text and names."""
    match value:
        case Spelled():
            return value.text
        case Members():
            items = (f"{dumped(name, spelling)}:{dumped(member, spelling)}" for name, member in value.items)
            return f"{{{','.join(items)}}}"
        case dict():
            return dumped(Members(tuple(value.items())), spelling)
        case list():
            return f"[{', '.join(dumped(item, spelling) for item in value)}]"
        case str() if spelling == "escaped":
            units = struct.unpack(f">{len(data := value.encode('utf-16-be')) // 2}H", data)
            return '"' + "".join(f"\\u{unit:04x}" for unit in units) + '"'
    return json.dumps(value, ensure_ascii=spelling == "ascii")


def framed(text: bytes) -> bytes:
    """Return a message in the Confluent wire format."""
    return struct.pack(">bI", 0, 1) + text
