"""The causes of present failures: each is reported once when it begins, and once when it has ended."""

import re
from collections.abc import Mapping

SYSTEM = "system"
"""Metadata of a failed check or step: the system whose failure is the cause."""
MAX_FAILING = 1000
"""Maximum number of failing subjects that are remembered. Beyond it, the oldest are forgotten and alert again."""
MAX_CHARACTERS = 200
"""Maximum length of a cause, because Dagster stores the cursor of each tick."""

_VARYING = re.compile(r"\([^()]*\)|\d[\d.,:]*")
"""Details and numbers of a reason, such as offsets, which differ between failures of one cause."""


class Causes:
    """The causes of failing subjects, such as checks and steps.

    Several subjects may fail because of one system: that is one cause, which ends with the last of them.
    """

    def __init__(self, failing: Mapping[str, str]) -> None:
        """
        Args:
            failing: The cause of each failing subject.
        """
        self.failing = dict(failing)

    def begins(self, subject: str, cause: str) -> bool:
        """Return whether the failure of a subject has a cause that is not known yet."""
        return self.failing.get(subject) != cause and cause not in self.failing.values()

    def fail(self, subject: str, cause: str) -> str:
        """Note the cause of a failing subject, and return the previous one if that has ended; else an empty text."""
        ended = "" if self.failing.get(subject) == cause else self.end(subject)
        self.failing.pop(subject, None)
        self.failing = dict([*self.failing.items(), (subject, cause)][-MAX_FAILING:])
        return ended

    def end(self, subject: str) -> str:
        """Note that a subject works, and return its cause if no other subject fails because of it."""
        cause = self.failing.pop(subject, "")
        return "" if cause in self.failing.values() else cause


def cause_of(subject: str, reason: str, system: str = "") -> str:
    """Return the identity of a cause, as text for its end.

    Args:
        subject: The failing subject.
        reason: The reason of the failure.
        system: The system whose failure is the cause for each of its users; empty if the subject is the cause.
    """
    if system:
        return f"{system} fails"[:MAX_CHARACTERS]
    return ": ".join(filter(None, [subject, " ".join(_VARYING.sub("", reason).split())]))[:MAX_CHARACTERS]
