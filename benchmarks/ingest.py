"""Records per second from a Kafka topic into a published Iceberg table, compared to reading alone.

    lakehouse up --only kafka --only registry --only s3 --only spark
    python benchmarks/ingest.py --records 3000000 --format avro

Each round ingests the same topic of stock trades into a new table; the first round also warms up Spark.

    lakehouse up --only kafka --only registry --only s3
    python benchmarks/ingest.py --against ../other-checkout --records 500000 --rounds 5

Two builds ingest the same topics in turn, batch by batch, in their own environments and into their own tables. Each
batch has `--records` records. The first batch of each case also warms up Spark, and is not counted.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import sys
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import fastavro
from builds import print_comparison, python_of, started

from lakehouse.cli.systems import open_clients
from lakehouse.config import loader
from lakehouse.config.model import Topic
from lakehouse.core.offsets.batch import next_batch
from lakehouse.formats.protobuf import protobuf_format
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.local.client_environment import environment
from lakehouse.local.home import Home
from lakehouse.local.servers.synthetic_records import messages
from lakehouse.pipeline.batches.positions import read_log
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from resources.kafka.kafka import Kafka
from resources.protocols import SparkClient
from tools.repository import PROJECT

DISTINCT = 20_000

FIELDS = {
    "side": "string",
    "quantity": "int",
    "symbol": "string",
    "price": "int",
    "account": "string",
    "userid": "string",
}
JSON_TYPES = {"string": {"type": "string"}, "int": {"type": "integer"}}
PROTOBUF_TYPES = {"string": "string", "int": "int32"}
SCHEMAS = {
    "avro": ("AVRO", ""),
    "json_schema": (
        "JSON",
        json.dumps({"type": "object", "properties": {name: JSON_TYPES[type_] for name, type_ in FIELDS.items()}}),
    ),
    "protobuf": (
        "PROTOBUF",
        'syntax = "proto3"; message Trade {'
        + " ".join(f"{PROTOBUF_TYPES[type_]} {name} = {n};" for n, (name, type_) in enumerate(FIELDS.items(), 1))
        + "}",
    ),
}
"""Type and text of the schema of a stock trade by format; the Avro schema is in schemas/."""

BAD_EVERY = 20
"""One of so many records is a dead letter in the case of dead letters."""

QUARANTINE = {
    "small": {"type": "range", "column": "quantity", "max": 4950, "severity": "quarantine"},
    "dear": {"type": "expression", "sql": "price >= 10", "severity": "quarantine"},
}
UPSERT = {"mode": "upsert", "key": ("userid", "symbol", "quantity"), "key_format": "none"}
CASES: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "append": ("avro", False, {}),
    "dead_letters": ("avro", True, {"errors": "log"}),
    "quarantine": ("avro", False, {"checks": QUARANTINE}),
    "upsert": ("avro", False, UPSERT),
    "upsert_dead_letters": ("avro", True, UPSERT | {"errors": "log"}),
    "json_schema": ("json_schema", False, {}),
    "protobuf": ("protobuf", False, {}),
}
"""Cases of a comparison: the format, whether some records do not decode, and further settings of the topic."""


def main() -> None:
    """Produce the records, measure, and print the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--format", choices=SCHEMAS, default="avro")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another build, which has a .venv")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="cases of a comparison")
    arguments = parser.parse_args()
    if arguments.against:
        compare(arguments.against.resolve(), arguments.records, arguments.rounds, arguments.cases)
        return
    with open_clients(loader.load()) as connected_systems:
        systems = Clients.of(connected_systems)
        topic = fill(systems, arguments.records, arguments.format)
        rates: dict[str, list[float]] = {"read": [], "ingest": []}
        for number in range(arguments.rounds):
            rates["read"].append(arguments.records / read(systems, connected_systems.spark, topic))
            rates["ingest"].append(arguments.records / ingested(systems, topic, arguments.format, number))
            print(f"round {number + 1}: " + ", ".join(f"{kind} {r[-1]:,.0f} records/s" for kind, r in rates.items()))
        for kind, measured in rates.items():
            low, middle, high = min(measured), statistics.median(measured), max(measured)
            print(f"{kind}: min {low:,.0f}, median {middle:,.0f}, max {high:,.0f} records/s")


def compare(checkout: Path, records: int, rounds: int, cases: list[str]) -> None:
    """Ingest batch by batch with this build and another one, and print the rates.

    Args:
        checkout: The folder of the other build.
        records: The records of each batch.
        rounds: The batches of each case that count.
        cases: Names of cases.
    """
    python_of(checkout)
    home, number_of_run = Home.default(), time.time_ns()
    with open_clients(loader.load()) as resources:
        systems = Clients.of(resources)
        inputs = dict.fromkeys(CASES[case][:2] for case in cases)
        topics = {key: fill(systems, records * (rounds + 1), key[0], has_bad=key[1]) for key in inputs}
    rates: dict[str, dict[str, list[float]]] = {case: {"this": [], "other": []} for case in cases}
    variables = environment(home)
    with (
        started(PROJECT, "this", home, variables) as this,
        started(checkout, "other", home, variables) as other,
    ):
        for number in range(rounds + 1):
            for position, case in enumerate(cases):
                format_, has_bad, settings = CASES[case]
                topic = {"name": topics[format_, has_bad], "key": ("userid",), "value_format": format_, **settings}
                topic["max_records_per_batch"] = records
                responses = {}
                for build in (this, other) if (number + position) % 2 else (other, this):
                    namespace = f"bench_{build.name}_{case}_{number_of_run}"
                    responses[build.name] = build.ask(case=case, namespace=namespace, topic=topic)
                counts = [response["counts"] for response in responses.values()]
                if counts[0] != counts[1]:
                    sys.exit(f"{case}: the builds ingested the same records differently: {counts}")
                for name, response in responses.items() if number else ():
                    rates[case][name].append(response["counts"]["consumed"] / response["seconds"])
            print(f"round {number} of {rounds}", "" if number else "(not counted)", flush=True)
    print_comparison("records/s", rates, checkout)


def fill(systems: Clients, records: int, format_: str, *, has_bad: bool = False) -> str:
    """Create a topic with `records` stock trades, of which DISTINCT differ, and return its name.

    Args:
        systems: Clients of the systems.
        records: The number of records.
        format_: The format of the values.
        has_bad: Whether one of BAD_EVERY records ends too early.
    """
    topic = f"bench_{time.time_ns()}"
    schema = (PROJECT / "schemas/stock_trades.avsc").read_text()
    systems.kafka.ensure_topic(topic, 6)
    type_, text = SCHEMAS[format_]
    schema_id = systems.schema_registry.register(f"{topic}-value", text or schema, type_)
    pool = list(islice(messages(schema, schema_id, "userid"), DISTINCT))
    if text:
        pool = [(key, encoded(format_, text, schema, value)) for key, value in pool]
    if has_bad:
        pool = [(key, value if n % BAD_EVERY else value[:6]) for n, (key, value) in enumerate(pool)]
    producer = systems.kafka.producer(queue_buffering_max_messages=1_000_000)
    for number, (_, value) in enumerate(islice(cycle(pool), records)):
        Kafka.enqueue(producer, topic, str(number).encode(), value)
    producer.flush()
    return topic


def encoded(format_: str, text: str, avro: str, value: bytes) -> bytes:
    """Return an Avro message in another format, with the same frame."""
    from google.protobuf.message_factory import GetMessageClass

    record = fastavro.schemaless_reader(io.BytesIO(value[5:]), json.loads(avro), None)
    if format_ == "json_schema":
        return value[:5] + json.dumps(record).encode()
    message = GetMessageClass(protobuf_format.message(RegisteredSchema(0, text, "PROTOBUF")))
    return value[:5] + b"\x00" + message(**record).SerializeToString()


def read(systems: Clients, server: SparkClient, topic: str) -> float:
    """Return the seconds of reading every record without further work."""
    from spark.records import read_range

    spark = server.session(systems.catalog.spark_settings())
    began = time.monotonic()
    batch = next_batch(None, read_log(systems.kafka, topic), topic)
    read_range(spark, systems.kafka.spark_options(), batch).write.format("noop").mode("overwrite").save()
    return time.monotonic() - began


def ingested(systems: Clients, topic: str, format_: str, number: int) -> float:
    """Return the seconds of the ingestion into a new, audited and published table."""
    began = time.monotonic()
    for _ in ingest(
        f"bench_{number}_{time.time_ns()}", Topic(name=topic, key=("userid",), value_format=format_), systems
    ):
        pass
    return time.monotonic() - began


if __name__ == "__main__":
    main()
