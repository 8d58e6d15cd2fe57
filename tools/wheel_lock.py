"""Read requirements.lock."""

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
    """One package of the lock: any of its hashes is that of a file which may be installed."""

    name: str
    version: str
    sha256: tuple[str, ...]


def wheels(lock: Path = LOCK) -> list[Wheel]:
    """Return the locked packages in the order of the file. A name may occur twice, with other markers."""
    return [
        Wheel(found["name"], found["version"], tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})\b", found["rest"])))
        for found in _ENTRY.finditer(lock.read_text())
    ]
