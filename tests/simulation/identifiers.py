"""Random identifiers without a call to the operating system for each: a schedule needs hundreds."""

from __future__ import annotations

import uuid
from random import getrandbits
from typing import Any
from uuid import UUID, SafeUUID

import pyiceberg.table.metadata

VERSION_4 = 0x8000 << 48 | 4 << 76
"""The bits of the variant and the version (RFC 4122, 4.4)."""

RANDOM_BITS = ~(0xC000 << 48 | 0xF000 << 64)
UNKNOWN = SafeUUID.unknown


def uuid4() -> UUID:
    """Return a random UUID."""
    identifier = object.__new__(UUID)
    object.__setattr__(identifier, "int", getrandbits(128) & RANDOM_BITS | VERSION_4)
    object.__setattr__(identifier, "is_safe", UNKNOWN)
    return identifier


IDENTIFIERS: dict[Any, dict[str, Any]] = {
    uuid: {"uuid4": uuid4},
    pyiceberg.table.metadata: {"_generate_snapshot_id": lambda: getrandbits(63)},
}
"""Functions that return a random number, and nothing else."""
