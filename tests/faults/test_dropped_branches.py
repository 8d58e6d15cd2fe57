"""Another writer drops the branch of a batch while a file is uploaded: Iceberg then creates it again from main."""

import os
import re

import pytest

from lakehouse.core.table_protocol import DEAD_LETTERS, STAGING_PREFIX
from tests.support.faults import oracle
from tests.support.faults.moments import LOGGED
from tests.support.faults.proxied import ProxiedStream, proxied
from tests.support.servers.proxy import Proxy, Request
from tests.support.topics import Stream


class DroppedBranch:
    """A guard of a proxy before S3 that drops staging branches before the first upload of rows to a table."""

    def __init__(self, stream: Stream, table: str):
        self.stream, self.table, self.dropped = stream, table, []
        self.data_file = rf"/{table}-[0-9a-f-]{{36}}/data/.*(?<!deletes)\.parquet"

    def __call__(self, request: Request) -> None:
        is_upload = request.method == "PUT" and re.search(self.data_file, request.path)
        if self.dropped or not is_upload:
            return
        table = self.stream.table(self.table)
        self.dropped = [name for name in table.metadata.refs if name.startswith(STAGING_PREFIX)]
        with table.manage_snapshots() as manage:
            for name in self.dropped:
                manage.remove_branch(name)


def test_ingest_with_dropped_branch_publishes_each_key_once(resources):
    """tests/integration/test_two_writers.py drops the branch of a batch that is appended."""
    stream = ProxiedStream(resources, settings=LOGGED | {"mode": "upsert"})
    stream.produce_trades(range(30))
    stream.ingest()
    stream.produce_trades(range(30, 50))
    guard = DroppedBranch(stream, stream.topic.table)
    stream.s3 = Proxy(os.environ["AWS_ENDPOINT_URL_S3"], guard)

    with proxied(stream):
        stream.ingest()

    assert guard.dropped
    oracle.judge(stream)


def test_dead_letters_with_dropped_branch_are_kept_once(resources):
    """The dead letters of an earlier attempt are replaced by those of a longer batch."""
    stream = ProxiedStream(resources, partitions=1, settings=LOGGED)
    stream.produce_trades(range(10))
    stream.produce([{"value": b"bad"}])

    def die(phase):
        if phase == "publish" and stream.dead_letters():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stream.ingest(die)
    stream.produce([{"value": b"worse"}])
    guard = DroppedBranch(stream, f"{stream.topic.table}{DEAD_LETTERS}")
    stream.s3 = Proxy(os.environ["AWS_ENDPOINT_URL_S3"], guard)

    with proxied(stream):
        stream.ingest()

    assert guard.dropped
    oracle.judge(stream)
    assert [letter["value"] for letter in stream.dead_letters()] == [b"bad", b"worse"]
