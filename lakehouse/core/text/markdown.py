"""Escape text for Markdown: Dagster renders every description as Markdown, including images and links.

Text from records, schemas, headers and other systems is escaped before it becomes part of a description. Dagster's
tables (assets/results.py) render no Markdown, so they suit values better.
"""

import re

_MARKUP = re.compile(r"([\\`*_\[\]<>#|~&!])")
_ESCAPED = re.compile(r"\\([\\`*_\[\]<>#|~&!])")


def escaped(text: str) -> str:
    """Escape characters that could start an image, a link, HTML or a table (CommonMark, Backslash escapes)."""
    return _MARKUP.sub(r"\\\1", text)


def plain(text: str) -> str:
    """Undo `escaped`, for output that does not render Markdown."""
    return _ESCAPED.sub(r"\1", text)
