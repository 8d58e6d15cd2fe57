"""Fixtures of unit tests."""

import pytest
from moto import mock_aws

from resources.aws.glue import Glue
from resources.iceberg.catalog import Catalog


@pytest.fixture
def catalog(tmp_path):
    """Return a catalog in SQLite with the namespace `trading`."""
    (tmp_path / "warehouse").mkdir()
    catalog = Catalog(type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.iceberg().create_namespace("trading")
    return catalog


@pytest.fixture
def glue(monkeypatch):
    """Yield a simulated Glue of this test only."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_GLUE", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        yield Glue(region="us-east-1", catalog_id="123456789012")
