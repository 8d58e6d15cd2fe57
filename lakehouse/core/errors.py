"""What can go wrong, as types. Each message says what was found, what was left untouched and what to do about it."""

from __future__ import annotations

import re
import traceback

from lakehouse.core.words import counted

_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]*@|(?<=token=)[^;&\s'\"]+", re.IGNORECASE)
"""User information of a URL, and a token in its parameters."""


def without_credentials(text: object) -> str:
    """Return a text without the credentials in the URLs that it quotes."""
    return _CREDENTIALS.sub("", str(text))


class LakehouseError(Exception):
    """The root of every error this project raises on purpose; the command line prints it without a traceback."""


class ConfigError(LakehouseError):
    """lakehouse.yaml (or what it points to) cannot be used: names file, line, key and remedy."""


class SchemaError(LakehouseError):
    """A schema cannot become a table, or no longer fits the table there is."""


class DoesNotFit(SchemaError):
    """The newest schema would change the table in a way that its rows or readers cannot take."""


class Unreachable(LakehouseError):
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
        super().__init__(f"{system} does not answer at {where}{reported}. Nothing was changed. Check {check}")
        self.system, self.where = system, where


class Refused(LakehouseError):
    """A system answers that it does not do what it was asked: the same request is refused again."""

    def __init__(self, system: str, where: str, said: str, check: str):
        """Compose the message, without the credentials that it may quote.

        Args:
            system: Name of the system.
            where: Address that was asked.
            said: The request and what the system said of it.
            check: What the reader should check where a right may be missing.
        """
        super().__init__(
            f"{system} ({where}) refused {without_credentials(said)}. Nothing was changed. Correct what it names, or "
            f"check {check}"
        )


class Stalled(LakehouseError):
    """A system took work and stopped making progress, or stopped answering; the work was given up."""

    def __init__(self, system: str, where: str, problem: str):
        """
        Args:
            system: The system's name.
            where: The address, never with credentials.
            problem: What it did not do, and for how long.
        """
        super().__init__(
            f"{system} at {where} {problem}. The operation was cancelled, and nothing that it had not committed is "
            f"kept. Check that the server is up and has executors (`lakehouse status`, its log), then run it again; "
            f"if the work is legitimate, raise 'stall_seconds' of that system in lakehouse.yaml"
        )
        self.system, self.where, self.problem = system, where, problem


class UnclearState(LakehouseError):
    """Going on could lose or duplicate data: stopped, with nothing changed, until somebody decides."""


class Paused(LakehouseError):
    """Somebody paused the topic."""

    def __init__(self, topic: str, said: str):
        """
        Args:
            topic: The entry of lakehouse.yaml.
            said: Since when, by whom and why, as words.
        """
        super().__init__(f"Topic '{topic}' is {said}. Nothing was taken. Continue with `lakehouse unpause {topic}`")


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
        named = "; ".join(f"{', '.join(found)}: {reason}" for reason, found in places.items())
        more = f", and {count - len(first):,} more" if count > len(first) else ""
        super().__init__(
            f"{counted(count, 'record')} of '{topic}' cannot be decoded ({named}{more}). Nothing of the batch was "
            f"published, and the position is as before. If the reason can be mended, as by registering a schema, mend "
            f"it and run again. Otherwise set 'errors: log', which keeps such records as dead letters (`lakehouse "
            f"redrive` decodes them again later), or 'errors: skip' to drop them, on the topic in lakehouse.yaml, "
            f"reload and run again (docs/checks.md, When a record cannot be decoded); and mend the producer"
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
            f"Work on topic '{topic}' ended with {what}. Its text is not shown, since it may quote values of columns "
            f"that are sensitive; what was published before stays. Run it again; if it fails again, look into it with "
            f"a copy of the topic without such values"
        )


class CommitConflict(LakehouseError):
    """Another writer published first: this batch was not published and may be tried again from the new offsets."""


class ClockSkew(LakehouseError):
    """The clocks of machines that write to a table differ: a commit would fail, or make the table unreadable."""

    def __init__(self, shows: str, effect: str):
        """
        Args:
            shows: What this machine's clock shows, and by how much that differs from what.
            effect: Why nothing is committed so.
        """
        super().__init__(
            f"This machine's clock shows {shows}. Nothing was committed, because {effect}. Synchronize the clocks of "
            f"all machines that write (`timedatectl`, `chronyc tracking`) and run it again"
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


HEALS = (Unreachable, Stalled, CommitConflict, Unforeseen)


def heals(error: Exception) -> bool:
    """Return whether trying again may succeed: a system is not reachable, or nobody foresaw what happened."""
    return isinstance(error, HEALS) or not isinstance(error, LakehouseError)
