"""Regular expressions in the syntax of RE2, which match a value in time that is linear in its length.

Java's engine, which Spark's RLIKE uses, calls itself for each repetition of a group: a long value ends the server of
all topics by a stack overflow, and a short one can occupy it for hours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_BYTES = 1 << 20
"""Length in UTF-8 beyond which a value does not match, whatever the pattern is: time also grows with the pattern."""

_PARTS = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\[:\^?\w+:\]|&&|.", re.DOTALL)
"""An escaped text or character, a named class, Java's operator of intersection, or any other character."""


@dataclass(frozen=True)
class Matches:
    """The condition that the whole text of a column matches a pattern."""

    column: str
    pattern: str

    @property
    def whole(self) -> str:
        """The pattern, anchored at both ends."""
        return rf"\A(?:{self.pattern})\z"


def has_nested_class(pattern: str) -> bool:
    """Return whether a pattern has Java's union or intersection of classes, such as `[a-z&&[^b]]`.

    RE2 accepts them as a class of these characters, so the pattern would silently have another meaning.
    """
    members: list[str] | None = None
    for part in _PARTS.findall(pattern):
        if members is None:
            members = [] if part == "[" else None
        elif part in ("[", "&&"):
            return True
        elif part == "]" and members not in ([], ["^"]):
            # As the first member, it is a character.
            members = None
        else:
            members.append(part)
    return False
