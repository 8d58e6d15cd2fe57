"""Names in the catalog that objects other than Iceberg tables have."""

from pathlib import Path

import boto3
import pytest
from moto import mock_aws
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from sqlalchemy.orm import Session

from lakehouse.core.errors import UnclearState
from lakehouse.core.tables.naming import TableRef
from resources.iceberg.catalog import Catalog

ORDERS = TableRef("trading", "orders")
SCHEMA = Schema(NestedField(1, "a", LongType(), required=False))
OBJECTS = {
    "of another format": {"Parameters": {"table_type": "HUDI"}},
    "of Hive": {"Parameters": {"EXTERNAL": "TRUE"}},
    "view": {"TableType": "VIRTUAL_VIEW"},
}


def files(folder):
    return [path for path in Path(folder).rglob("*") if path.is_file()]


@pytest.mark.parametrize("described", OBJECTS.values(), ids=OBJECTS)
def test_table_of_glue_that_is_not_of_iceberg_is_refused(described, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_GLUE", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        catalog = Catalog(type="glue", warehouse=f"file://{tmp_path}", region="us-east-1")
        catalog.iceberg().create_namespace("trading")
        glue = boto3.client("glue", region_name="us-east-1")
        glue.create_table(DatabaseName="trading", TableInput={"Name": "orders", **described})

        for use in (lambda: catalog.load(ORDERS), lambda: catalog.ensure_table(ORDERS, SCHEMA)):
            with pytest.raises(UnclearState, match=r"trading\.orders that is not an Iceberg table.* Drop or rename it"):
                use()
    assert files(tmp_path) == []


def test_table_with_name_of_view_is_refused(catalog):
    """Spark's views are in the same database table as its tables."""
    with Session(catalog.iceberg().engine) as session, session.begin():
        name = {"catalog_name": "lake", "table_namespace": "trading", "table_name": "orders"}
        view = IcebergTables(**name, metadata_location="s3://lake/view.json", previous_metadata_location=None)
        view.iceberg_type = "VIEW"
        session.add(view)
    assert catalog.load(ORDERS) is None
    with pytest.raises(UnclearState, match=r"trading\.orders that is not an Iceberg table.* Drop or rename it"):
        catalog.ensure_table(ORDERS, SCHEMA)
