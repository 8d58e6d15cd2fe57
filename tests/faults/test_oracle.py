"""The oracle sees what it is there to see: each kind of damage, done by hand, is found and named."""

import os
import re

import boto3
import oracle
import pyarrow.compute as pc
import pytest
from moments import LOGGED
from support import Stream


@pytest.fixture(scope="module")
def sound(resources):
    """A factory of topics of 40 good records and a bad one, ingested."""

    def make(mode="append"):
        stream = Stream(resources, partitions=2, settings={"mode": mode} | LOGGED)
        stream.produce_trades(range(40))
        stream.produce([{"key": b"User_1", "value": b"bad", "headers": [("h", b"1")]}])
        stream.ingest()
        return stream

    return make


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_what_is_sound_passes(sound, mode):
    verdict = oracle.judge(sound(mode))
    assert (verdict.records, verdict.dead_letters, verdict.batches) == (41, 1, 1)
    assert verdict.rows == (40 if mode == "append" else 9)


def test_a_lost_row(sound):
    stream = sound()
    stream.table().delete("kafka_partition = 0 and kafka_offset = 3")
    with pytest.raises(AssertionError, match=re.escape("1 lost (at [(0, 3)])")):
        oracle.judge(stream)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_row_that_is_there_twice(sound, mode):
    stream = sound(mode)
    table = stream.table()
    table.append(table.scan(limit=1).to_arrow())
    with pytest.raises(AssertionError, match="1 duplicated"):
        oracle.judge(stream)


def test_a_changed_value(sound):
    stream = sound()
    rows = stream.table().scan().to_arrow()
    index = rows.schema.get_field_index("price")
    changed = rows.set_column(index, rows.schema.field(index), pc.add(rows["price"], 1).cast("int32"))
    stream.table().overwrite(changed)
    with pytest.raises(AssertionError, match="and not"):
        oracle.judge(stream)


def test_a_dead_letter_whose_bytes_changed(sound):
    stream = sound()
    letters = stream.table(f"{stream.topic.table}__dead_letters")
    rows = letters.scan().to_arrow()
    index = rows.schema.get_field_index("value")
    letters.overwrite(rows.set_column(index, rows.schema.field(index), [[b"BAD"]]))
    with pytest.raises(AssertionError, match="BAD"):
        oracle.judge(stream)


def test_a_table_that_is_behind(sound):
    stream = sound()
    stream.produce([{"value": b"bad"}])
    with pytest.raises(AssertionError, match="1 lost"):
        oracle.judge(stream)


def test_a_missing_file(sound):
    stream = sound()
    file = stream.table().inspect.files()["file_path"][0].as_py()
    bucket, _, key = file.removeprefix("s3://").partition("/")
    rows = stream.table().scan().to_arrow()
    boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"]).delete_object(Bucket=bucket, Key=key)
    assert len(rows) == 40
    with pytest.raises(AssertionError, match="not in the store"):
        oracle.files_are_sound(stream.table())


def test_positions_that_do_not_join_up(sound):
    stream = sound()
    stream.produce_trades(range(40, 60))
    [first] = oracle.tokens(stream.table())
    stream.ingest()
    second, _ = list(oracle.tokens(stream.table()))
    log = oracle.read_log(stream.name)
    oracle._contiguous([second, first], log)
    with pytest.raises(AssertionError, match="one batch ends at"):
        oracle._contiguous([second, second], log)
