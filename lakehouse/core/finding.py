"""What a doctor finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    ok: bool
    found: str
    remedy: str = ""
    """What to do when it is not ok."""
