"""The oracle sees what it is there to see: each kind of damage, done by hand, is found and named."""

import os
import re

import boto3
import oracle
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from moments import LOGGED
from support import Stream


@pytest.fixture(scope="module", params=["append", "upsert"])
def ingested(request, resources):
    """A topic of 40 good records and a bad one, in its table."""
    stream = Stream(resources, partitions=2, settings={"mode": request.param} | LOGGED)
    stream.produce_trades(range(40))
    stream.produce([{"key": b"User_1", "value": b"bad", "headers": [("h", b"1")]}])
    stream.ingest()
    return stream


@pytest.fixture
def sound(ingested):
    """The same, and after the test as it was before."""
    names = None, f"{ingested.topic.table}__dead_letters"
    before = {name: ingested.table(name).current_snapshot().snapshot_id for name in names}
    yield ingested
    for name, snapshot_id in before.items():
        with ingested.table(name).manage_snapshots() as manage:
            manage.rollback_to_snapshot(snapshot_id)


def changed(table, column, change):
    """Write the rows of a table anew with one column changed."""
    rows = table.scan().to_arrow()
    index = rows.schema.get_field_index(column)
    field = rows.schema.field(index)
    table.overwrite(rows.set_column(index, field, change(rows[column]).cast(field.type)))


def with_reversed_value(records):
    """The records of dead letters with the bytes of their values the other way around."""
    records = records.combine_chunks()
    parts = {field.name: records.field(field.name) for field in records.type}
    parts["value"] = pc.binary_reverse(parts["value"])
    return pa.StructArray.from_arrays(list(parts.values()), fields=list(records.type))


def test_what_is_sound_passes(sound):
    verdict = oracle.judge(sound)
    rows = 40 if sound.topic.mode == "append" else 9
    assert verdict == oracle.Verdict(records=41, rows=rows, dead_letters=1, batches=1)


def test_a_lost_row(sound):
    at = oracle.position(sound.rows()[3])
    sound.table().delete(f"kafka_partition = {at[0]} and kafka_offset = {at[1]}")
    with pytest.raises(AssertionError, match=re.escape(f"1 lost (at [{at}])")):
        oracle.judge(sound)


def test_a_row_that_is_there_twice(sound):
    table = sound.table()
    table.append(table.scan(limit=1).to_arrow())
    with pytest.raises(AssertionError, match="1 duplicated"):
        oracle.judge(sound)


def test_a_changed_value(sound):
    changed(sound.table(), "price", lambda prices: pc.add(prices, 1))
    with pytest.raises(AssertionError, match="and not"):
        oracle.judge(sound)


def test_a_dead_letter_whose_bytes_changed(sound):
    changed(sound.table(f"{sound.topic.table}__dead_letters"), "source_record", with_reversed_value)
    with pytest.raises(AssertionError, match="dead letter .*dab"):
        oracle.judge(sound)


def test_a_missing_file(sound):
    table = sound.table()
    file = table.inspect.files()["file_path"][0].as_py()
    at = dict(zip(("Bucket", "Key"), file.removeprefix("s3://").split("/", 1), strict=True))
    s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"])
    content = s3.get_object(**at)["Body"].read()
    s3.delete_object(**at)
    try:
        with pytest.raises(AssertionError, match="not in the store"):
            oracle.files_are_sound(table)
    finally:
        s3.put_object(**at, Body=content)


def test_a_file_with_rows_that_the_manifest_does_not_know(sound):
    table = sound.table()
    one = table.inspect.files().to_pylist()[0]
    table.append(table.scan(limit=1).to_arrow())
    other = next(f for f in table.inspect.files().to_pylist() if f["record_count"] != one["record_count"])
    s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"])
    bucket, key = one["file_path"].removeprefix("s3://").split("/", 1)
    whole = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    s3.copy_object(Bucket=bucket, Key=key, CopySource=other["file_path"].removeprefix("s3://"))
    try:
        with pytest.raises(AssertionError, match="in the manifest"):
            oracle.files_are_sound(table)
    finally:
        s3.put_object(Bucket=bucket, Key=key, Body=whole)


def test_positions_that_do_not_join_up(sound):
    log = oracle.read_log(sound.name)
    [(token, summary)] = oracle.tokens(sound.table())
    oracle._contiguous([(token, summary)], log)
    with pytest.raises(AssertionError, match="one batch ends at"):
        oracle._contiguous([(token, summary)] * 2, log)


def test_a_batch_with_other_rows_than_its_records(sound):
    log = oracle.read_log(sound.name)
    [(token, summary)] = oracle.tokens(sound.table())
    with pytest.raises(AssertionError, match="its records come to 0"):
        oracle._conserved(token, summary, {}, log, ())


def test_a_table_that_is_behind(ingested):
    ingested.produce([{"value": b"bad"}])
    with pytest.raises(AssertionError, match="1 lost"):
        oracle.judge(ingested)
