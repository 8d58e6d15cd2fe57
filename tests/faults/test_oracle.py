"""The oracle of the fault tests: it finds and names each kind of damage."""

import os
import re

import boto3
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.support.faults import oracle
from tests.support.faults.moments import LOGGED
from tests.support.topics import Stream


@pytest.fixture(scope="module", params=["append", "upsert"])
def ingested(request, resources):
    """Return a topic of 40 good records and a bad one, and its table."""
    stream = Stream(resources, partitions=2, settings={"mode": request.param} | LOGGED)
    stream.produce_trades(range(40))
    stream.produce([{"key": b"User_1", "value": b"bad", "headers": [("h", b"1")]}])
    stream.ingest()
    return stream


@pytest.fixture
def restorable(ingested):
    """Return the same topic, and roll its tables back after the test."""
    names = None, f"{ingested.topic.table}__dead_letters"
    before = {name: ingested.table(name).current_snapshot().snapshot_id for name in names}
    yield ingested
    for name, snapshot_id in before.items():
        with ingested.table(name).manage_snapshots() as manage:
            manage.rollback_to_snapshot(snapshot_id)


of_one_mode = pytest.mark.parametrize("ingested", ["upsert"], indirect=True)
"""Marks tests of damage that the oracle finds in the same way in each mode."""


def rewrite(table, column, change):
    """Rewrite the rows of a table with one column changed."""
    rows = table.scan().to_arrow()
    index = rows.schema.get_field_index(column)
    field = rows.schema.field(index)
    table.overwrite(rows.set_column(index, field, change(rows[column]).cast(field.type)))


def with_reversed_value(records):
    """Return the records of dead letters with the bytes of their values in reverse order."""
    records = records.combine_chunks()
    parts = {field.name: records.field(field.name) for field in records.type}
    parts["value"] = pc.binary_reverse(parts["value"])
    return pa.StructArray.from_arrays(list(parts.values()), fields=list(records.type))


def test_oracle_intact_table_passes(restorable):
    verdict = oracle.judge(restorable)
    rows = 40 if restorable.topic.mode == "append" else 9
    assert verdict == oracle.Verdict(records=41, rows=rows, dead_letters=1, batches=1)


def test_oracle_lost_row_fails(restorable):
    position = oracle.position(restorable.rows()[3])
    restorable.table().delete(f"kafka_partition = {position[0]} and kafka_offset = {position[1]}")
    with pytest.raises(AssertionError, match=re.escape(f"1 lost (at [{position}])")):
        oracle.judge(restorable)


def test_oracle_duplicate_row_fails(restorable):
    table = restorable.table()
    table.append(table.scan(limit=1).to_arrow())
    with pytest.raises(AssertionError, match="1 duplicated"):
        oracle.judge(restorable)


def test_oracle_changed_value_fails(restorable):
    rewrite(restorable.table(), "price", lambda prices: pc.add(prices, 1))
    with pytest.raises(AssertionError, match="and not"):
        oracle.judge(restorable)


@of_one_mode
def test_oracle_changed_dead_letter_fails(restorable):
    rewrite(restorable.table(f"{restorable.topic.table}__dead_letters"), "source_record", with_reversed_value)
    with pytest.raises(AssertionError, match="dead letter .*dab"):
        oracle.judge(restorable)


@of_one_mode
def test_oracle_missing_file_fails(restorable):
    table = restorable.table()
    file = table.inspect.files()["file_path"][0].as_py()
    address = dict(zip(("Bucket", "Key"), file.removeprefix("s3://").split("/", 1), strict=True))
    s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"])
    content = s3.get_object(**address)["Body"].read()
    s3.delete_object(**address)
    try:
        with pytest.raises(AssertionError, match="not in the store"):
            oracle.files_are_sound(table)
    finally:
        s3.put_object(**address, Body=content)


@of_one_mode
def test_oracle_file_with_unlisted_rows_fails(restorable):
    table = restorable.table()
    file = table.inspect.files().to_pylist()[0]
    table.append(table.scan(limit=1).to_arrow())
    other_file = next(f for f in table.inspect.files().to_pylist() if f["record_count"] != file["record_count"])
    s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"])
    bucket, key = file["file_path"].removeprefix("s3://").split("/", 1)
    whole = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    s3.copy_object(Bucket=bucket, Key=key, CopySource=other_file["file_path"].removeprefix("s3://"))
    try:
        with pytest.raises(AssertionError, match="in the manifest"):
            oracle.files_are_sound(table)
    finally:
        s3.put_object(Bucket=bucket, Key=key, Body=whole)


@of_one_mode
def test_oracle_gap_between_offsets_fails(restorable):
    log = oracle.read_log(restorable.name)
    [(token, added)] = oracle.tokens(restorable.table())
    oracle._contiguous([(token, added)], log)
    with pytest.raises(AssertionError, match="one batch ends at"):
        oracle._contiguous([(token, added)] * 2, log)


@of_one_mode
def test_oracle_batch_with_other_rows_fails(restorable):
    log = oracle.read_log(restorable.name)
    [(token, added)] = oracle.tokens(restorable.table())
    with pytest.raises(AssertionError, match="its records come to 0"):
        oracle._conserved(token, added, {}, log, ())


def test_oracle_table_with_lag_fails(ingested):
    ingested.produce([{"value": b"bad"}])
    with pytest.raises(AssertionError, match="1 lost"):
        oracle.judge(ingested)
