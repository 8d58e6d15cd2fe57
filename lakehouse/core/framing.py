"""Confluent's wire format: a zero byte and a 4-byte schema id precede each message."""

MAGIC = b"\x00"
FRAME_BYTES = 5
"""Length of the prefix: the zero byte and the id."""


def frame(id_: int) -> bytes:
    """Return the prefix of a message with this schema id."""
    return MAGIC + id_.to_bytes(FRAME_BYTES - len(MAGIC), "big")


def schema_id(message: bytes) -> int | None:
    """Return the schema id of a message; None if it is not in the wire format."""
    if len(message) < FRAME_BYTES or not message.startswith(MAGIC):
        return None
    return int.from_bytes(message[len(MAGIC) : FRAME_BYTES], "big")
