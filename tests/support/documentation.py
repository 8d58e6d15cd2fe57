"""Code blocks of documentation pages, and the outputs in them."""

from __future__ import annotations

import re

from tools.repository import PROJECT

REST = "…"
"""A placeholder for any text within a line, or for any number of lines if it is the whole line."""


def block(path: str, language: str, content: str) -> str:
    """Return the first code block of a page that is in a language and contains a text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", (PROJECT / path).read_text(), re.DOTALL | re.MULTILINE)
    return next(text for text in blocks if content in text)


def pattern(expected: str) -> str:
    """Return a regular expression for an output on a page."""
    lines = [
        "(?:.*\n)*?" if line == REST else ".*?".join(map(re.escape, line.split(REST))) + r" *\n"
        for line in expected.splitlines()
    ]
    return "".join(lines)
