"""The requests of the compiled decoder: which batches it writes, how they are divided, and what executors get."""

import json
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import SimpleLocationProvider
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import NestedField, StringType

from lakehouse.config.model import Topic
from lakehouse.core.offsets.batch import Batch
from lakehouse.formats.columns import table_schema
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.schemas import decoding
from spark.engine import with_codecs
from spark.native import job, task
from spark.native.places import Places
from spark.native.plan import Unsupported
from tests.support.fuzz.decoding import Versions
from tests.support.topics import TRADES
from tools.repository import PROJECT

SERVERS = "broker:9092,other:9092"
CANARY = "planted-canary"


def batch(**end):
    ends = {int(partition.removeprefix("p")): offset for partition, offset in end.items()}
    return Batch("cluster", "trades", "AH71JTXuRvmPvxDRS9DFjg", dict.fromkeys(ends, 0), ends)


@pytest.fixture
def catalog(tmp_path):
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("streaming")
    return catalog


def planned(catalog, settings=(), properties=(), prepare=lambda table: None, secrets=()):
    """Return the requests for a batch of stock trades into a new table."""
    topic = Topic.model_validate({"name": "trades", "key": "userid"} | dict(settings))
    known = decoding.resolve_schemas(Versions([RegisteredSchema(7, TRADES, "AVRO")]), topic)
    schema = table_schema(topic.metadata.names, known.struct, None)
    table = catalog.create_table("streaming.trades", schema, properties=dict(properties))
    prepare(table)
    table.io.properties |= dict(secrets)
    instructions = with_codecs(decoding.replace(known, reads_header_ids=False).decoding())
    return job.requests(SERVERS, batch(p0=5), instructions, table)


def in_order(table):
    with table.update_sort_order() as update:
        update.desc("side", IdentityTransform(), NullOrder.NULLS_FIRST).asc("userid", BucketTransform(4))


def with_changed_partitions(table):
    for change in (
        lambda update: update.add_field("side", IdentityTransform()),
        lambda update: update.remove_field("side").add_field("userid", BucketTransform(4)),
    ):
        with table.update_spec() as update:
            change(update)


def with_provider(table):
    with table.transaction() as transaction:
        transaction.set_properties(
            {"write.py-location-provider.impl": "pyiceberg.table.locations.SimpleLocationProvider"}
        )


def test_request_names_topic_and_ranges_without_credentials(catalog):
    secrets = {"s3.secret-access-key": CANARY, "uri": f"postgresql://me:{CANARY}@db/"}
    [request] = planned(catalog, secrets=secrets)

    parsed = json.loads(request)
    assert (parsed["topic"], parsed["ranges"], parsed["bootstrap"]) == (
        "trades",
        [[0, 0, 5]],
        ["broker:9092", "other:9092"],
    )
    assert parsed["topic_id"] == "007ef52535ee46f98fbf10d14bd0c58e"
    assert CANARY not in request


@pytest.mark.parametrize(
    "reason, arguments",
    [
        ("the mode is dedup", {"settings": {"mode": "dedup"}}),
        ("message keys are decoded", {"settings": {"key_format": "string"}}),
        ("quarantine", {"settings": {"checks": {"c": {"type": "range", "column": "price", "severity": "quarantine"}}}}),
        ("settings of Parquet files", {"properties": {"write.parquet.compression-codec": "gzip"}}),
        ("provider of locations", {"prepare": with_provider}),
        ("provider of locations", {"properties": {"write.location-provider.impl": "com.example.Locations"}}),
        ("more than 16 characters", {"properties": {"write.metadata.metrics.default": "full"}}),
        ("more than 16 characters", {"properties": {"write.metadata.metrics.column.side": "truncate(17)"}}),
        ("is no number", {"properties": {"write.metadata.metrics.max-inferred-column-defaults": "many"}}),
    ],
)
def test_request_for_unsupported_batch_is_refused_with_reason(catalog, reason, arguments):
    with pytest.raises(Unsupported, match=reason):
        planned(catalog, **arguments)


def test_request_has_the_fields_of_the_current_partition_spec(catalog):
    [request] = planned(catalog, prepare=with_changed_partitions)

    layout = json.loads(request)["layout"]
    [userid] = [place for place, column in enumerate(layout["columns"]) if column["name"] == "userid"]
    assert layout["partition"] == [{"column": userid, "transform": "bucket", "width": 4}]


def test_request_has_the_fields_of_the_sort_order(catalog):
    [request] = planned(catalog, prepare=in_order)

    layout = json.loads(request)["layout"]
    places = {column["name"]: place for place, column in enumerate(layout["columns"])}
    assert layout["sort"] == [
        {"column": places["side"], "transform": "identity", "width": 1, "descending": True, "nulls_first": True},
        {"column": places["userid"], "transform": "bucket", "width": 4, "descending": False, "nulls_first": False},
    ]


@pytest.mark.parametrize("size, number", [(1_000_000, 1), (3, 4), (1, 10), (4, 4), (5, 2)])
def test_tasks_read_each_offset_once(monkeypatch, size, number):
    monkeypatch.setattr("spark.native.job.OFFSETS_A_TASK", size)

    tasks = job.divided(batch(p0=6, p1=0, p2=4))

    offsets = [(p, offset) for ranges in tasks for p, first, end in ranges for offset in range(first, end)]
    assert sorted(offsets) == [(0, n) for n in range(6)] + [(2, n) for n in range(4)]
    assert len(offsets) == len(set(offsets))
    assert len(tasks) == number


def test_task_that_fails_states_the_reason_without_folders(monkeypatch):
    lakehouse_native = pytest.importorskip("lakehouse_native")
    schema = Schema(NestedField(1, "c", StringType(), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "c"))
    places = Places(SimpleLocationProvider("file:///dev/null/lake", {}), spec, schema)
    attempt = task.write(["a request"], places, "trades", None)
    ids = pa.RecordBatch.from_pylist([{"id": 0, "login": "{}", "storage": "{}", "letter_storage": "{}"}])

    [[invalid]] = [batch.to_pylist() for batch in attempt([ids])]
    monkeypatch.setattr(lakehouse_native, "decide", lambda request, login, create, spill: create([CANARY.encode()]))
    [[failed]] = [batch.to_pylist() for batch in attempt([ids])]

    assert "not valid" in invalid["fault"]
    assert "/dev/null/lake/data/…" in failed["fault"] and CANARY not in failed["fault"]
    assert {outcome["files"] for outcome in (invalid, failed)} == {None}


def test_task_with_many_small_records_for_the_driver_fails(monkeypatch):
    lakehouse_native = pytest.importorskip("lakehouse_native")
    places = Places(SimpleLocationProvider("file:///dev/null/lake", {}), PartitionSpec(), Schema())
    record = dict.fromkeys(("key", "headers")) | {"partition": 0, "offset": 1, "timestamp": 1, "timestampType": 0}
    unknown = [record | {"value": b"\0\0\0\xff\xff"} for _ in range(100_000)]
    monkeypatch.setattr(lakehouse_native, "decide", lambda request, login, create, spill: spill(unknown) or [])
    ids = pa.RecordBatch.from_pylist([{"id": 0, "login": "{}", "storage": "{}", "letter_storage": "{}"}])

    [[outcome]] = [batch.to_pylist() for batch in task.write(["a request"], places, "trades", None)([ids])]

    # They take 100 MB as objects of Python, and half a megabyte as bytes.
    assert "are neither rows nor certain dead letters" in (outcome["fault"] or "")


def test_layout_with_a_field_of_another_version_is_refused():
    lakehouse_native = pytest.importorskip("lakehouse_native")
    layout = {"writers": {}, "columns": [], "metadata": []}
    lakehouse_native.decide_values(json.dumps(layout), [])

    with pytest.raises(RuntimeError, match="the layout is not valid: unknown field `clustering`"):
        lakehouse_native.decide_values(json.dumps(layout | {"clustering": []}), [])


def test_crate_has_the_version_of_the_package():
    crate = tomllib.loads((PROJECT / "native/Cargo.toml").read_text())["package"]["version"]
    assert crate == tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    assert Path(PROJECT / "native/Cargo.lock").read_text().count(f'name = "lakehouse-native"\nversion = "{crate}"') == 1
