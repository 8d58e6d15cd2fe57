"""What can go wrong, as types. Each message has the problem, its effect on data, and the remedy."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lakehouse.core.words import counted

_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]*@|(?<=token=)[^;&\s'\"]+", re.IGNORECASE)
"""User information of a URL, and a token in its parameters."""


def without_credentials(text: object) -> str:
    """Return a text without the credentials in the URLs that it quotes."""
    return _CREDENTIALS.sub("", str(text))


class LakehouseError(Exception):
    """The root of every error this project raises on purpose; the command line prints it without a traceback."""

    def __init__(self, problem: str, effect: str = "", remedy: str = ""):
        """Compose the message.

        Args:
            problem: What is wrong; the whole message where it has no parts.
            effect: What was changed, and what was left as it is.
            remedy: What to do about it, with a command where one exists.
        """
        super().__init__(". ".join(filter(None, (problem, effect, remedy))))
        self.problem, self.effect, self.remedy = problem, effect, remedy


class TransientError(LakehouseError):
    """It may pass by itself: the same work may be tried again later."""


class OutcomeUnknownError(LakehouseError):
    """The answer to a change was lost: it may have been made or not. Look it up before asking again."""


class ConfigError(LakehouseError):
    """lakehouse.yaml (or what it points to) cannot be used: names file, line, key and remedy."""


class SchemaError(LakehouseError):
    """A schema cannot become a table, or no longer fits the table there is."""


class DoesNotFit(SchemaError):
    """The newest schema would change the table in a way that its rows or readers cannot take."""


class Unreachable(TransientError):
    """A system does not answer."""

    def __init__(self, system: str, where: str, check: str, cause: object = None):
        """Compose the message, without the credentials that an address may carry.

        Args:
            system: Name of the system.
            where: Address that was tried.
            check: What the reader should check.
            cause: What the client reported.
        """
        where = without_credentials(where)
        reported = f": {without_credentials(cause)}" if cause else ""
        super().__init__(f"{system} does not answer at {where}{reported}", "Nothing was changed", f"Check {check}")
        self.system, self.where = system, where


class Refused(LakehouseError):
    """A system answers that it does not do what it was asked: the same request is refused again."""

    def __init__(self, system: str, where: str, refusal: str, check: str):
        """Compose the message, without the credentials that it may quote.

        Args:
            system: Name of the system.
            where: Address that was asked.
            refusal: The request and what the system answered to it.
            check: What the reader should check where a right may be missing.
        """
        super().__init__(
            f"{system} ({where}) refused {without_credentials(refusal)}",
            "Nothing was changed",
            f"Correct what it names, or check {check}",
        )


class Stalled(TransientError):
    """A system took work and stopped making progress, or stopped answering; the work was given up."""

    def __init__(self, system: str, where: str, symptom: str):
        """
        Args:
            system: The system's name.
            where: The address, never with credentials.
            symptom: What it did not do, and for how long.
        """
        super().__init__(
            f"{system} at {where} {symptom}",
            "The operation was cancelled, and nothing that it had not committed is kept",
            "Check that the server is up and has executors (`lakehouse status`, its log), then run it again; if the "
            "work is legitimate, raise 'stall_seconds' of that system in lakehouse.yaml",
        )
        self.system, self.where, self.symptom = system, where, symptom


class UnclearState(LakehouseError):
    """Going on could lose or duplicate data: stopped, with nothing changed, until somebody decides."""


class Paused(LakehouseError):
    """Somebody paused the topic."""

    def __init__(self, topic: str, state: str):
        """
        Args:
            topic: The entry of lakehouse.yaml.
            state: Since when, by whom and why it is paused.
        """
        super().__init__(
            f"Topic '{topic}' is {state}", "Nothing was taken", f"Continue with `lakehouse unpause {topic}`"
        )


class BadRecords(LakehouseError):
    """Records that cannot be decoded, in a topic whose policy is to stop before them."""

    def __init__(self, topic: str, count: int, first: list[tuple[int, int, str]]):
        """
        Parameters: the entry of lakehouse.yaml, how many records of the batch cannot be decoded, and the first of them
        as (partition, offset, reason).
        """
        places: dict[str, list[str]] = {}
        for partition, offset, reason in first:
            places.setdefault(reason, []).append(f"partition {partition} offset {offset}")
        named = "; ".join(f"{', '.join(records)}: {reason}" for reason, records in places.items())
        more = f", and {count - len(first):,} more" if count > len(first) else ""
        super().__init__(
            f"{counted(count, 'record')} of '{topic}' cannot be decoded ({named}{more})",
            "Nothing of the batch was published, and the position is as before",
            "If the reason can be mended, as by registering a schema, mend it and run again. Otherwise set "
            "'errors: log', which keeps such records as dead letters (`lakehouse redrive` decodes them again later), "
            "or 'errors: skip' to drop them, on the topic in lakehouse.yaml, reload and run again (docs/checks.md, "
            "When a record cannot be decoded); and mend the producer",
        )


class Unforeseen(LakehouseError):
    """An error that nobody foresaw, in work on a topic whose values must not be shown: its text may quote them."""

    def __init__(self, topic: str, error: Exception):
        """
        Args:
            topic: The entry of lakehouse.yaml.
            error: What happened; only its type and Spark's name for it are kept.
        """
        named = getattr(error, "getCondition", lambda: None)()
        what = f"{type(error).__name__} {named}" if named else type(error).__name__
        super().__init__(
            f"Work on topic '{topic}' ended with {what}",
            "Its text is not shown, since it may quote values of columns that are sensitive; what was published before "
            "stays",
            "Run it again; if it fails again, look into it with a copy of the topic without such values",
        )


class CommitConflict(TransientError):
    """Another writer published first: this batch was not published and may be tried again from the new offsets."""


class ClockSkew(LakehouseError):
    """The clocks of machines that write to a table differ: a commit would fail, or make the table unreadable."""

    def __init__(self, shows: str, danger: str):
        """
        Args:
            shows: What this machine's clock shows, and by how much that differs from what.
            danger: Why nothing is committed so.
        """
        super().__init__(
            f"This machine's clock shows {shows}",
            f"Nothing was committed, because {danger}",
            "Synchronize the clocks of all machines that write (`timedatectl`, `chronyc tracking`) and run it again",
        )


def reason(error: BaseException) -> str:
    """Say why something failed, in words that may be stored, shown and sent.

    Only the texts of this project's errors are written to hold no row and no secret. Of any other error the type is
    named, and whoever caught it logs the rest.
    """
    return str(error) if isinstance(error, LakehouseError) else f"{type(error).__name__} (unforeseen: see the log)"


def trace(error: BaseException) -> str:
    """List the lines of code that an unforeseen error came from, without its text; nothing for this project's own."""
    if isinstance(error, LakehouseError):
        return ""
    return f"{type(error).__name__}:\n{''.join(traceback.format_tb(error.__traceback__))}"


def is_transient(error: Exception) -> bool:
    """Return whether trying again may succeed: the error may pass by itself, or nobody foresaw it."""
    return isinstance(error, TransientError | Unforeseen) or not isinstance(error, LakehouseError)


@contextmanager
def translate(errors: Mapping[type[Exception], Callable[[Any], Exception | None]]) -> Iterator[None]:
    """Raise errors of this project in place of those of a client.

    Args:
        errors: By type of the client's error, most special first, what makes ours of it; None lets it pass.
    """
    try:
        yield
    except tuple(errors) as error:
        make = next(make for type_, make in errors.items() if isinstance(error, type_))
        if (translated := make(error)) is None:
            raise
        raise translated from error
