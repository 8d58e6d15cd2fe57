"""Packages of requirements.lock."""

import re
from dataclasses import dataclass
from pathlib import Path

from lakehouse.config.loader import PROJECT

LOCK = PROJECT / "requirements.lock"
_ENTRY = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>[^\s;\\]+)(?P<rest>[^\n]*\n(?:    --hash=[^\n]*\n?)*)", flags=re.MULTILINE
)


@dataclass(frozen=True)
class Wheel:
    """One package of the lock, with the hashes of all files that may be installed."""

    name: str
    version: str
    sha256: tuple[str, ...]


def wheels(lock: Path = LOCK) -> list[Wheel]:
    """Return the locked packages in the order of the file. A name may occur twice with different markers."""
    return [
        Wheel(match["name"], match["version"], tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})\b", match["rest"])))
        for match in _ENTRY.finditer(lock.read_text())
    ]
