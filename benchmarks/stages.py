"""Time of an Avro append by stage. Each measurement runs the stages before it and one more.

lakehouse up --only kafka --only registry --only s3 --only spark
python benchmarks/stages.py --records 2000000 --rounds 5
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

from ingest import fill, ingested
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from lakehouse.cli.systems import open_clients
from lakehouse.config import loader
from lakehouse.config.model import Topic
from lakehouse.core.offsets.batch import next_batch
from lakehouse.pipeline.batches.positions import read_log
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.engine_values import Target
from lakehouse.pipeline.schemas.decoding import resolve_schemas
from lakehouse.pipeline.schemas.schema_decision import ensure_table
from resources.protocols import SparkClient
from spark.decoding.decode import decode
from spark.engine import with_codecs
from spark.records import read_range
from spark.tables import write

NAMESPACE = "stages"
OLD_INTERFACE = "spark.sql.sources.useV1SourceList"


def main() -> None:
    """Measure every stage in each round, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with open_clients(loader.load()) as resources:
        systems = Clients.of(resources)
        stages = _stages(systems, resources.spark, fill(systems, arguments.records, "avro"))
        seconds: dict[str, list[float]] = {name: [] for name in stages}
        for _ in range(arguments.rounds + 1):
            for name, stage in stages.items():
                began = time.monotonic()
                stage()
                seconds[name].append(time.monotonic() - began)
    _print({name: statistics.median(measured[1:]) for name, measured in seconds.items()}, arguments.records)


def _stages(systems: Clients, server: SparkClient, name: str) -> dict[str, Callable[[], object]]:
    topic = Topic(name=name, key=("userid",))
    spark = server.session(systems.catalog.spark_settings())
    schemas = replace(resolve_schemas(systems.schema_registry, topic), reads_header_ids=False)
    decoding = with_codecs(schemas.decoding())
    ensure_table(systems.catalog, topic, topic.table_in(NAMESPACE), schemas)
    batch = next_batch(None, read_log(systems.kafka, name), name)

    def records() -> DataFrame:
        return read_range(spark, systems.kafka.spark_options(), batch, headers=True)

    def read_untuned() -> None:
        setting = spark.conf.get(OLD_INTERFACE)
        spark.conf.set(OLD_INTERFACE, "kafka")
        options = {**systems.kafka.spark_options(), "subscribe": name, "kafka.isolation.level": "read_committed"}
        _noop(spark.read.format("kafka").options(**options).load())
        spark.conf.set(OLD_INTERFACE, setting)

    def write_branch() -> None:
        branch = f"stage_{uuid.uuid4().hex[:8]}"
        write.create_branch(spark, topic.table_in(NAMESPACE), branch)
        write.append(decode(records(), decoding), Target(topic.table_in(NAMESPACE), branch, {}))

    return {
        "read with Spark's defaults": read_untuned,
        "read": lambda: _noop(records()),
        "and run Avro's decoder": lambda: _noop(records().select(decoding.value.decode(F.col("value")))),
        "and classify each record": lambda: _noop(decode(records(), decoding)),
        "and count, write Parquet, commit to a branch": write_branch,
        "the whole ingestion": lambda: ingested(systems, name, "avro", 0),
    }


def _noop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _print(medians: dict[str, float], records: int) -> None:
    table, before = Table("stage", "seconds", "difference", "records/s", "relative to reading"), 0.0
    untuned, read = list(medians.values())[:2]
    print(f"Read with Spark's defaults: {untuned:.2f} s, {records / untuned:,.0f} records/s")
    for name, seconds in list(medians.items())[1:]:
        more, rate = f"{seconds - before:.2f}", f"{records / seconds:,.0f}"
        table.add_row(name, f"{seconds:.2f}", more, rate, f"{read / seconds:.2f}")
        before = seconds
    Console().print(table)


if __name__ == "__main__":
    main()
