"""Errors as programs use them: their parts, what may pass by itself, and how clients' errors become ours."""

import pytest

from lakehouse.core.errors import (
    BadRecords,
    ClockSkew,
    CommitConflict,
    ConfigError,
    LakehouseError,
    OutcomeUnknownError,
    Paused,
    Refused,
    Stalled,
    TransientError,
    Unforeseen,
    Unreachable,
    is_transient,
    translate,
)
from resources.confluent.errors import Limited
from resources.confluent.errors import Refused as RefusedByConfluent
from resources.rest_catalog import HalfReplaced

UNREACHABLE = Unreachable("Kafka", "there:9092", "the network", "refused")
COMPOSED = [
    UNREACHABLE,
    Refused("Glue", "region x", "GetTable: AccessDenied", "the permissions"),
    Stalled("Spark", "there", "made no progress for 5 s"),
    Paused("orders", "paused since yesterday"),
    BadRecords("orders", 2, [(0, 1, "no such schema")]),
    Unforeseen("orders", ValueError("secret")),
    ClockSkew("12:00", "Iceberg refuses it"),
    HalfReplaced("ns.t", "there", UNREACHABLE),
]


@pytest.mark.parametrize("error", COMPOSED, ids=lambda error: type(error).__name__)
def test_a_message_is_problem_effect_and_remedy(error):
    parts = [error.problem, error.effect, error.remedy]
    assert all(parts) and str(error) == ". ".join(parts)


def test_parts_can_be_read_one_by_one():
    assert UNREACHABLE.problem == "Kafka does not answer at there:9092: refused"
    assert (UNREACHABLE.effect, UNREACHABLE.remedy) == ("Nothing was changed", "Check the network")


def test_a_message_that_has_no_parts_is_the_problem():
    error = LakehouseError("It failed. Nothing was changed. Run it again")
    assert (error.problem, error.effect, error.remedy) == (str(error), "", "")


@pytest.mark.parametrize(
    "error",
    [
        UNREACHABLE,
        Stalled("Spark", "there", "stopped"),
        CommitConflict("Another writer was first"),
        Limited("too many calls"),
        Unforeseen("orders", ValueError()),
        ValueError("nobody foresaw it"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_may_pass_by_itself(error):
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        LakehouseError("wrong"),
        ConfigError("wrong"),
        Refused("Glue", "x", "y", "z"),
        RefusedByConfluent("no role"),
        OutcomeUnknownError("The answer was lost"),
        Paused("orders", "paused"),
        COMPOSED[4],
        COMPOSED[6],
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_somebody_has_to_change(error):
    assert not is_transient(error) and not isinstance(error, TransientError)


@pytest.mark.parametrize(
    ("error", "expected"), [(FileNotFoundError("x"), "no file x"), (PermissionError("y"), "system y")]
)
def test_the_first_type_that_fits_decides(error, expected):
    errors = {
        FileNotFoundError: lambda error: LakehouseError(f"no file {error}"),
        OSError: lambda error: LakehouseError(f"system {error}"),
    }
    with pytest.raises(LakehouseError, match=expected) as raised, translate(errors):
        raise error
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [OSError("not for us"), KeyError("of no type that is named")])
def test_other_errors_pass_as_they_are(error):
    with pytest.raises(type(error)) as raised, translate({OSError: lambda _: None}):
        raise error
    assert raised.value is error
