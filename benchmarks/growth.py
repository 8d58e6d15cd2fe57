"""What equal batches cost as rows, partitions or commits grow: seconds, the table's metadata file, Spark's memory.

    lakehouse up --only kafka --only registry --only s3 --only spark
    python benchmarks/growth.py

Tables are filled by INSERT … SELECT and then take real batches from Kafka: staged, audited, published. Each round
visits every size, so that whatever else the machine does hits all sizes alike; a first round that warms Spark up is
not counted. Keys drawn from the whole table spare no file of it; the newest keys, as of orders or sessions, spare most.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import time
from collections.abc import Callable, Iterable

import fastavro
from rich.console import Console
from rich.table import Table

from assets.ingestion import Systems, ingest
from lakehouse import config as configuration
from lakehouse import naming
from lakehouse.local import stack
from lakehouse.local.home import Home
from lakehouse.systems import connected
from lakehouse.topic import Topic
from resources.kafka import Kafka

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Account",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "owner", "type": "string"},
            {"name": "balance", "type": "long"},
            {"name": "active", "type": "boolean"},
        ],
    }
)
PARSED = fastavro.parse_schema(json.loads(SCHEMA))
FILL_ROWS = 1_000_000
"""Rows an INSERT: two files each where Spark has two cores."""


def main() -> None:
    """Fill tables, then measure."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--append", type=_sizes, default=_sizes("1e6,1e7,5e7"), help="rows in tables appended to")
    arguments.add_argument(
        "--upsert", type=_sizes, default=_sizes("1e4,1e5,1e6,1e7"), help="rows in tables merged into"
    )
    arguments.add_argument("--partitions", type=_sizes, default=_sizes("6,100,1000"), help="of topics appended from")
    arguments.add_argument("--appended", type=int, default=20_000, help="records in a batch that is appended")
    arguments.add_argument("--merged", type=int, default=1_000, help="keys in a batch that is merged")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--consecutive", type=int, default=50, help="batches into one table, one after another")
    given = arguments.parse_args()
    with connected(configuration.load()) as found:
        systems = Systems(found.kafka, found.schema_registry, found.spark, found.catalog)
        if given.append:
            subjects = [Subject(systems, "append", rows) for rows in given.append]
            growth("append", subjects, lambda s: s.new(given.appended), given.rounds)
        if given.partitions:
            subjects = [Subject(systems, "append", 1_000, partitions) for partitions in given.partitions]
            growth("append, partitions", subjects, lambda s: s.new(given.appended), given.rounds)
        if given.upsert:
            subjects = [Subject(systems, "upsert", rows) for rows in given.upsert]
            growth("upsert, keys from the whole table", subjects, lambda s: s.spread(given.merged), given.rounds)
            growth("upsert, newest keys", subjects, lambda s: s.newest(given.merged), given.rounds)
        if given.consecutive:
            merged = Subject(systems, "upsert", 1_000_000)
            consecutive("upsert", merged, lambda s: s.spread(given.merged), given.consecutive)
            appended = Subject(systems, "append", 1_000)
            consecutive("append", appended, lambda s: s.new(given.merged), given.consecutive)


class Subject:
    """A table of so many rows and the topic that feeds it, of so many partitions."""

    def __init__(self, systems: Systems, mode: str, rows: int, partitions: int = 6):
        self.systems, self.rows, self.partitions = systems, rows, partitions
        self.topic = Topic.model_validate({"name": f"bench_{mode}_{time.time_ns()}", "mode": mode, "key": "id"})
        self.namespace = "growth"
        self.chance = random.Random(rows)
        systems.kafka.ensure_topic(self.topic.name, partitions)
        self.schema_id = systems.schema_registry.register(f"{self.topic.name}-value", SCHEMA)
        self.ingest(range(1_000))
        self.fill()

    def fill(self) -> None:
        spark = self.systems.spark.session(self.systems.catalog.spark_settings())
        target = naming.spark_table(self.namespace, self.topic.table)
        for start in range(1_000, self.rows, FILL_ROWS):
            end = min(start + FILL_ROWS, self.rows)
            spark.sql(
                f"INSERT INTO {target} SELECT concat('account_', id), concat('owner_', hash(id)), xxhash64(id), "
                f"id % 3 = 0, 0, id, timestamp_seconds(1700000000 + id DIV 1000), 1 FROM range({start}, {end})"
            )

    def new(self, records: int) -> Iterable[int]:
        return range(self.rows, self.rows + records)

    def spread(self, keys: int) -> Iterable[int]:
        return self.chance.sample(range(self.rows), keys)

    def newest(self, keys: int) -> Iterable[int]:
        return range(self.rows - keys, self.rows)

    def ingest(self, ids: Iterable[int]) -> float:
        """Seconds from records in a topic to a published, audited table."""
        producer = self.systems.kafka.producer()
        for number in ids:
            record = {"id": f"account_{number}", "owner": "someone", "balance": number, "active": True}
            Kafka.enqueue(producer, self.topic.name, record["id"].encode(), self._framed(record))
        producer.flush()
        began = time.monotonic()
        for _ in ingest(self.namespace, self.topic, self.systems):
            pass
        return time.monotonic() - began

    def metadata_bytes(self) -> int:
        """Of the file that each commit writes anew and each reader reads first."""
        table = self.systems.catalog.load(self.namespace, self.topic.table)
        return len(table.io.new_input(table.metadata_location))

    def _framed(self, record: dict[str, object]) -> bytes:
        body = io.BytesIO()
        body.write(b"\x00" + self.schema_id.to_bytes(4, "big"))
        fastavro.schemaless_writer(body, PARSED, record)
        return body.getvalue()


def growth(title: str, subjects: list[Subject], ids: Callable[[Subject], Iterable[int]], rounds: int) -> None:
    """Print the median seconds of each subject's batches, and its ratio to the first subject's."""
    seconds = {subject: [] for subject in subjects}
    for _ in range(rounds + 1):
        for subject in subjects:
            seconds[subject].append(subject.ingest(ids(subject)))
    columns = ("seconds for an equal batch", "least to most", "ratio to the first", "metadata KB")
    table = Table("rows in table", "partitions", *columns, title=f"{title} (Spark: {spark_megabytes():,.0f} MB)")
    first = statistics.median(seconds[subjects[0]][1:])
    for subject in subjects:
        measured = seconds[subject][1:]
        middle = statistics.median(measured)
        spread = f"{min(measured):.2f} to {max(measured):.2f}"
        size = f"{subject.metadata_bytes() / 1e3:,.0f}"
        table.add_row(
            f"{subject.rows:,}", f"{subject.partitions:,}", f"{middle:.2f}", spread, f"{middle / first:.2f}", size
        )
    Console().print(table)


def consecutive(title: str, subject: Subject, ids: Callable[[Subject], Iterable[int]], batches: int) -> None:
    """Print how the time of a batch changes while snapshots, and position deletes, pile up."""
    table = Table("batches", "median seconds", "ratio to the first", "metadata KB", title=f"{title}, one after another")
    first = None
    for start in range(1, batches + 1, 10):
        end = min(start + 9, batches)
        middle = statistics.median(subject.ingest(ids(subject)) for _ in range(start, end + 1))
        first = first or middle
        size = f"{subject.metadata_bytes() / 1e3:,.0f}"
        table.add_row(f"{start} to {end}", f"{middle:.2f}", f"{middle / first:.2f}", size)
    Console().print(table)


def spark_megabytes() -> float:
    """Resident memory of the embedded Spark server."""
    return next(server.resident_bytes for server in stack.status(Home.default()) if server.name == "spark") / 1e6


def _sizes(text: str) -> list[int]:
    return [int(float(part)) for part in text.split(",") if part]


if __name__ == "__main__":
    main()
