"""The project's errors. Each message has the problem, its effect on data, and the remedy."""

import logging
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lakehouse.core.text import pluralize
from lakehouse.core.waiting import waiting_for

_LOG = logging.getLogger(__name__)
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]*@|(?<=token=)[^;&\s'\"]+", re.IGNORECASE)
"""User information of a URL, and a token in its parameters."""


def redact_credentials(text: object) -> str:
    """Return the text without the credentials of URLs in it."""
    return _CREDENTIALS.sub("", str(text))


class LakehouseError(Exception):
    """Base class of the project's errors; the command line prints them without a traceback."""

    def __init__(self, problem: str, effect: str = "", remedy: str = ""):
        """Compose the message.

        Args:
            problem: The problem, or a complete message.
            effect: Its effect on data.
            remedy: How to resolve it, with a command where one exists.
        """
        # Names in schemas may have unpaired surrogates, which cannot be written to files and terminals.
        texts = [text.encode(errors="backslashreplace").decode() for text in (problem, effect, remedy)]
        super().__init__(". ".join(filter(None, texts)))
        self.problem, self.effect, self.remedy = texts


class TransientError(LakehouseError):
    """A condition that may pass; the same work may be retried."""


class OutcomeUnknownError(LakehouseError):
    """The response to a change was lost: look up its outcome before repeating it."""


class ConfigError(LakehouseError):
    """lakehouse.yaml, or a file it refers to, is invalid; the message has file, line, key and remedy."""


class SchemaError(LakehouseError):
    """A schema cannot be mapped to a table, or is incompatible with the existing one."""


class IncompatibleSchema(SchemaError):
    """The newest schema is incompatible with the table's rows or readers."""


class IncompatibleSettings(IncompatibleSchema):
    """Settings in lakehouse.yaml are incompatible with the rows of the table, which were made with others."""

    def __init__(self, problem: str, effect: str, remedy: str, *, is_continuable: bool = False):
        """
        Args:
            is_continuable: Whether another table may continue this one with the declared settings.
        """
        super().__init__(problem, effect, remedy)
        self.is_continuable = is_continuable


class Unreachable(TransientError):
    """A system does not respond."""

    def __init__(
        self, system: str, where: str, check: str, cause: object = None, effect: str = "The call did not complete"
    ):
        """Compose the message, without credentials in addresses.

        Args:
            check: What the operator should check.
            effect: The effect of the call, and of the steps before it.
        """
        where = redact_credentials(where)
        reported = f": {redact_credentials(cause)}" if cause else ""
        super().__init__(f"{system} does not answer at {where}{reported}", effect, f"Check {check}")
        self.system, self.where = system, where


class RequestRejected(LakehouseError):
    """A system rejected a request; repeating the request would not help."""

    def __init__(self, system: str, where: str, refusal: str, check: str):
        """Compose the message, without credentials.

        Args:
            refusal: The request and the system's response.
            check: What the operator should check where a permission may be missing.
        """
        super().__init__(
            f"{system} ({where}) refused {redact_credentials(refusal)}",
            "The call changed nothing",
            f"Correct the reported cause, or check {check}",
        )


class Stalled(TransientError):
    """A system accepted work and then stopped making progress or responding; the work was cancelled."""

    def __init__(self, system: str, where: str, symptom: str):
        """
        Args:
            symptom: What did not happen, and for how long.
        """
        super().__init__(
            f"{system} at {where} {symptom}",
            "The operation was cancelled, and nothing that it had not committed is kept",
            "Check that the server is up and has executors (`lakehouse status`, its log), then retry the run or "
            "command; if the work is legitimate, raise 'stall_seconds' of that system in lakehouse.yaml",
        )
        self.system, self.where, self.symptom = system, where, symptom


class UnclearState(LakehouseError):
    """Continuing could lose or duplicate data, so the work stopped; an operator has to decide."""


class NewerFormat(UnclearState):
    """A newer release wrote a format that this one does not read; only an upgrade resolves it."""


class Paused(LakehouseError):
    """The topic is paused by an operator."""

    def __init__(self, topic: str, state: str):
        """
        Args:
            state: Since when, by whom and why it is paused.
        """
        super().__init__(
            f"Topic '{topic}' is {state}", "Nothing was ingested", f"Run `lakehouse unpause {topic}` to continue"
        )


class Yielded(TransientError):
    """A command waits to publish in the table, so that no batch begins."""

    def __init__(self, topic: str, state: str):
        """
        Args:
            state: By which command the table is reserved, and for how long.
        """
        super().__init__(
            f"The table of '{topic}' is {state}",
            "No batch was begun",
            "The topic continues when the command ends, and at that time if it was killed",
        )


class BadRecords(LakehouseError):
    """Records cannot be decoded, and the topic's policy is to stop."""

    def __init__(self, topic: str, count: int, first: list[tuple[int, int, str]]):
        """
        Args:
            count: Number of records of the batch that cannot be decoded.
            first: The first of them, as (partition, offset, reason).
        """
        more = f", and {count - len(first):,} more" if count > len(first) else ""
        super().__init__(
            f"{pluralize(count, 'record')} of '{topic}' cannot be decoded ({by_reason(first)}{more})",
            "Nothing of the batch was published, and the position is unchanged",
            "Fix the cause, for example by registering the schema, and retry the run or command; or set 'errors: "
            "log' on the topic in lakehouse.yaml to keep such records as dead letters (`lakehouse redrive` decodes "
            "them again), or 'errors: skip' to drop them (docs/rejected-data.md, When a record cannot be decoded)",
        )


class UnexpectedError(LakehouseError):
    """Replaces an unexpected error in work on a topic with sensitive columns, since its text may quote their values."""

    def __init__(self, topic: str, error: Exception):
        """
        Args:
            error: The original error; only its type and Spark's error condition are kept.
        """
        condition = getattr(error, "getCondition", lambda: None)()
        name = f"{type(error).__name__} {condition}" if condition else type(error).__name__
        super().__init__(
            f"Work on topic '{topic}' failed with {name}",
            "Its text is not shown, since it may quote values of sensitive columns; published data is unaffected",
            "Retry the run or command; if it fails again, reproduce it with a copy of the topic without such values",
        )


class TransformFailed(LakehouseError):
    """A transform of a derived topic cannot compute its rows. The same code would fail again."""


class CommitConflict(TransientError):
    """Another writer published first; the batch was not published and may be retried from the new offsets."""


class ClockSkew(LakehouseError):
    """The clocks of a table's writers differ: a commit would fail, or make the table unreadable."""

    def __init__(self, shows: str, danger: str):
        """
        Args:
            shows: This machine's time, and its difference from which other clock.
            danger: What a commit would cause.
        """
        super().__init__(
            f"This machine's clock shows {shows}",
            f"Nothing was committed, because {danger}",
            "Synchronize the clocks of all machines that write (`timedatectl`, `chronyc tracking`) and retry the run "
            "or command",
        )


def by_reason(faults: Sequence[tuple[int, int, str]]) -> str:
    """Return faults of records, each given as (partition, offset, reason), as text."""
    places: dict[str, list[str]] = {}
    for partition, offset, fault in faults:
        places.setdefault(fault, []).append(f"partition {partition} offset {offset}")
    return "; ".join(f"{', '.join(records)}: {fault}" for fault, records in places.items())


def reason(error: BaseException) -> str:
    """Return why something failed, as text that is safe to store, display and send.

    Only messages of this project's errors are known to contain no row and no secret. Of any other error only the type
    is returned; the caller logs the rest.
    """
    return str(error) if isinstance(error, LakehouseError) else f"{type(error).__name__} (unexpected: see the log)"


def failing_system(error: BaseException) -> str:
    """Return the system that does not work, which all of its users report; empty if the error has another cause."""
    return f"{error.system} at {error.where}" if isinstance(error, Unreachable | Stalled) else ""


def trace(error: BaseException) -> str:
    """Return the stack trace of an unexpected error without its text; empty for this project's errors."""
    if isinstance(error, LakehouseError):
        return ""
    return f"{type(error).__name__}:\n{''.join(traceback.format_tb(error.__traceback__))}"


def logged_reason(failure: str, error: BaseException) -> str:
    """Return the reason of an error, and log the stack trace of an unexpected one without its text.

    Args:
        failure: What failed, as a sentence without a full stop.
    """
    if where := trace(error):
        _LOG.error("%s. %s", failure, where, extra={"error": type(error).__name__})
    return reason(error)


def is_transient(error: Exception) -> bool:
    """Return whether a retry may succeed: the error is transient or unexpected."""
    return isinstance(error, TransientError | UnexpectedError) or not isinstance(error, LakehouseError)


@contextmanager
def translate(
    errors: Mapping[type[Exception], Callable[[Any], Exception | None]], *, show_cause: bool = True, awaited: str = ""
) -> Iterator[None]:
    """Translate a client's errors to errors of this project.

    Args:
        errors: Converters by type of the client's error, most specific first; one that returns None re-raises.
        show_cause: False where the client's error may quote a secret.
        awaited: The system that the body waits for, such as `Kafka`.
    """
    try:
        with waiting_for(awaited):
            yield
    except tuple(errors) as error:
        convert = next(convert for type_, convert in errors.items() if isinstance(error, type_))
        if (translated := convert(error)) is None:
            raise
        raise translated from (error if show_cause else None)


@dataclass(frozen=True)
class Diagnostic:
    """The result of one inspection."""

    subject: str
    ok: bool
    observation: str
    remedy: str = ""
    """Resolves the problem if not `ok`."""
