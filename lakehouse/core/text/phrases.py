"""Helpers for messages."""

import difflib
from collections.abc import Iterable


def pluralize(n: int, noun: str) -> str:
    """Return a count with its noun: `1 record`, `1,000 records`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'orders'?`, with a leading space; empty if nothing is similar."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""
