"""Defaults of Avro fields in Avro's binary encoding, as if a writer had written them.

Source: Apache Avro 1.12 specification, Complex Types (field default values) and Binary encoding.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lakehouse.formats.avro.avro_types import NULL, Type, accepts, default_branch

if TYPE_CHECKING:
    from pydantic import JsonValue


def encoded(type_: Type, default: JsonValue) -> bytes:
    """Return the encoding of a default.

    Args:
        type_: The type of the field.
        default: The default in JSON.

    Raises:
        ValueError: It is not a value of the branch to which Avro for Java assigns it.
    """
    if type_.kind == "union":
        branch = default_branch(type_, default) or NULL
        return _long(type_.inner.index(branch)) + encoded(branch, default)
    if not accepts(type_, default):
        raise ValueError(f"is no {type_.kind}")
    value: Any = default
    match type_.kind:
        case "boolean":
            return bytes([value])
        case "int" | "long":
            return _long(value)
        case "float" | "double":
            return struct.pack("<f" if type_.kind == "float" else "<d", value)
        case "string":
            return _sized(value.encode())
        case "bytes":
            return _sized(value.encode("latin-1"))
        case "fixed":
            return bytes(value.encode("latin-1"))
        case "enum":
            return _long(type_.symbols.index(value))
        case "array":
            return _block(encoded(type_.inner[0], item) for item in value)
        case "map":
            return _block(_sized(key.encode()) + encoded(type_.inner[0], item) for key, item in value.items())
        case "record":
            defaults = {field.name: json.loads(field.default) for field in type_.fields if field.default is not None}
            return b"".join(encoded(field.type, (defaults | value)[field.name]) for field in type_.fields)
    return b""


def _long(number: int) -> bytes:
    """Return a number of 64 bits in the zig-zag encoding of variable length."""
    zigzag, result = (number << 1) ^ (number >> 63), bytearray()
    while zigzag > 0x7F:
        result.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*result, zigzag])


def _sized(data: bytes) -> bytes:
    return _long(len(data)) + data


def _block(items: Iterable[bytes]) -> bytes:
    encodings = [*items]
    return (_long(len(encodings)) + b"".join(encodings) if encodings else b"") + _long(0)
