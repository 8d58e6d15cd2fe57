"""Numbers and guesses in sentences."""

import difflib
from collections.abc import Iterable


def counted(n: int, noun: str) -> str:
    """`1 record`, `1,000 records`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'orders'?`, with the space before it; empty when nothing known is near."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""
