"""Fixtures of unit tests."""

import pytest

from resources.iceberg.catalog import Catalog


@pytest.fixture
def catalog(tmp_path):
    """Return a catalog in SQLite with the namespace `trading`."""
    (tmp_path / "warehouse").mkdir()
    catalog = Catalog(type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.iceberg().create_namespace("trading")
    return catalog
