"""Differences of Spark's server and of the clocks, as `lakehouse doctor --env` reports them."""

import time
from types import SimpleNamespace

import pytest

from lakehouse.cli.spark_doctor import CLOCKS, SPARK, VERSIONS, examine_spark


@pytest.fixture
def systems(resources):
    """The resources with a Spark session of their own."""
    spark = resources.spark.with_own_session()
    yield SimpleNamespace(catalog=resources.catalog, spark=spark)
    spark.close()


def test_embedded_stack_has_no_difference(systems):
    diagnostics = [*examine_spark(systems)]
    assert [(diagnostic.subject, diagnostic.ok) for diagnostic in diagnostics] == [(CLOCKS, True), (SPARK, True)]


def test_different_settings_and_jars_are_reported_line_by_line(systems, monkeypatch):
    absent = "java_method('org.example.Absent', 'version')"
    monkeypatch.setitem(VERSIONS, "Iceberg", ("iceberg-spark-runtime", absent, 3))
    monkeypatch.setitem(VERSIONS, "Kafka's client", ("kafka-clients", "'3.5.1'", 2))
    systems.spark.session({"spark.sql.session.timeZone": "Europe/Berlin"})
    zone, iceberg, kafka = [diagnostic for diagnostic in examine_spark(systems) if not diagnostic.ok]
    assert "spark.sql.session.timeZone lacks UTC" in zone.observation and "Set `spark.sql.session" in zone.remedy
    assert iceberg.observation == "Iceberg is not on the class path; 1.12.0 is tested"
    assert kafka.observation.startswith("Kafka's client has version 3.5.1; ") and "jars.lock" in kafka.remedy


def test_clock_that_differs_is_reported_for_s3_and_spark(systems, monkeypatch):
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 120 * 10**9)
    s3, spark = examine_spark(systems)
    assert (s3.subject, s3.ok, spark.subject, spark.ok) == (CLOCKS, False, CLOCKS, False)
    assert "S3's" in s3.observation and "ahead of Spark's" in spark.observation
    assert all("chronyc tracking" in diagnostic.remedy for diagnostic in (s3, spark))
