"""Number of S3 requests of equal batches as rows, partitions and commits grow. Each costs money and a round trip.

    lakehouse up --only kafka --only registry --only s3 --only spark
    python benchmarks/requests_to_s3.py

The proxy of the tests counts the requests. Batches of 1,000 records are appended, or merged by keys from the whole
table. The last of several batches is reported, so that the creation of the table is not included.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable, Iterable

from growth import Subject
from rich.console import Console
from rich.table import Table

from lakehouse.cli.systems import open_clients
from lakehouse.config import loader
from lakehouse.pipeline.clients import Clients, engine_client
from tests.support.servers.proxy import Proxy, Request

RECORDS = 1_000
METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE")


def main() -> None:
    """Count the requests of batches and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e7, help="rows in the larger table")
    parser.add_argument("--partitions", type=int, default=100, help="partitions of the larger topic")
    parser.add_argument("--batches", type=int, default=50, help="consecutive batches")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()

    def count(request: Request) -> None:
        counts[request.method] += 1

    table = Table("batch", *METHODS, "all", title=f"Requests to S3 for a batch of {RECORDS:,} records")
    with open_clients(loader.load()) as resources, Proxy(os.environ["AWS_ENDPOINT_URL_S3"], guard=count) as proxy:
        catalog = resources.catalog.model_copy(update={"s3_endpoint": proxy.address})
        systems = Clients(resources.kafka, resources.schema_registry, engine_client(resources.spark), catalog)

        def measure(name: str, subject: Subject, ids: Callable[[Subject], Iterable[int]], batches: int) -> None:
            for _ in range(batches):
                counts.clear()
                subject.ingest(ids(subject))
            table.add_row(name, *(f"{counts[method]}" for method in METHODS), f"{counts.total()}")

        for mode, ids in (("append", new), ("upsert", spread)):
            small = Subject(systems, mode, RECORDS)
            measure(f"{mode}, the third", small, ids, 3)
            measure(f"{mode}, number {arguments.batches}", small, ids, arguments.batches - 3)
            measure(
                f"{mode}, {arguments.rows:,.0f} rows, the third", Subject(systems, mode, int(arguments.rows)), ids, 3
            )
        wide = Subject(systems, "append", RECORDS, arguments.partitions)
        measure(f"append, {arguments.partitions} partitions, the third", wide, new, 3)
    Console().print(table)


def new(subject: Subject) -> Iterable[int]:
    return subject.new(RECORDS)


def spread(subject: Subject) -> Iterable[int]:
    return subject.spread(RECORDS)


if __name__ == "__main__":
    main()
