"""Glue as the catalog: commits whose outcome is unknown, late, refused or forbidden (F06-F11)."""

import time
from datetime import timedelta

import oracle
import pytest
from moments import attempt
from proxied import GlueStream, proxied
from proxy import GLUE_ERROR, GLUE_STALE, Fault
from pyspark.errors import PySparkException

from lakehouse.core.errors import Refused, Unreachable
from lakehouse.pipeline.maintenance import maintain

GLUE_TIMEOUT = b'{"__type": "OperationTimeoutException", "Message": "The operation timed out."}'
GLUE_THROTTLED = b'{"__type": "ThrottlingException", "Message": "Rate exceeded"}'
GLUE_FORBIDDEN = b'{"__type": "AccessDeniedException", "Message": "not authorized"}'
BRANCH, STAGE, PUBLISH = 1, 2, 3
"""A batch's UpdateTable requests: Spark makes a branch and writes to it, pyiceberg publishes."""


@pytest.fixture
def stream(resources):
    """A topic with 50 published records and 30 new ones."""
    with proxied(GlueStream(resources)) as stream:
        stream.produce_trades(range(50))
        stream.ingest()
        stream.produce_trades(range(50, 80))
        yield stream


def meet(stream, nth, kind, **settings):
    """A fault for the nth UpdateTable from now on."""
    stream.glue.inject(Fault("delay", "UpdateTable", times=nth - 1))
    return stream.glue.inject(Fault(kind, "UpdateTable", **settings))


FAILED = {"kind": "lost answer", "status": 500, "body": GLUE_ERROR}
TIMED_OUT = {"kind": "lost answer", "status": 400, "body": GLUE_TIMEOUT}
CUT = {"kind": "lost connection"}


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        pytest.param(BRANCH, FAILED, marks=pytest.mark.long),
        pytest.param(STAGE, FAILED, marks=pytest.mark.long),
        (STAGE, CUT),
        pytest.param(PUBLISH, FAILED, marks=pytest.mark.long),
        (PUBLISH, TIMED_OUT),
        (STAGE, TIMED_OUT),
    ],
    ids=["branch 500", "stage 500", "stage cut", "publish 500", "publish time-out", "stage time-out"],
)
def test_a_commit_whose_answer_is_lost_is_neither_lost_nor_repeated(stream, step, fault):
    met = meet(stream, step, **fault)

    attempt(stream)
    attempt(stream)

    assert met.fired == 1
    oracle.judge(stream)


def test_a_commit_that_arrives_after_its_repetition_was_applied_is_refused(stream):
    late = meet(stream, PUBLISH, "late")
    stream.ingest()
    published = stream.table().metadata_location
    late.release.set()
    deadline = time.monotonic() + 20
    while not stream.glue.refused:
        assert time.monotonic() < deadline, "the late commit did not arrive"
        time.sleep(0.05)

    assert stream.table().metadata_location == published
    oracle.judge(stream)


def test_maintenance_whose_answer_is_lost_deletes_nothing_that_is_live(stream):
    stream.ingest()
    brief = stream.topic.retention.model_copy(update={"snapshots": timedelta(0), "min_snapshots": 1})
    topic = stream.topic.model_copy(update={"retention": brief})
    met = meet(stream, 1, **TIMED_OUT)
    with pytest.raises(PySparkException):
        list(maintain(stream.namespace, topic, stream.catalog, stream.resources.spark))

    [done] = maintain(stream.namespace, topic, stream.catalog, stream.resources.spark)

    assert met.fired == 1 and done.after.snapshots == 1
    stream.produce_trades(range(80, 90))
    stream.ingest()
    assert stream.rows() == stream.expected_rows()


def test_refusals_that_pass_are_survived(stream):
    meet(stream, STAGE, "answer", status=400, body=GLUE_STALE)
    stream.glue.inject(Fault("answer", "UpdateTable", times=2, status=400, body=GLUE_THROTTLED))

    attempt(stream)
    attempt(stream)

    assert stream.glue.fired["answer"] == 3
    oracle.judge(stream)


@pytest.fixture
def impatient(monkeypatch):
    """AWS clients of this process that try once: by default they take half a minute to give up."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"kind": "answer", "status": 400, "body": GLUE_FORBIDDEN}, Refused),
        pytest.param({"kind": "cut"}, Unreachable, marks=pytest.mark.long),
    ],
    ids=["forbidden", "away"],
)
def test_a_catalog_that_does_not_let_in_is_named(impatient, stream, fault, error):
    stream.glue.inject(Fault(times=1_000, **fault))

    with pytest.raises(error, match="Glue"):
        stream.ingest()


def test_a_catalog_that_is_away_costs_nothing(impatient, stream):
    published = stream.rows()
    stream.glue.inject(Fault("cut", times=1_000))
    assert attempt(stream) is not None
    assert stream.rows() == published

    stream.glue.heal()
    stream.ingest()
    oracle.judge(stream)
