"""A REST catalog with the tables: commits whose outcome is unknown, conflicts, expired logins and outages."""

from datetime import timedelta

import pytest

from lakehouse.core.errors import ClockSkew, RequestRejected, TransientError, Unreachable
from lakehouse.pipeline.clients import engine_client
from lakehouse.pipeline.engine_values import JobFailed
from lakehouse.pipeline.maintenance import maintain
from resources.iceberg import rest_client
from tests.support.clouds.rest.lake import catalog_at
from tests.support.clouds.rest.server import Polaris
from tests.support.faults import oracle
from tests.support.faults.moments import attempt
from tests.support.faults.proxied import RestStream, proxied
from tests.support.servers.proxy import Fault
from tests.support.topics import once

COMMIT = r"POST /v1/trades/namespaces/[^/]+/tables/topic_\w+ "
"""Requests that commit to the table of a topic."""
BRANCH, STAGE, PUBLISH = 1, 2, 3
"""The commits of a batch: Spark creates a branch and writes to it, and pyiceberg publishes."""
CONFLICT = b'{"error": {"message": "Requirement failed: stale", "type": "CommitFailedException", "code": 409}}'
UNKNOWN = b'{"error": {"message": "unknown state", "type": "CommitStateUnknownException", "code": 500}}'
BUSY = b'{"error": {"message": "try later", "type": "SlowDownException", "code": 503}}'

SORTED = b"[BUG] Expected sorted snapshot log entries."
EARLY = b'{"error": {"message": "%s", "type": "IllegalArgumentException", "code": 400}}' % SORTED
"""The refusal of a snapshot on main by a server whose clock differs from that of Spark's driver."""


@pytest.fixture
def stream(resources, rest_server):
    """Return a topic with 50 published records and 30 new ones."""
    with proxied(RestStream(resources, server=Polaris(*rest_server))) as stream:
        stream.produce_trades(range(50))
        stream.ingest()
        stream.produce_trades(range(50, 80))
        yield stream


def inject_at(stream, nth, kind, **settings):
    """Inject a fault into the nth commit from now, and return it."""
    stream.server.inject(Fault("delay", COMMIT, times=nth - 1))
    return stream.server.inject(Fault(kind, COMMIT, **settings))


FAILED = {"kind": "lost response", "status": 500, "body": UNKNOWN}
GATEWAY = {"kind": "lost response", "status": 504}
REPEATED = {"kind": "lost response", "status": 409, "body": CONFLICT}
"""A gateway that repeats a request whose response it has lost: the second one conflicts with the first."""
OVERLOADED = {"kind": "lost response", "status": 503, "body": BUSY}
CUT = {"kind": "lost connection"}


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        pytest.param(BRANCH, FAILED, marks=pytest.mark.long),
        (STAGE, FAILED),
        pytest.param(STAGE, OVERLOADED, marks=pytest.mark.long),
        (STAGE, REPEATED),
        (STAGE, CUT),
        (PUBLISH, FAILED),
        (PUBLISH, REPEATED),
        pytest.param(PUBLISH, OVERLOADED, marks=pytest.mark.long),
        pytest.param(PUBLISH, GATEWAY, marks=pytest.mark.long),
        (PUBLISH, CUT),
    ],
    ids=[
        "branch 500",
        "stage 500",
        "stage 503",
        "stage 409",
        "stage cut",
        "publish 500",
        "publish 409",
        "publish 503",
        "publish 504",
        "publish cut",
    ],
)
def test_rest_commit_with_lost_response_is_applied_once(stream, step, fault):
    injected = inject_at(stream, step, **fault)

    failure = attempt(stream)
    attempt(stream)

    assert injected.fired == 1
    # The table shows that the batch is published.
    assert failure is None or step != PUBLISH
    oracle.judge(stream)


def test_slow_publication_is_found_in_the_table(stream, monkeypatch):
    monkeypatch.setattr(rest_client, "TIMEOUT_SECONDS", 2)
    slow = Fault("delay", COMMIT, seconds=3)
    on_phase, _ = once("publish", lambda: stream.server.inject(slow))

    failure = attempt(stream, on_phase)

    assert slow.fired == 1 and (failure is None or isinstance(failure, TransientError))
    attempt(stream)
    oracle.judge(stream)


def test_publication_of_unknown_outcome_is_reported(stream):
    """Neither the commit nor the look-up has a response: only a later run can find out."""
    away = Fault("response", times=1_000, status=502)
    lost = Fault("lost connection", COMMIT)
    on_phase, _ = once("publish", lambda: (stream.server.inject(lost), stream.server.inject(away)))

    with pytest.raises(TransientError, match="The outcome of a commit to .* is unknown"):
        stream.ingest(on_phase)

    stream.server.heal()
    stream.ingest()
    assert lost.fired == 1
    oracle.judge(stream)


@pytest.mark.parametrize("step", [STAGE, PUBLISH], ids=["stage", "publish"])
def test_conflicting_commits_publish_once(stream, step):
    injected = inject_at(stream, step, "response", status=409, body=CONFLICT)

    attempt(stream)
    attempt(stream)

    assert injected.fired == 1
    oracle.judge(stream)


def test_login_that_expires_in_a_batch_is_renewed(stream):
    stream.server.expires_in = 1
    stream.server.expire_tokens()
    issued = stream.server.issued_tokens
    on_phase, _ = once("publish", stream.server.expire_tokens)
    # Spark's catalog still has its first token, which it does not know to be refused: another session logs in.
    stream.resources.spark.close()

    stream.ingest(on_phase)

    assert stream.server.issued_tokens > issued + 1
    oracle.judge(stream)


def test_maintenance_with_lost_response_keeps_live_files(stream):
    stream.ingest()
    shortest = stream.topic.retention.model_copy(update={"snapshots": timedelta(0), "min_snapshots": 1})
    topic = stream.topic.model_copy(update={"retention": shortest})
    injected = inject_at(stream, 1, **FAILED)
    with pytest.raises((JobFailed, Unreachable)):
        list(maintain(stream.namespace, topic, stream.catalog, engine_client(stream.resources.spark)))

    [maintained] = maintain(stream.namespace, topic, stream.catalog, engine_client(stream.resources.spark))

    assert injected.fired == 1 and maintained.after.snapshots == 1
    stream.produce_trades(range(80, 90))
    stream.ingest()
    oracle.judge(stream)


def test_maintenance_that_is_refused_for_its_time_names_the_clocks(stream):
    stream.ingest()
    shortest = stream.topic.retention.model_copy(update={"snapshots": timedelta(0), "min_snapshots": 1})
    topic = stream.topic.model_copy(update={"retention": shortest})
    stream.server.inject(Fault("response", COMMIT, status=400, body=EARLY))
    with pytest.raises(ClockSkew, match="Spark's driver"):
        list(maintain(stream.namespace, topic, stream.catalog, engine_client(stream.resources.spark)))
    oracle.judge(stream)


def test_unavailable_catalog_loses_nothing(stream):
    published = stream.rows()
    stream.server.inject(Fault("response", times=1_000, status=503, body=BUSY))
    assert isinstance(attempt(stream), Unreachable)
    stream.server.heal()
    assert stream.rows() == published

    stream.ingest()
    oracle.judge(stream)


def test_refused_client_names_the_catalog(stream):
    forbidden = b'{"error": {"message": "not yours", "type": "ForbiddenException", "code": 403}}'
    stream.server.inject(Fault("response", COMMIT, times=1_000, status=403, body=forbidden))
    failure = attempt(stream)
    assert isinstance(failure, RequestRejected | JobFailed) and "not yours" in str(failure)


def test_spark_without_the_login_names_its_variable(stream):
    """The driver's environment has no token, so only pyiceberg logs in."""
    stream.catalog = catalog_at(stream.server, credential=None, scope=None, token=stream.server.issue_token())
    stream.resources.spark.close()
    failure = attempt(stream)
    assert isinstance(failure, TransientError) and "ICEBERG_CATALOG_TOKEN" in str(failure)
