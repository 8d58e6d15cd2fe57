"""Text as Markdown shows it literally: Dagster draws every description as Markdown, images and links included.

What a record, a schema, a header or another system says is escaped before it becomes part of a description. Values are
better shown as a table of Dagster's (assets/shown.py), which draws no Markdown.
"""

from __future__ import annotations

import re

_MARKUP = re.compile(r"([\\`*_\[\]<>#|~&!])")
_ESCAPED = re.compile(r"\\([\\`*_\[\]<>#|~&!])")


def escaped(text: str) -> str:
    """Escape what could begin an image, a link, HTML or a table (CommonMark, Backslash escapes)."""
    return _MARKUP.sub(r"\\\1", text)


def plain(text: str) -> str:
    """Return what `escaped` was given, for readers that draw no Markdown."""
    return _ESCAPED.sub(r"\1", text)
