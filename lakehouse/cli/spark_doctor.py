"""The part of `lakehouse doctor --env` about Spark's server and the clocks: one line for each difference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pyspark.errors import PySparkException

from lakehouse.core.errors import ClockSkew, Diagnostic, LakehouseError
from resources.aws.clients import boto3_session
from resources.iceberg.commits import MAX_SKEW_SECONDS, format_utc, now_ms
from resources.protocols import Resources
from resources.spark.required_settings import REQUIRED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLOCKS, SPARK = "Clocks", "Spark server"

VERSIONS = {
    "Spark": ("spark-sql-kafka", "version()", 2),
    "Iceberg": ("iceberg-spark-runtime", "java_method('org.apache.iceberg.IcebergBuild', 'version')", 3),
    "Kafka's client": (
        "kafka-clients",
        "java_method('org.apache.kafka.common.utils.AppInfoParser', 'getVersion')",
        2,
    ),
}
"""The jar in jars.lock whose version is expected of each library, a query for the server's version, and the number of
parts of the version that must be equal."""

SECONDS = 5
"""Time limit for S3's response."""


def examine_spark(resources: Resources) -> Iterator[Diagnostic]:
    """Yield the differences of the clocks, and of Spark's settings and jars from those that correctness rests on.

    Args:
        resources: Those of the environment; `catalog` and `spark` at least.
    """
    yield from _clock_of_s3(resources)
    try:
        session = resources.spark.session({})
        differences = [*_settings(session), *_jars(session)]
    except ClockSkew as error:
        yield Diagnostic(CLOCKS, False, f"{error.problem}. {error.effect}", error.remedy)
        return
    except (LakehouseError, PySparkException) as error:
        observation = f"not compared: {str(error).partition(chr(10))[0]}"
        yield Diagnostic(SPARK, False, observation, "Start the server, or correct its address, and repeat the command")
        return
    yield from differences
    if not differences:
        yield Diagnostic(SPARK, True, "its clock, settings and jars are those that correctness rests on")


def _clock_of_s3(resources: Resources) -> Iterator[Diagnostic]:
    """Yield the difference between this machine's clock and that of S3, whose responses have the time."""
    catalog = resources.catalog
    warehouse = urlsplit(catalog.warehouse)
    if warehouse.scheme != "s3":
        return
    limits = Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries={"total_max_attempts": 1})
    try:
        session = boto3_session(catalog.role_arn, catalog.region)
        client = session.client("s3", endpoint_url=catalog.s3_endpoint or None, config=limits)
        response = client.head_bucket(Bucket=warehouse.netloc)
    except ClientError as error:  # a refusal has the time, too
        response = error.response
    except BotoCoreError:
        return  # the diagnoses of identities and executors report it
    if date := response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date"):
        now, s3_time = now_ms(), round(parsedate_to_datetime(date).timestamp() * 1000)
        seconds = abs(now - s3_time) / 1000
        compared = f"this machine's clock shows {format_utc(now)} UTC, S3's {format_utc(s3_time)} UTC"
        remedy = "Synchronize this machine's clock (`timedatectl`, `chronyc tracking`)"
        yield Diagnostic(CLOCKS, seconds <= MAX_SKEW_SECONDS, compared, remedy)


def _settings(session: SparkSession) -> Iterator[Diagnostic]:
    for key, required in REQUIRED.items():
        value = session.conf.get(key, "") or ""
        missing = [part for part in re.split(r"[\s,]", required.value) if part not in value]
        if missing:
            remedy = f"Set `{key} {required.value}` at the server (docs/clusters.md), and start it again"
            yield Diagnostic(SPARK, False, f"{key} lacks {' '.join(missing)}: {required.effect}", remedy)


def _jars(session: SparkSession) -> Iterator[Diagnostic]:
    """Yield the libraries of another version than in jars.lock, and those that the server lacks."""
    lock = files("lakehouse.local").joinpath("jars.lock").read_text()
    for name, (jar, query, parts) in VERSIONS.items():
        [expected] = re.findall(rf"^spark .*/{jar}[^/]*/([\d.]+)/", lock, re.MULTILINE)
        try:
            [(text,)] = session.sql(f"SELECT {query}").collect()
            version = re.match(r"[\d.]*", text)[0]  # type: ignore[index]  # it matches every text
        except PySparkException:
            version = ""
        if version.split(".")[:parts] != expected.split(".")[:parts]:
            has = f"has version {version}" if version else "is not on the class path"
            remedy = (
                "Put the jars of lakehouse/local/jars.lock on the class path (docs/clusters.md, Server requirements)"
            )
            yield Diagnostic(SPARK, False, f"{name} {has}; {expected} is tested", remedy)
