"""What can go wrong, as types. Each message says what was found, what was left untouched and what to do about it."""

from __future__ import annotations

import re

from lakehouse.words import counted

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


class UnclearState(LakehouseError):
    """Going on could lose or duplicate data: stopped, with nothing changed, until somebody decides."""


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


class CommitConflict(LakehouseError):
    """Another writer published first: this batch was not published and may be tried again from the new offsets."""
