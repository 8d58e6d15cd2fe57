"""Behaviour of every type of Iceberg catalog."""

import dagster as dg
import pytest

from lakehouse.core.errors import ConfigError, RequestRejected, Unreachable
from lakehouse.core.tables import naming
from resources.iceberg.catalog import Catalog
from resources.iceberg.catalog_types import registered

URIS = {"rest": "https://polaris.example/api/catalog"}
"""The addresses of types whose address is not that of a database."""


@pytest.mark.parametrize("use", [Catalog.iceberg, Catalog.spark_settings, Catalog.file_io, Catalog.cleaning.fget])
def test_catalog_of_unknown_type_is_refused(use):
    catalog = Catalog(type="hive", warehouse="s3://lake/tables", uri="sqlite:///catalog.db")
    with pytest.raises(ConfigError, match="Catalog type 'hive' is not known. Use one of sql, glue"):
        use(catalog)


@pytest.mark.parametrize("type_", registered())
def test_spark_settings_only_cleaning_catalog_may_delete(type_):
    uri = URIS.get(type_, "sqlite:////c.db")
    catalog = Catalog(type=type_, warehouse="s3://lake/tables", uri=uri, s3_endpoint="http://s3")

    settings = catalog.spark_settings()

    commits, cleans = (f"spark.sql.catalog.{name}" for name in (naming.CATALOG, catalog.cleaning))
    assert settings[commits] == settings[cleans] == "org.apache.iceberg.spark.SparkCatalog"
    for prefix in (commits, cleans):
        assert settings[f"{prefix}.warehouse"] == "s3://lake/tables"
        assert (settings[f"{prefix}.cache-enabled"], settings[f"{prefix}.s3.endpoint"]) == ("false", "http://s3")
    assert settings.get(f"{cleans}.s3.delete-enabled", "true") == "true"
    assert (commits == cleans) == (settings.get(f"{commits}.s3.delete-enabled", "true") == "true")


@pytest.mark.parametrize("type_", registered())
def test_catalog_warehouse_has_no_slash_at_its_end(type_, monkeypatch):
    """Glue's database would be at `tables//trading`, which IAM policies for `tables/trading` exclude."""
    monkeypatch.setenv("WAREHOUSE", "s3://lake/tables//")
    uri = URIS.get(type_, "sqlite:////c.db")
    declared = Catalog(type=type_, warehouse=dg.EnvVar("WAREHOUSE"), uri=uri)

    catalog = declared.process_config_and_initialize()

    assert catalog.warehouse == "s3://lake/tables"
    assert catalog.spark_settings()[f"spark.sql.catalog.{naming.CATALOG}.warehouse"] == "s3://lake/tables"
    assert Catalog(type=type_, warehouse="file:///", uri=uri).warehouse == "file:///"


@pytest.mark.parametrize("role", ["role_arn", "maintenance_role_arn", "reader_role_arn"])
def test_catalog_with_role_and_without_region_is_refused(role, monkeypatch):
    """Spark would fail at the first table: its client of STS has no default region."""
    settings = {"type": "glue", "warehouse": "s3://lake/tables", role: "arn:aws:iam::123456789012:role/ingest"}
    with pytest.raises(ConfigError, match=f"`{role}`.*`region`"):
        Catalog(**settings)
    monkeypatch.setenv("REGION", "")
    with pytest.raises(ConfigError, match=f"`{role}`.*`region`"):
        Catalog(**settings, region=dg.EnvVar("REGION")).process_config_and_initialize()
    assert Catalog(**settings, region="eu-central-1").region == "eu-central-1"


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite://",
        "postgresql+psycopg2:///lake",
        "postgresql+psycopg2://user:hidden@/lake?host=/var/run/postgresql",
        "postgresql+psycopg2://user:hidden@db.example",
    ],
)
def test_spark_settings_without_host_or_database_are_refused(uri):
    """Spark's driver has no defaults for them, and no sockets."""
    catalog = Catalog(type="sql", warehouse="s3://lake/tables", uri=uri)
    with pytest.raises(ConfigError, match="names no host or no database.* Set `uri` to") as raised:
        catalog.spark_settings()
    assert "hidden" not in str(raised.value)


def test_spark_settings_have_same_database_as_pyiceberg(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    uris = {
        "sqlite:///lake.db": f"jdbc:sqlite:{tmp_path}/lake.db",
        "postgresql+psycopg2://[::1]/lake": "jdbc:postgresql://[::1]:5432/lake",
        "postgresql+psycopg2://db.example:5433/lake": "jdbc:postgresql://db.example:5433/lake",
    }
    for uri, expected in uris.items():
        settings = Catalog(type="sql", warehouse="s3://lake/tables", uri=uri).spark_settings()
        assert settings["spark.sql.catalog.lake.uri"] == expected


@pytest.mark.parametrize(
    ("problem", "type_"),
    [
        ("When reading 'x': AWS Error ACCESS_DENIED during HeadObject operation: No response body.", RequestRejected),
        ("When getting 'x': AWS Error INVALID_ACCESS_KEY_ID during GetObject operation", RequestRejected),
        ("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7", Unreachable),
    ],
)
def test_refused_keys_of_s3_are_not_an_outage(problem, type_):
    catalog = Catalog(type="sql", warehouse="s3://lake", uri="sqlite:////c.db", s3_endpoint="http://s3:9000")
    error = catalog.backend.to_error(OSError(problem), catalog)
    assert type(error) is type_ and problem in str(error) and "http://s3:9000" in str(error)


def test_catalog_address_has_no_login():
    catalog = Catalog(type="sql", warehouse="s3://lake", uri="postgresql+psycopg2://me:secret@db/lake")
    assert catalog.address == "postgresql+psycopg2://db/lake"
    assert Catalog(type="glue", warehouse="s3://lake", region="eu-west-1").address == "AWS Glue, region eu-west-1"
