"""Glue as the catalog: commits whose outcome is unknown, late, refused or forbidden (F06-F11)."""

import oracle
import pytest
from conftest import GlueStream
from proxy import GLUE_ERROR, GLUE_STALE, Fault

from lakehouse.errors import CommitConflict

GLUE_TIMEOUT = b'{"__type": "OperationTimeoutException", "Message": "The operation timed out."}'
GLUE_THROTTLED = b'{"__type": "ThrottlingException", "Message": "Rate exceeded"}'
GLUE_FORBIDDEN = b'{"__type": "AccessDeniedException", "Message": "not authorized"}'
BRANCH, STAGE, PUBLISH = 1, 2, 3
"""A batch's UpdateTable requests: Spark makes a branch and writes to it, pyiceberg publishes."""


@pytest.fixture
def stream(through):
    """A topic with 50 published records and 30 new ones."""
    stream = through(GlueStream)
    stream.produce_trades(range(50))
    stream.ingest()
    stream.produce_trades(range(50, 80))
    return stream


def meet(stream, nth, kind, **settings):
    """A fault for the nth UpdateTable from now on."""
    stream.glue.inject(Fault("delay", "UpdateTable", times=nth - 1))
    return stream.glue.inject(Fault(kind, "UpdateTable", **settings))


def attempt(stream):
    """One run, which may fail."""
    try:
        stream.ingest()
    except Exception as error:
        return error


@pytest.mark.parametrize("step", [BRANCH, STAGE, PUBLISH], ids=["branch", "stage", "publish"])
@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "lost answer", "status": 500, "body": GLUE_ERROR},
        {"kind": "lost answer", "status": 400, "body": GLUE_TIMEOUT},
        {"kind": "lost connection"},
    ],
    ids=["500", "timeout", "cut"],
)
def test_a_commit_whose_answer_is_lost_is_neither_lost_nor_repeated(stream, fault, step):
    met = meet(stream, step, **fault)

    print("RAISED", repr(attempt(stream))[:300])
    assert met.fired == 1
    print("RAISED 2", repr(attempt(stream))[:300])

    oracle.judge(stream)


def test_a_commit_that_is_applied_after_another_writer_published_is_refused(stream):
    late = meet(stream, PUBLISH, "late")
    error = attempt(stream)
    print("RAISED", repr(error)[:300])
    stream.ingest()
    late.release.set()

    oracle.judge(stream)
    stream.produce_trades(range(80, 90))
    stream.ingest()
    oracle.judge(stream)


@pytest.mark.parametrize("said", [GLUE_STALE, GLUE_THROTTLED], ids=["stale", "throttled"])
def test_refusals_that_pass_are_survived(stream, said):
    for _ in range(2):
        meet(stream, 2, "answer", status=400, body=said)
    print("RAISED", repr(attempt(stream))[:300])
    print("RAISED 2", repr(attempt(stream))[:300])

    assert stream.glue.fired["answer"] == 2
    oracle.judge(stream)


@pytest.mark.parametrize(
    "fault", [{"kind": "answer", "status": 400, "body": GLUE_FORBIDDEN}, {"kind": "cut"}], ids=["forbidden", "down"]
)
def test_a_catalog_that_refuses_everything_stops_the_run_and_changes_nothing(stream, fault):
    published = stream.rows()
    stream.glue.inject(Fault(times=1000, **fault))

    error = attempt(stream)

    print("RAISED", repr(error)[:300])
    assert error
    assert stream.rows() == published
    stream.glue.heal()
    stream.ingest()
    oracle.judge(stream)
