"""Behaviour of every type of Iceberg catalog."""

import pytest

from lakehouse.core.errors import ConfigError
from lakehouse.core.tables import naming
from resources.iceberg.catalog import Catalog
from resources.iceberg.catalogs import registered


@pytest.mark.parametrize("use", [Catalog.iceberg, Catalog.spark_settings, Catalog.file_io, Catalog.cleaning.fget])
def test_catalog_of_unknown_type_is_refused(use):
    catalog = Catalog(type="hive", warehouse="s3://lake/tables", uri="sqlite:///catalog.db")
    with pytest.raises(ConfigError, match="Catalog type 'hive' is not known. Use one of sql, glue in lakehouse.yaml"):
        use(catalog)


@pytest.mark.parametrize("type_", registered())
def test_spark_settings_only_cleaning_catalog_may_delete(type_):
    catalog = Catalog(type=type_, warehouse="s3://lake/tables", uri="sqlite:////c.db", s3_endpoint="http://s3")

    settings = catalog.spark_settings()

    commits, cleans = (f"spark.sql.catalog.{name}" for name in (naming.CATALOG, catalog.cleaning))
    assert settings[commits] == settings[cleans] == "org.apache.iceberg.spark.SparkCatalog"
    for prefix in (commits, cleans):
        assert settings[f"{prefix}.warehouse"] == "s3://lake/tables"
        assert (settings[f"{prefix}.cache-enabled"], settings[f"{prefix}.s3.endpoint"]) == ("false", "http://s3")
    assert settings.get(f"{cleans}.s3.delete-enabled", "true") == "true"
    assert (commits == cleans) == (settings.get(f"{commits}.s3.delete-enabled", "true") == "true")
