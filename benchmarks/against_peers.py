"""Comparison of lakehouse and other tools that ingest one Kafka topic of stock trades into Iceberg, on one machine.

    python benchmarks/against_peers.py --records 2000000

It starts a separate stack (Kafka, registry, S3, catalog, Spark) in a temporary folder, and downloads the jars of the
other tools, locked by hash. Each contender is warmed up with a small topic and then catches up with a large one: the
same topic, an equal empty table, and the same catalog and store. The offsets in the rows verify that every record was
committed exactly once. Freshness is the time until a reader sees a few hundred additional records. The contenders run
one after another. With several rounds, the order rotates, so that not always the same one is first, while the broker's
files are not in memory yet; the result of a contender is the median of its rounds. Results are written to
benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import psutil
from ingest import FIELDS, fill
from peers import measure, plots, pyiceberg_loop
from peers.connect_sink import ConnectSink
from peers.contender import COMMIT_SECONDS, NAMESPACE, Contender, PythonContender, Stack
from peers.flink_sql import FlinkSql
from peers.lakehouse_itself import Lakehouse
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from rich.console import Console
from rich.table import Table

from lakehouse.cli.systems import open_clients
from lakehouse.config import loader
from lakehouse.local import stack as local_stack
from lakehouse.local.client_environment import environment
from lakehouse.local.home import Home
from lakehouse.pipeline.clients import Clients
from resources.iceberg.catalog import PROPERTIES

RESULTS = Path(__file__).with_name("results")
SERVERS = ("kafka", "registry", "s3", "spark")
WARM_UP = 50_000
MORE, TIMES = 200, 5
"""Number of records of each freshness measurement, and number of measurements."""


def main() -> None:
    """Measure and verify all contenders and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", help="name of a contender; may be repeated")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--note", default="", help="remark that is stored with the results")
    arguments = parser.parse_args()
    if find_spec("lakehouse_native") is None:
        parser.error("the compiled decoder is not installed. Run `make native`")
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        home = Home(Path(folder) / "home")
        local_stack.up(home, SERVERS)
        try:
            os.environ.update(environment(home), LAKEHOUSE_HOME=str(home.path), LAKEHOUSE_ENV="local")
            rounds = _all(home, Path(folder), arguments.records, arguments.rounds, arguments.only)
        finally:
            local_stack.down(home)
    results = [measure.median(measured) for measured in rounds.values()]
    report = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{psutil.cpu_count()} cores, {psutil.virtual_memory().total / 1e9:.0f} GB, {platform.system()}",
        "note": arguments.note,
        "commit_seconds": COMMIT_SECONDS,
        "results": [result.to_json() for result in results],
        "rounds": {name: [result.to_json() for result in measured] for name, measured in rounds.items()},
    }
    arguments.results.mkdir(exist_ok=True)
    (arguments.results / "against_peers.json").write_text(json.dumps(report, indent=2) + "\n")
    plots.draw(results, arguments.results)
    show(results)


def _all(
    home: Home, folder: Path, records: int, rounds: int, only: list[str] | None
) -> dict[str, list[measure.Result]]:
    """Return the result of each round by the name of the contender."""
    with open_clients(loader.load()) as resources:
        systems = Clients.of(resources)
        catalog = resources.catalog.iceberg()
        catalog.create_namespace_if_not_exists(NAMESPACE)
        stack = Stack(
            kafka=os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            registry=os.environ["SCHEMA_REGISTRY_URL"],
            catalog=home.catalog,
            warehouse=os.environ["ICEBERG_WAREHOUSE"],
            s3=os.environ["AWS_ENDPOINT_URL_S3"],
            region=os.environ["AWS_REGION"],
            folder=folder,
        )
        makers: dict[str, Callable[[str, Stack], Contender]] = {
            "lakehouse": lambda name, stack: Lakehouse(name, "auto", stack, home),
            "lakehouse, native: off": lambda name, stack: Lakehouse(name, "off", stack, home),
            "Flink SQL": lambda name, stack: FlinkSql(stack),
            "Kafka Connect": lambda name, stack: ConnectSink(stack),
            "pyiceberg loop": lambda name, stack: PythonContender(name, pyiceberg_loop.work, stack),
        }
        names = [name for name in makers if not only or name in only]
        warm_up, topic = (fill(systems, count, "avro") for count in (WARM_UP, records))
        more = _producer(systems, topic)
        results: dict[str, list[measure.Result]] = {name: [] for name in names}
        for number in range(rounds):
            of_round = replace(stack, folder=folder / f"round-{number + 1}")
            of_round.folder.mkdir()
            first = number % len(names)
            for name in names[first:] + names[:first]:
                contender = makers[name](name, of_round)
                contender.start()
                try:
                    results[name].append(_measure(contender, number, catalog, stack, warm_up, topic, more))
                    print(json.dumps(results[name][-1].to_json()), flush=True)
                finally:
                    contender.stop()
        return results


def _producer(systems: Clients, topic: str) -> Callable[[], None]:
    """Return a function that produces the first MORE records of the topic to it again."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": systems.kafka.bootstrap_servers, "group.id": "more"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [message.value() for message in consumer.consume(MORE, timeout=20)]
    consumer.close()
    producer = systems.kafka.producer()

    def produce() -> None:
        for number, value in enumerate(values):
            producer.produce(topic, key=str(number), value=value)
        producer.flush()

    return produce


def _measure(
    contender: Contender,
    number: int,
    catalog: Catalog,
    stack: Stack,
    warm_up: str,
    topic: str,
    more: Callable[[], None],
) -> measure.Result:
    name = "".join(letter if letter.isalnum() else "_" for letter in contender.name.lower())
    tables = {source: f"{name}_{number}_{what}" for source, what in ((warm_up, "warm_up"), (topic, "trades"))}
    for table in tables.values():
        if not contender.creates_table:
            catalog.create_table((NAMESPACE, table), _schema(), properties=PROPERTIES)
    contender.begin(warm_up, tables[warm_up])
    measure.await_rows(catalog, tables[warm_up], sum(measure.ends(stack.kafka, warm_up).values()), contender, 600)
    contender.end()
    table, records = tables[topic], sum(measure.ends(stack.kafka, topic).values())
    with measure.metered(contender) as used:
        began = time.monotonic()
        contender.begin(topic, table)
        measure.await_rows(catalog, table, records, contender, 300 + records / 5_000)
        seconds = time.monotonic() - began
    commits, freshness = measure.commits(catalog, table), []
    for time_ in range(1, TIMES + 1):
        began = time.monotonic()
        more()
        measure.await_rows(catalog, table, records + time_ * MORE, contender, 300)
        freshness.append(round(time.monotonic() - began, 2))
    contender.end()
    measure.verify(catalog, table, measure.ends(stack.kafka, topic))
    return measure.Result(
        contender=contender.name,
        records=records,
        seconds=round(seconds, 2),
        records_per_second=round(records / seconds),
        peak_rss_mb=round(used.peak_bytes / 1e6),
        cpu_seconds_per_million=round(used.cpu_seconds / records * 1e6, 2),
        commits=commits,
        freshness_seconds=sorted(freshness),
    )


def _schema() -> Schema:
    types = {"string": StringType(), "int": IntegerType()}
    columns = {name: types[type_] for name, type_ in FIELDS.items()}
    columns |= {"kafka_partition": IntegerType(), "kafka_offset": LongType()}
    return Schema(*(NestedField(n, name, type_, required=False) for n, (name, type_) in enumerate(columns.items(), 1)))


def show(results: list[measure.Result]) -> None:
    """Print the results as a table."""
    columns = ("contender", "records/s", "peak memory MB", "CPU s/million", "commits", "freshness s: median, max")
    table = Table(*columns)
    for r in results:
        fresh = f"{r.freshness_seconds[len(r.freshness_seconds) // 2]:.1f}, {r.freshness_seconds[-1]:.1f}"
        numbers = (f"{r.records_per_second:,}", f"{r.peak_rss_mb:,.0f}", f"{r.cpu_seconds_per_million:.1f}")
        table.add_row(r.contender, *numbers, str(r.commits), fresh)
    Console().print(table)


if __name__ == "__main__":
    main()
