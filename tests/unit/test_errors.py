"""The project's errors: parts of their messages, transience, and translation of clients' errors."""

import traceback

import pytest

from lakehouse.core.errors import (
    BadRecords,
    ClockSkew,
    CommitConflict,
    ConfigError,
    LakehouseError,
    OutcomeUnknownError,
    Paused,
    RequestRejected,
    Stalled,
    TransientError,
    UnexpectedError,
    Unreachable,
    is_transient,
    translate,
)
from resources.confluent.api_client import Forbidden, RateLimited
from resources.iceberg.rest_catalog import IncompleteReplacement

UNREACHABLE = Unreachable("Kafka", "there:9092", "the network", "refused")
COMPOSED = [
    UNREACHABLE,
    RequestRejected("Glue", "region x", "GetTable: AccessDenied", "the permissions"),
    Stalled("Spark", "there", "made no progress for 5 s"),
    Paused("orders", "paused since yesterday"),
    BadRecords("orders", 2, [(0, 1, "no such schema")]),
    UnexpectedError("orders", ValueError("secret")),
    ClockSkew("12:00", "Iceberg refuses it"),
    IncompleteReplacement("ns.t", "there", UNREACHABLE),
]


@pytest.mark.parametrize("error", COMPOSED, ids=lambda error: type(error).__name__)
def test_composed_message_has_problem_effect_and_remedy(error):
    parts = [error.problem, error.effect, error.remedy]
    assert all(parts) and str(error) == ". ".join(parts)


def test_parts_of_unreachable_are_separate():
    assert UNREACHABLE.problem == "Kafka does not answer at there:9092: refused"
    assert (UNREACHABLE.effect, UNREACHABLE.remedy) == ("The call did not complete", "Check the network")


def test_message_without_parts_is_the_problem():
    error = LakehouseError("It failed. Nothing was changed. Run it again")
    assert (error.problem, error.effect, error.remedy) == (str(error), "", "")


@pytest.mark.parametrize(
    "error",
    [
        UNREACHABLE,
        Stalled("Spark", "there", "stopped"),
        CommitConflict("Another writer was first"),
        RateLimited("too many calls"),
        UnexpectedError("orders", ValueError()),
        ValueError("unexpected"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_is_transient_passing_condition_is_true(error):
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        LakehouseError("wrong"),
        ConfigError("wrong"),
        RequestRejected("Glue", "x", "y", "z"),
        Forbidden("no role"),
        OutcomeUnknownError("The response was lost"),
        Paused("orders", "paused"),
        COMPOSED[4],
        COMPOSED[6],
    ],
    ids=lambda error: type(error).__name__,
)
def test_is_transient_permanent_error_is_false(error):
    assert not is_transient(error) and not isinstance(error, TransientError)


@pytest.mark.parametrize(
    ("error", "expected"), [(FileNotFoundError("x"), "no file x"), (PermissionError("y"), "system y")]
)
def test_translate_first_matching_type_is_used(error, expected):
    errors = {
        FileNotFoundError: lambda error: LakehouseError(f"no file {error}"),
        OSError: lambda error: LakehouseError(f"system {error}"),
    }
    with pytest.raises(LakehouseError, match=expected) as raised, translate(errors):
        raise error
    assert raised.value.__cause__ is error


def test_translate_without_cause_shows_message_only():
    errors = {OSError: lambda _: LakehouseError("refused")}
    with pytest.raises(LakehouseError) as raised, translate(errors, show_cause=False):
        raise OSError("hidden")
    assert "hidden" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("error", [OSError("not for us"), KeyError("another type")])
def test_translate_other_error_passes_unchanged(error):
    with pytest.raises(type(error)) as raised, translate({OSError: lambda _: None}):
        raise error
    assert raised.value is error
