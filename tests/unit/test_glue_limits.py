"""Glue's limits on names, comments and properties, and the distinction of refusals from failures to respond."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import boto3
import pyarrow as pa
import pytest
from botocore.session import get_session
from moto import mock_aws
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, StructType

from lakehouse.config.model import Topic
from lakehouse.core.errors import RequestRejected, Unreachable
from lakehouse.core.offsets.batch import Batch, Counts
from lakehouse.core.table_protocol import COUNTS, TOKEN
from lakehouse.core.tables.naming import TableRef
from lakehouse.formats.columns import table_schema
from resources.aws.glue import Glue
from resources.iceberg.catalog import Catalog
from resources.iceberg.snapshots import counts_by_snapshot
from tests.support.servers.listener import Listener

ROWS = pa.table({"a": pa.array([1, 2], pa.int64())})
DOC = "Net price in EUR.\r\n\nRounded half to even,\x00 as the ledger does: 4,50 €. " + "Ü" * 300
COUNTS_OF_BATCH = asdict(Counts(9_000_000, 8_000_000, 100_000, 200_000, 300_000, 100_000, 100_000, 200_000))
MODEL = get_session().get_service_model("glue")


@pytest.fixture
def aws(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_GLUE", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


def violations(shape, value, path="table"):
    """Yield values that the service's model does not allow: by length, which Glue counts in bytes, and by pattern."""
    match shape.type_name:
        case "structure":
            for name, member in shape.members.items():
                if name in value:
                    yield from violations(member, value[name], f"{path}.{name}")
        case "list":
            for item in value:
                yield from violations(shape.member, item, f"{path}[]")
        case "map":
            for key, item in value.items():
                yield from violations(shape.key, key, f"{path} key")
                yield from violations(shape.value, item, f"{path}[{key}]")
        case "string":
            # Surrogates represent characters beyond the first 65,536, which are one character in Python.
            pattern = shape.metadata.get("pattern", ".*").replace(
                "\\uD800\\uDC00-\\uDBFF\\uDFFF", "\U00010000-\U0010ffff"
            )
            if len(value.encode()) > shape.metadata.get("max", 1e9) or not re.fullmatch(pattern, value, re.DOTALL):
                yield f"{path}: {value[:80]!r} ({len(value.encode())} bytes)"


def glue_violations(name):
    glue_table = boto3.client("glue").get_table(DatabaseName="trading", Name=name)["Table"]
    return list(violations(MODEL.shape_for("TableInput"), glue_table))


@pytest.mark.parametrize("kind", ["catalog", "registration"])
def test_glue_table_long_or_invalid_comment_fits(aws, tmp_path, kind):
    (tmp_path / "warehouse").mkdir()
    struct = StructType(NestedField(1, "price", StringType(), required=False, doc=DOC))
    schema = table_schema(Topic(name="orders").metadata.names, struct, None)
    with mock_aws():
        catalog = Catalog(type="glue", warehouse=f"file://{tmp_path}/warehouse", region="us-east-1")
        if kind == "catalog":
            catalog.ensure_table(TableRef("trading", "orders"), schema)
        else:
            glue = Glue(region="us-east-1", catalog_id="123456789012")
            glue.ensure_database("trading", f"file://{tmp_path}")
            schema_of_registration = Schema(NestedField(1, "price", StringType(), required=False, doc=DOC))
            glue.register(
                "trading",
                "orders",
                metadata_location=f"file://{tmp_path}/m.json",
                table_uuid="u",
                schema=schema_of_registration,
                location=f"file://{tmp_path}",
                comment="ü" * 3_000,
                expected=None,
            )
        assert glue_violations("orders") == []
        [column] = [
            column
            for column in boto3.client("glue").get_table(DatabaseName="trading", Name="orders")["Table"][
                "StorageDescriptor"
            ]["Columns"]
            if column["Name"] == "price"
        ]
    assert column["Comment"].startswith("Net price in EUR. Rounded half to even, as the ledger does: 4,50 €. ÜÜ")


def create_table_of_many_snapshots(lake, count, partitions):
    """Create a table with a batch on the branch `ingest_batch`, after `count` published batches with counts."""
    iceberg = SqlCatalog("lake", **lake)
    iceberg.create_namespace("trading")
    table = iceberg.create_table(("trading", "orders"), ROWS.schema)
    token = Batch(
        "c" * 22, "orders", "t" * 22, dict.fromkeys(range(partitions), 0), dict.fromkeys(range(partitions), 1)
    )
    table.append(ROWS, snapshot_properties={TOKEN: token.to_json()})
    base = table.metadata.current_snapshot_id
    table.manage_snapshots().create_branch(base, "ingest_batch").commit()
    table.append(ROWS, branch="ingest_batch", snapshot_properties={TOKEN: token.to_json()})
    metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    snapshot, staged = metadata["snapshots"]
    earlier = [
        {
            **snapshot,
            "snapshot-id": 2**62 + n,
            "sequence-number": 1,
            "timestamp-ms": snapshot["timestamp-ms"] - 1,
            "summary": {"operation": "append"},
            **({"parent-snapshot-id": 2**62 + n - 1} if n else {}),
        }
        for n in range(count)
    ]
    snapshot["parent-snapshot-id"] = 2**62 + count - 1
    metadata["snapshots"] = [*earlier, snapshot, staged]
    metadata["properties"][COUNTS] = json.dumps({str(2**62 + n): COUNTS_OF_BATCH for n in range(count)})
    file = Path(lake["warehouse"].removeprefix("file://")) / "00009-many.metadata.json"
    file.write_text(json.dumps(metadata))
    iceberg.drop_table(("trading", "orders"))
    iceberg.register_table(("trading", "orders"), str(file))
    return base


@pytest.mark.parametrize(("count", "partitions"), [(3, 1_000), (3_700, 1)])
def test_publish_many_snapshots_keeps_properties_below_limit(tmp_path, count, partitions):
    (tmp_path / "warehouse").mkdir()
    lake = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    base = create_table_of_many_snapshots(lake, count, partitions)
    catalog = Catalog(type="sql", **lake)

    table = catalog.publish(catalog.load(TableRef("trading", "orders")), "ingest_batch", base, COUNTS_OF_BATCH)

    kept = counts_by_snapshot(table)
    longest = MODEL.shape_for("ParametersMapValue").metadata["max"]
    assert max(len(value.encode()) for value in table.properties.values()) < longest
    assert max(len(value) for value in table.current_snapshot().summary.additional_properties.values()) < 50_000
    assert list(kept)[-1] == table.metadata.current_snapshot_id
    newest = [2**62 + n for n in range(count)][-min(count, 2_000) :]
    assert all(kept[id_]["rows"] == COUNTS_OF_BATCH["rows"] for id_ in newest)


@pytest.mark.parametrize(
    ("status", "code", "error", "message"),
    [
        (400, "ValidationException", RequestRejected, "refused GetTable: ValidationException: not so"),
        (400, "InvalidInputException", RequestRejected, "refused GetTable"),
        (400, "AccessDeniedException", RequestRejected, "permissions"),
        (400, "ThrottlingException", Unreachable, "does not answer"),
        (400, "ExpiredTokenException", Unreachable, "does not answer"),
        (500, "InternalServiceException", Unreachable, "does not answer"),
    ],
)
def test_registration_refusal_differs_from_unreachable(aws, monkeypatch, tmp_path, status, code, error, message):
    body = json.dumps({"__type": code, "Message": "not so"})
    with Listener((status, body, {"Content-Type": "application/x-amz-json-1.1"})).listening() as glue:
        monkeypatch.setenv("AWS_ENDPOINT_URL", glue.address)
        with pytest.raises(error, match=message):
            Glue(region="us-east-1", catalog_id="123456789012").registration("trading", "orders")
        with pytest.raises(error, match=message):
            Catalog(type="glue", warehouse=f"file://{tmp_path}", region="us-east-1").load(TableRef("trading", "orders"))
