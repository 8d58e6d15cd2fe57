"""A table that a service of its catalog maintains: compactions and expiry of another writer, and none of lakehouse."""

from contextlib import closing

import pytest

from lakehouse.pipeline.clients import engine_client
from lakehouse.pipeline.ledger.reconciliation import reconcile
from lakehouse.pipeline.maintenance import maintain
from tests.support.clouds.rest.server import Polaris
from tests.support.faults import oracle
from tests.support.faults.moments import attempt
from tests.support.faults.proxied import RestStream, proxied
from tests.support.topics import once


@pytest.fixture
def stream(resources, rest_server):
    """A topic in a REST catalog, whose table has several small files and snapshots."""
    settings = {"maintenance": "external"}
    with proxied(RestStream(resources, server=Polaris(*rest_server), settings=settings)) as stream:
        for first in range(0, 30, 10):
            stream.produce_trades(range(first, first + 10))
            stream.ingest()
        yield stream


def serve(stream, *calls):
    """Run procedures of Iceberg in a session of another program, as the catalog's service would."""
    table = f"table => '{stream.namespace}.`{stream.topic.table}`'"
    with closing(stream.resources.spark.with_own_session()) as spark:
        session = spark.session(stream.catalog.spark_settings())
        for call in calls:
            name, _, arguments = call.partition("|")
            session.sql(f"CALL lake.system.{name}({table}{arguments})").collect()


COMPACT = "rewrite_data_files|, options => map('rewrite-all', 'true')"
EXPIRE = "expire_snapshots|, older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"


def data_files(stream):
    return [task.file.file_path for task in stream.table().scan().plan_files()]


def assert_complete(stream):
    """Assert that table, log and ledger agree."""
    oracle.judge(stream)
    report = reconcile(stream.namespace, stream.topic, stream.systems, whole_log=True)
    assert [finding for finding in report.findings if finding.fault] == []


def test_ingest_after_foreign_compaction_balances(stream):
    before = data_files(stream)
    serve(stream, COMPACT)
    assert len(data_files(stream)) < len(before)
    stream.produce_trades(range(30, 50))

    [published] = stream.ingest()

    assert published.counts.rows == 20 and stream.ingest() == []
    assert_complete(stream)


def test_foreign_compaction_during_a_batch_publishes_it_once(stream):
    stream.produce_trades(range(30, 50))
    on_phase, _ = once("publish", lambda: serve(stream, COMPACT))

    attempt(stream, on_phase)
    attempt(stream)

    assert stream.ingest() == []
    assert_complete(stream)


def test_ingest_after_foreign_expiry_continues(stream):
    """A service that expires everything leaves the snapshot of the newest batch, which a tag keeps."""
    serve(stream, COMPACT, EXPIRE)
    assert len(stream.table().metadata.snapshots) == 2
    stream.produce_trades(range(30, 40))

    [published] = stream.ingest()

    assert published.counts.rows == 10
    assert stream.table().scan().to_arrow().num_rows == len(stream.expected_rows()) == 40


def test_maintain_leaves_files_to_the_service(stream):
    before, snapshots = data_files(stream), len(stream.table().metadata.snapshots)
    engines = engine_client(stream.resources.spark)

    [maintained] = maintain(stream.namespace, stream.topic, stream.catalog, engines)

    assert maintained.actions == ("left compaction, expiry and orphan files to the service that maintains the table",)
    assert data_files(stream) == before and len(stream.table().metadata.snapshots) == snapshots
