"""Text of messages and descriptions.

Dagster renders every description as Markdown, including images and links, so text from records, schemas, headers and
other systems is escaped before it becomes part of one. Dagster's tables (assets/results.py) render no Markdown, so
they suit values better.
"""

import difflib
import re
from collections.abc import Iterable


def pluralize(n: int, noun: str) -> str:
    """Return a count with its noun: `1 record`, `1,000 records`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


SHORT, SIMILAR = 4, 0.875
"""The most characters of names that are compared as a whole, and the similarity of longer ones, up to 1."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'orders'?`, with a leading space; empty if nothing is similar."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


MOST_NAMES = 5
"""The most names that a message lists."""


def nearest_names(word: str, known: Iterable[str]) -> str:
    """Return `orders, users and 3 more`: names that exist, the nearest first; empty if there are none."""
    names = sorted(known, key=lambda name: difflib.SequenceMatcher(None, word, name).ratio(), reverse=True)
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def similar_name(name: str, known: Iterable[str]) -> str | None:
    """Return the name that another one misspells: with other case or separators, or at most an eighth of it differs."""
    for other in known:
        first, second = (re.sub(r"[^0-9a-z]", "", text.casefold()) for text in (name, other))
        ratio = difflib.SequenceMatcher(None, first, second).ratio()
        if first == second or (len(first) > SHORT and ratio >= SIMILAR):
            return other
    return None


_MARKUP = re.compile(r"([\\`*_\[\]<>#|~&!])")
_ESCAPED = re.compile(r"\\([\\`*_\[\]<>#|~&!])")


def escaped(text: str) -> str:
    """Escape characters that could start an image, a link, HTML or a table (CommonMark, Backslash escapes)."""
    return _MARKUP.sub(r"\\\1", text)


def plain(text: str) -> str:
    """Undo `escaped`, for output that does not render Markdown."""
    return _ESCAPED.sub(r"\1", text)
