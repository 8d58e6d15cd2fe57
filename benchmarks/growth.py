"""Cost of equal batches as rows, partitions, topics or commits grow: seconds, metadata file size, memory of Spark.

    lakehouse up --only kafka --only registry --only s3 --only spark
    python benchmarks/growth.py

Tables are filled by INSERT … SELECT and then ingest batches from Kafka: staged, audited, published. Each round measures
every size, so that other load on the machine affects all sizes equally; a first round, which warms up Spark, is not
counted. An upsert of keys from the whole table changes all of its files; one of the newest keys, as of orders or
sessions, changes few. Topics are new ones that one stream ingests into new tables. Snapshots that a metadata file is
to have are copies of its newest one. Curves that a run does not measure keep their earlier results in
`benchmarks/results/`, where each has a bar chart as SVG.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import fan_in
import fastavro
from peers import plots
from pyiceberg.serializers import ToOutputFile
from rich.console import Console
from rich.table import Table

from lakehouse.cli.systems import open_clients
from lakehouse.config import loader
from lakehouse.config.model import Topic
from lakehouse.local import stack
from lakehouse.local.home import Home
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from lakehouse.streaming.stream import WORKERS
from resources.kafka.kafka import Kafka
from resources.protocols import Resources

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
"""Rows per INSERT, which writes two files if Spark has two cores."""


def main() -> None:
    """Fill the tables, measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--append", type=_sizes, default=_sizes("1e6,1e7,5e7"), help="rows in tables of appends")
    parser.add_argument("--upsert", type=_sizes, default=_sizes("1e4,1e5,1e6,1e7"), help="rows in tables of upserts")
    parser.add_argument(
        "--partitions", type=_sizes, default=_sizes("6,100,1000"), help="partitions of topics of appends"
    )
    parser.add_argument("--topics", type=_sizes, default=_sizes("10,100,1000"), help="topics of one stream")
    parser.add_argument(
        "--snapshots", type=_sizes, default=_sizes("10,100,1000,10000"), help="snapshots in tables of appends"
    )
    parser.add_argument("--appended", type=int, default=20_000, help="records in a batch of an append")
    parser.add_argument("--merged", type=int, default=1_000, help="keys in a batch of an upsert")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--consecutive", type=int, default=50, help="consecutive batches of one table")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    curves: list[Curve] = []
    with open_clients(loader.load()) as resources:
        if arguments.append:
            subjects = [Subject(resources, "append", rows) for rows in arguments.append]
            title = f"Append of {arguments.appended:,} records, by rows in the table"
            curves.append(growth("append_rows", title, subjects, lambda s: s.new(arguments.appended), arguments.rounds))
        if arguments.partitions:
            subjects = [Subject(resources, "append", 1_000, partitions) for partitions in arguments.partitions]
            title = f"Append of {arguments.appended:,} records, by partitions of the topic"
            curves.append(
                growth("append_partitions", title, subjects, lambda s: s.new(arguments.appended), arguments.rounds)
            )
        if arguments.topics:
            title = f"Stream of {arguments.merged:,} records in each topic, by topics, per topic"
            curves.append(topics("stream_topics", title, Clients.of(resources), arguments.topics, arguments.merged))
        if arguments.snapshots:
            subjects = [Subject(resources, "append", 1_000, snapshots=number) for number in arguments.snapshots]
            title = f"Append of {arguments.appended:,} records, by snapshots of the table"
            curves.append(
                growth("append_snapshots", title, subjects, lambda s: s.new(arguments.appended), arguments.rounds)
            )
        if arguments.upsert:
            subjects = [Subject(resources, "upsert", rows) for rows in arguments.upsert]
            title = f"Upsert of {arguments.merged:,} keys"
            spread, newest = (
                f"{title} from the whole table, by rows of the table",
                f"Upsert of the newest {arguments.merged:,} keys, by rows of the table",
            )
            curves.append(
                growth("upsert_spread", spread, subjects, lambda s: s.spread(arguments.merged), arguments.rounds)
            )
            curves.append(
                growth("upsert_newest", newest, subjects, lambda s: s.newest(arguments.merged), arguments.rounds)
            )
        if arguments.consecutive:
            appended, merged = Subject(resources, "append", 1_000), Subject(resources, "upsert", 1_000_000)
            title = f"Append of {arguments.merged:,} records, consecutive batches"
            curves.append(
                consecutive("append_commits", title, appended, lambda s: s.new(arguments.merged), arguments.consecutive)
            )
            title = f"Upsert of {arguments.merged:,} keys from a million rows, consecutive batches"
            curves.append(
                consecutive(
                    "upsert_commits", title, merged, lambda s: s.spread(arguments.merged), arguments.consecutive
                )
            )
    arguments.results.mkdir(exist_ok=True)
    results = arguments.results / "growth.json"
    earlier = json.loads(results.read_text()) if results.exists() else []
    by_name = {curve["name"]: curve for curve in [*earlier, *map(asdict, curves)]}
    results.write_text(json.dumps([*by_name.values()], indent=1) + "\n")
    for curve in curves:
        bars = [(point.at, point.seconds) for point in curve.points]
        chart = plots.bars(f"{curve.title}: seconds", bars, ".2f", highlighted=len(bars))
        (arguments.results / f"growth_{curve.name}.svg").write_text(chart)


@dataclass(frozen=True)
class Point:
    """Median, minimum and maximum seconds of equal batches at one size, and the size of the table's metadata file."""

    at: str
    seconds: float
    least: float
    most: float
    metadata_kb: float


@dataclass(frozen=True)
class Curve:
    """Points in order of size, and the memory of Spark's server after them."""

    name: str
    title: str
    spark_mb: float
    points: list[Point]


class Subject:
    """A table with `rows` rows and at least `snapshots` snapshots, and its topic with `partitions` partitions."""

    def __init__(self, resources: Resources, mode: str, rows: int, partitions: int = 6, snapshots: int = 0):
        systems = Clients.of(resources)
        self.systems, self.spark, self.rows, self.partitions = systems, resources.spark, rows, partitions
        self.snapshots = snapshots
        self.topic = Topic.model_validate({"name": f"bench_{mode}_{time.time_ns()}", "mode": mode, "key": "id"})
        self.namespace = "growth"
        self.random = random.Random(rows)
        systems.kafka.ensure_topic(self.topic.name, partitions)
        self.schema_id = systems.schema_registry.register(f"{self.topic.name}-value", SCHEMA)
        self.ingest(range(1_000))
        self.fill()
        self.add_snapshots()

    def fill(self) -> None:
        spark = self.spark.session(self.systems.catalog.spark_settings())
        target = self.topic.table_in(self.namespace).spark_path()
        for start in range(1_000, self.rows, FILL_ROWS):
            end = min(start + FILL_ROWS, self.rows)
            spark.sql(
                f"INSERT INTO {target} SELECT concat('account_', id), concat('owner_', hash(id)), xxhash64(id), "
                f"id % 3 = 0, 0, id, timestamp_seconds(1700000000 + id DIV 1000), 1 FROM range({start}, {end})"
            )

    def add_snapshots(self) -> None:
        """Let the table's metadata have more snapshots before the newest one, which are copies of it."""
        ref = self.topic.table_in(self.namespace)
        table = self.systems.catalog.load(ref)
        newest = table.current_snapshot()
        first = newest.snapshot_id - self.snapshots
        copies = [
            newest.model_copy(update={"snapshot_id": first + n, "parent_snapshot_id": first + n - 1 if n else None})
            for n in range(self.snapshots - len(table.metadata.snapshots))
        ]
        if copies:
            others = [one for one in table.metadata.snapshots if one is not newest]
            metadata = table.metadata.model_copy(update={"snapshots": [*copies, *others, newest]})
            location = f"{table.metadata_location}.copies.metadata.json"
            ToOutputFile.table_metadata(metadata, table.io.new_output(location))
            catalog = self.systems.catalog.iceberg()
            catalog.drop_table(table.name())
            catalog.register_table(table.name(), location)

    def new(self, records: int) -> Iterable[int]:
        return range(self.rows, self.rows + records)

    def spread(self, keys: int) -> Iterable[int]:
        return self.random.sample(range(self.rows), keys)

    def newest(self, keys: int) -> Iterable[int]:
        return range(self.rows - keys, self.rows)

    def ingest(self, ids: Iterable[int]) -> float:
        """Produce and ingest records with the ids, and return the seconds of the ingestion."""
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
        """Return the size of the metadata file, which each commit rewrites and each reader reads first."""
        table = self.systems.catalog.load(self.topic.table_in(self.namespace))
        return len(table.io.new_input(table.metadata_location))

    def _framed(self, record: dict[str, object]) -> bytes:
        body = io.BytesIO()
        body.write(b"\x00" + self.schema_id.to_bytes(4, "big"))
        fastavro.schemaless_writer(body, PARSED, record)
        return body.getvalue()


def growth(
    name: str, title: str, subjects: list[Subject], ids: Callable[[Subject], Iterable[int]], rounds: int
) -> Curve:
    """Measure the batches of each subject."""
    seconds: dict[Subject, list[float]] = {subject: [] for subject in subjects}
    for _ in range(rounds + 1):
        for subject in subjects:
            seconds[subject].append(subject.ingest(ids(subject)))
    kind = next(kind for kind in ("partitions", "snapshots", "rows") if len({getattr(s, kind) for s in subjects}) > 1)
    return shown(name, title, [point(f"{getattr(s, kind):,} {kind}", seconds[s][1:], s) for s in subjects])


def topics(name: str, title: str, systems: Clients, numbers: list[int], records: int) -> Curve:
    """Measure streams that ingest new topics until their ends. A first stream warms up Spark."""
    points = []
    for number in [numbers[0], *numbers]:
        seconds, _ = fan_in.ingest_together(fan_in.filled_topics(systems, number, records, 1), systems, WORKERS)
        per_topic = seconds / number
        points.append(Point(f"{number:,} topics", per_topic, per_topic, per_topic, 0))
    return shown(name, title, points[1:])


def consecutive(
    name: str, title: str, subject: Subject, ids: Callable[[Subject], Iterable[int]], batches: int
) -> Curve:
    """Measure consecutive batches, while snapshots and position deletes accumulate: one point per tenth of them."""
    points, step = [], max(1, batches // 10)
    for start in range(1, batches + 1, step):
        end = min(start + step - 1, batches)
        points.append(
            point(f"{start} to {end}", [subject.ingest(ids(subject)) for _ in range(start, end + 1)], subject)
        )
    return shown(name, title, points)


def point(at: str, seconds: list[float], subject: Subject) -> Point:
    return Point(at, statistics.median(seconds), min(seconds), max(seconds), subject.metadata_bytes() / 1e3)


def shown(name: str, title: str, points: list[Point]) -> Curve:
    """Return the curve and print it."""
    curve = Curve(name, title, spark_megabytes(), points)
    columns = ("seconds for an equal batch", "min to max", "ratio to the first", "metadata KB")
    table = Table("at", *columns, title=f"{title} (Spark: {curve.spark_mb:,.0f} MB)")
    for point in points:
        ratio = point.seconds / points[0].seconds
        spread = f"{point.least:.2f} to {point.most:.2f}"
        table.add_row(point.at, f"{point.seconds:.2f}", spread, f"{ratio:.2f}", f"{point.metadata_kb:,.0f}")
    Console().print(table)
    return curve


def spark_megabytes() -> float:
    """Return the resident memory of the embedded Spark server."""
    return next(server.resident_bytes for server in stack.status(Home.default()) if server.name == "spark") / 1e6


def _sizes(text: str) -> list[int]:
    return [int(float(part)) for part in text.split(",") if part]


if __name__ == "__main__":
    main()
