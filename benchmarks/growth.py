"""What equal batches cost as rows, partitions or commits grow: seconds, the table's metadata file, Spark's memory.

    lakehouse up --only kafka --only registry --only s3 --only spark
    python benchmarks/growth.py

Tables are filled by INSERT … SELECT and then take real batches from Kafka: staged, audited, published. Each round
visits every size, so that whatever else the machine does hits all sizes alike; a first round that warms Spark up is
not counted. Keys drawn from the whole table spare no file of it; the newest keys, as of orders or sessions, spare most.
What was found is written to `benchmarks/results/`, with bars as SVG.
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

import fastavro
from peers import plots
from rich.console import Console
from rich.table import Table

from lakehouse.cli.systems import connected
from lakehouse.config import loader
from lakehouse.config.topic import Topic
from lakehouse.core import naming
from lakehouse.local import stack
from lakehouse.local.home import Home
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
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
    arguments.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    given = arguments.parse_args()
    curves: list[Curve] = []
    with connected(loader.load()) as found:
        systems = Clients.of(found)
        if given.append:
            subjects = [Subject(systems, "append", rows) for rows in given.append]
            title = f"Append of {given.appended:,} records, by rows in the table"
            curves.append(growth("append_rows", title, subjects, lambda s: s.new(given.appended), given.rounds))
        if given.partitions:
            subjects = [Subject(systems, "append", 1_000, partitions) for partitions in given.partitions]
            title = f"Append of {given.appended:,} records, by partitions of the topic"
            curves.append(growth("append_partitions", title, subjects, lambda s: s.new(given.appended), given.rounds))
        if given.upsert:
            subjects = [Subject(systems, "upsert", rows) for rows in given.upsert]
            title = f"Upsert of {given.merged:,} keys"
            spread, newest = f"{title} from the whole table, by its rows", f"{title}, the newest, by rows of the table"
            curves.append(growth("upsert_spread", spread, subjects, lambda s: s.spread(given.merged), given.rounds))
            curves.append(growth("upsert_newest", newest, subjects, lambda s: s.newest(given.merged), given.rounds))
        if given.consecutive:
            appended, merged = Subject(systems, "append", 1_000), Subject(systems, "upsert", 1_000_000)
            title = f"Append of {given.merged:,} records, batch after batch"
            curves.append(
                consecutive("append_commits", title, appended, lambda s: s.new(given.merged), given.consecutive)
            )
            title = f"Upsert of {given.merged:,} keys from a million rows, batch after batch"
            curves.append(
                consecutive("upsert_commits", title, merged, lambda s: s.spread(given.merged), given.consecutive)
            )
    given.results.mkdir(exist_ok=True)
    (given.results / "growth.json").write_text(json.dumps([asdict(curve) for curve in curves], indent=1) + "\n")
    for curve in curves:
        bars = [(point.at, point.seconds) for point in curve.points]
        drawn = plots.bars(f"{curve.title}: seconds", bars, ".2f", ours=len(bars))
        (given.results / f"growth_{curve.name}.svg").write_text(drawn)


@dataclass(frozen=True)
class Point:
    """Equal batches at one size: the median of their seconds, the least and the most; the table's metadata file."""

    at: str
    seconds: float
    least: float
    most: float
    metadata_kb: float


@dataclass(frozen=True)
class Curve:
    """Points from small to large, and the memory that Spark's server has after them."""

    name: str
    title: str
    spark_mb: float
    points: list[Point]


class Subject:
    """A table of so many rows and the topic that feeds it, of so many partitions."""

    def __init__(self, systems: Clients, mode: str, rows: int, partitions: int = 6):
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


def growth(
    name: str, title: str, subjects: list[Subject], ids: Callable[[Subject], Iterable[int]], rounds: int
) -> Curve:
    """What each subject's batches take."""
    seconds: dict[Subject, list[float]] = {subject: [] for subject in subjects}
    for _ in range(rounds + 1):
        for subject in subjects:
            seconds[subject].append(subject.ingest(ids(subject)))
    by_partitions = len({subject.partitions for subject in subjects}) > 1
    return shown(
        name,
        title,
        [
            point(f"{s.partitions:,} partitions" if by_partitions else f"{s.rows:,} rows", seconds[s][1:], s)
            for s in subjects
        ],
    )


def consecutive(
    name: str, title: str, subject: Subject, ids: Callable[[Subject], Iterable[int]], batches: int
) -> Curve:
    """How the time of a batch changes while snapshots, and position deletes, pile up: a point for each tenth."""
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
    """The curve, after it was printed."""
    curve = Curve(name, title, spark_megabytes(), points)
    columns = ("seconds for an equal batch", "least to most", "ratio to the first", "metadata KB")
    table = Table("at", *columns, title=f"{title} (Spark: {curve.spark_mb:,.0f} MB)")
    for one in points:
        ratio = one.seconds / points[0].seconds
        spread = f"{one.least:.2f} to {one.most:.2f}"
        table.add_row(one.at, f"{one.seconds:.2f}", spread, f"{ratio:.2f}", f"{one.metadata_kb:,.0f}")
    Console().print(table)
    return curve


def spark_megabytes() -> float:
    """Resident memory of the embedded Spark server."""
    return next(server.resident_bytes for server in stack.status(Home.default()) if server.name == "spark") / 1e6


def _sizes(text: str) -> list[int]:
    return [int(float(part)) for part in text.split(",") if part]


if __name__ == "__main__":
    main()
