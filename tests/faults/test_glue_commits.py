"""Glue as the catalog: commits whose outcome is unknown, late, refused or forbidden (F06-F11)."""

import time
from datetime import timedelta

import pytest

from lakehouse.core.errors import RequestRejected, Unreachable
from lakehouse.pipeline.clients import engine_client
from lakehouse.pipeline.engine_values import JobFailed
from lakehouse.pipeline.maintenance import maintain
from tests.support.faults import oracle
from tests.support.faults.moments import attempt
from tests.support.faults.proxied import GlueStream, proxied
from tests.support.servers.proxy import GLUE_ERROR, GLUE_STALE, Fault

GLUE_TIMEOUT = b'{"__type": "OperationTimeoutException", "Message": "The operation timed out."}'
GLUE_THROTTLED = b'{"__type": "ThrottlingException", "Message": "Rate exceeded"}'
GLUE_FORBIDDEN = b'{"__type": "AccessDeniedException", "Message": "not authorized"}'
BRANCH, STAGE, PUBLISH = 1, 2, 3
"""The UpdateTable requests of a batch: Spark creates a branch and writes to it, and pyiceberg publishes."""


@pytest.fixture
def stream(resources):
    """Return a topic with 50 published records and 30 new ones."""
    with proxied(GlueStream(resources)) as stream:
        stream.produce_trades(range(50))
        stream.ingest()
        stream.produce_trades(range(50, 80))
        yield stream


def inject_at(stream, nth, kind, **settings):
    """Inject a fault into the nth UpdateTable request from now, and return it."""
    stream.glue.inject(Fault("delay", "UpdateTable", times=nth - 1))
    return stream.glue.inject(Fault(kind, "UpdateTable", **settings))


FAILED = {"kind": "lost response", "status": 500, "body": GLUE_ERROR}
TIMED_OUT = {"kind": "lost response", "status": 400, "body": GLUE_TIMEOUT}
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
def test_glue_commit_with_lost_response_is_applied_once(stream, step, fault):
    injected = inject_at(stream, step, **fault)

    attempt(stream)
    attempt(stream)

    assert injected.fired == 1
    oracle.judge(stream)


def test_late_commit_after_its_retry_is_refused(stream):
    late_commit = inject_at(stream, PUBLISH, "late")
    stream.ingest()
    published = stream.table().metadata_location
    late_commit.release.set()
    deadline = time.monotonic() + 20
    while not stream.glue.refused:
        assert time.monotonic() < deadline, "the late commit did not arrive"
        time.sleep(0.05)

    assert stream.table().metadata_location == published
    oracle.judge(stream)


def test_maintenance_with_lost_response_keeps_live_files(stream):
    stream.ingest()
    shortest = stream.topic.retention.model_copy(update={"snapshots": timedelta(0), "min_snapshots": 1})
    topic = stream.topic.model_copy(update={"retention": shortest})
    injected = inject_at(stream, 1, **TIMED_OUT)
    with pytest.raises(JobFailed):
        list(maintain(stream.namespace, topic, stream.catalog, engine_client(stream.resources.spark)))

    [maintained] = maintain(stream.namespace, topic, stream.catalog, engine_client(stream.resources.spark))

    assert injected.fired == 1 and maintained.after.snapshots == 1
    stream.produce_trades(range(80, 90))
    stream.ingest()
    assert stream.rows() == stream.expected_rows()


def test_temporary_refusals_are_retried(stream):
    inject_at(stream, STAGE, "response", status=400, body=GLUE_STALE)
    stream.glue.inject(Fault("response", "UpdateTable", times=2, status=400, body=GLUE_THROTTLED))

    attempt(stream)
    attempt(stream)

    assert stream.glue.fired["response"] == 3
    oracle.judge(stream)


@pytest.fixture
def single_attempt(monkeypatch):
    """Let the AWS clients of this process try once. By default, they retry for half a minute."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"kind": "response", "status": 400, "body": GLUE_FORBIDDEN}, RequestRejected),
        pytest.param({"kind": "cut"}, Unreachable, marks=pytest.mark.long),
    ],
    ids=["forbidden", "away"],
)
def test_catalog_access_denied_names_the_catalog(single_attempt, stream, fault, error):
    stream.glue.inject(Fault(times=1_000, **fault))

    with pytest.raises(error, match="Glue"):
        stream.ingest()


def test_unavailable_catalog_loses_nothing(single_attempt, stream):
    published = stream.rows()
    stream.glue.inject(Fault("cut", times=1_000))
    assert attempt(stream) is not None
    assert stream.rows() == published

    stream.glue.heal()
    stream.ingest()
    oracle.judge(stream)
