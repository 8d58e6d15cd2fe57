"""Confluent's wire format: a zero byte and a 4-byte schema id come before each message."""

from __future__ import annotations

MAGIC = b"\x00"
FRAME_BYTES = 5
"""What stands before the body: the zero byte and the id."""


def frame(id_: int) -> bytes:
    """Return what stands before the body of a message with this schema id."""
    return MAGIC + id_.to_bytes(FRAME_BYTES - len(MAGIC), "big")


def schema_id(message: bytes) -> int | None:
    """Return the schema id that a message names; None where it is not in the format."""
    if len(message) < FRAME_BYTES or not message.startswith(MAGIC):
        return None
    return int.from_bytes(message[len(MAGIC) : FRAME_BYTES], "big")
