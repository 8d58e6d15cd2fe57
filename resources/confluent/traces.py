"""Messages of failed connectors, of Flink and of Tableflow, shortened and without credentials."""

from __future__ import annotations

import re

from lakehouse.core.errors import redact_credentials

LONGEST = 300
"""Maximum number of characters in a message."""

_FRAME = re.compile(r"\s*(at\s|\.\.\.\s\d+\s(more|common frames))")
"""A frame of a Java stack trace."""

_SECRET = re.compile(
    r"""(?i)([\w.-]*(?:password|passwd|secret|token|credentials?|api[._-]?key|user[._-]?info)\w*["']?\s*[=:]\s*)"""
    r"""("[^"]*"|'[^']*'|[^\s,;&)}\]]+)"""
)
"""A setting with the name of a secret, and its value."""

_AUTHORIZATION = re.compile(r"(?i)\b(basic|bearer)\s+[\w.~+/=-]{8,}")
"""The credentials of an HTTP header."""


def shortened(trace: str) -> str:
    """Return the messages of a stack trace in one line, without frames and without values of secret settings."""
    messages = " ".join(line.strip() for line in trace.splitlines() if line.strip() and not _FRAME.match(line))
    text = _SECRET.sub(r"\1…", _AUTHORIZATION.sub(r"\1 …", redact_credentials(messages)))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
