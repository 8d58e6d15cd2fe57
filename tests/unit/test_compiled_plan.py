"""The requests of the compiled decoder: which batches it writes, how they are divided, and what executors get."""

import json
import re
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import IdentityTransform

from lakehouse.config.model import Topic
from lakehouse.core.offsets.batch import Batch
from lakehouse.formats.columns import table_schema
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.schemas import decoding
from spark.engine import with_codecs
from spark.native import job, task
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


def partitioned(table):
    with table.update_spec() as update:
        update.add_field("side", IdentityTransform())


def with_provider(table):
    with table.transaction() as transaction:
        transaction.set_properties(
            {"write.py-location-provider.impl": "pyiceberg.table.locations.SimpleLocationProvider"}
        )


def test_request_names_topic_and_ranges_without_credentials(catalog):
    [request] = planned(catalog, secrets={"s3.endpoint": "http://s3:9000", "uri": f"postgresql://me:{CANARY}@db/"})

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
        ("partitioned", {"prepare": partitioned}),
        ("settings of Parquet files", {"properties": {"write.parquet.compression-codec": "gzip"}}),
        ("provider of locations", {"prepare": with_provider}),
        ("issues credentials", {"secrets": {"s3.secret-access-key": CANARY}}),
    ],
)
def test_request_for_unsupported_batch_is_refused_with_reason(catalog, reason, arguments):
    with pytest.raises(Unsupported, match=reason):
        planned(catalog, **arguments)


@pytest.mark.parametrize("size, number", [(1_000_000, 1), (3, 4), (1, 10), (4, 3)])
def test_tasks_read_each_offset_once(monkeypatch, size, number):
    monkeypatch.setattr("spark.native.job.OFFSETS_A_TASK", size)

    tasks = job.divided(batch(p0=6, p1=0, p2=4))

    offsets = [(p, offset) for ranges in tasks for p, first, end in ranges for offset in range(first, end)]
    assert sorted(offsets) == [(0, n) for n in range(6)] + [(2, n) for n in range(4)]
    assert len(offsets) == len(set(offsets))
    assert len(tasks) == number


def test_task_attempts_write_other_files_of_one_folder():
    pytest.importorskip("lakehouse_native")
    attempt = task.write(["not a request"], ["s3://lake/x.parquet/data/a.parquet"], {}, "trades")
    ids = pa.RecordBatch.from_pylist([{"id": 0, "login": "{}"}])

    outcomes = [outcome for _ in range(2) for batch in attempt([ids]) for outcome in batch.to_pylist()]

    paths = {outcome["path"] for outcome in outcomes}
    assert len(paths) == 2
    assert all(re.fullmatch(r"s3://lake/x\.parquet/data/a-[0-9a-f]{8}\.parquet", path) for path in paths)
    assert {outcome["rows"] for outcome in outcomes} == {0}
    assert all("not valid" in outcome["fault"] for outcome in outcomes)


def test_crate_has_the_version_of_the_package():
    crate = tomllib.loads((PROJECT / "native/Cargo.toml").read_text())["package"]["version"]
    assert crate == tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    assert Path(PROJECT / "native/Cargo.lock").read_text().count(f'name = "lakehouse-native"\nversion = "{crate}"') == 1
