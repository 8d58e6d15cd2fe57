"""Results of `lakehouse doctor`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Diagnostic:
    """The result of one inspection."""

    subject: str
    ok: bool
    observation: str
    remedy: str = ""
    """Resolves the problem if not `ok`."""
