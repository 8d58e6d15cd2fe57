"""Results of `lakehouse doctor`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Diagnostic:
    """The result of one inspection."""

    subject: str
    ok: bool
    observation: str
    remedy: str = ""
    """Resolves the problem if not `ok`."""
