"""How many requests to S3 an equal batch makes as rows, partitions and commits grow: each costs money and a round trip.

    lakehouse up --only kafka --only registry --only s3 --only spark
    python benchmarks/requests_to_s3.py

The tests' proxy stands before S3 and counts. Batches of 1,000 records are appended, or merged by keys drawn from the
whole table; what is told is the last of several, when nothing is made for the first time any more.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from growth import Subject
from rich.console import Console
from rich.table import Table

from lakehouse.cli.systems import connected
from lakehouse.config import loader
from lakehouse.pipeline.clients import Clients

sys.path.append(str(Path(__file__).parents[1] / "tests/faults"))
from proxy import Proxy, Request

RECORDS = 1_000
METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE")


def main() -> None:
    """Count, and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=float, default=1e7, help="in the larger table")
    arguments.add_argument("--partitions", type=int, default=100, help="of the wider topic")
    arguments.add_argument("--batches", type=int, default=50, help="one after another")
    given = arguments.parse_args()
    seen: Counter[str] = Counter()

    def counted(request: Request) -> None:
        seen[request.method] += 1

    table = Table("batch", *METHODS, "all", title=f"Requests to S3 for a batch of {RECORDS:,} records")
    with connected(loader.load()) as found, Proxy(os.environ["AWS_ENDPOINT_URL_S3"], guard=counted) as proxy:
        catalog = found.catalog.model_copy(update={"s3_endpoint": proxy.address})
        systems = Clients(found.kafka, found.schema_registry, found.spark, catalog)

        def measure(name: str, subject: Subject, ids: Callable[[Subject], Iterable[int]], batches: int) -> None:
            for _ in range(batches):
                seen.clear()
                subject.ingest(ids(subject))
            table.add_row(name, *(f"{seen[method]}" for method in METHODS), f"{seen.total()}")

        for mode, ids in (("append", new), ("upsert", spread)):
            small = Subject(systems, mode, RECORDS)
            measure(f"{mode}, the third", small, ids, 3)
            measure(f"{mode}, number {given.batches}", small, ids, given.batches - 3)
            measure(f"{mode}, {given.rows:,.0f} rows, the third", Subject(systems, mode, int(given.rows)), ids, 3)
        wide = Subject(systems, "append", RECORDS, given.partitions)
        measure(f"append, {given.partitions} partitions, the third", wide, new, 3)
    Console().print(table)


def new(subject: Subject) -> Iterable[int]:
    return subject.new(RECORDS)


def spread(subject: Subject) -> Iterable[int]:
    return subject.spread(RECORDS)


if __name__ == "__main__":
    main()
