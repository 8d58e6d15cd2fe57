"""Measurement of contenders from outside: the resources of their processes, and the table as any reader sees it."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import psutil
from confluent_kafka import Consumer, TopicPartition
from pyiceberg.catalog import Catalog

from lakehouse.core import polling
from peers.contender import NAMESPACE, Contender

LOOK_SECONDS = 0.2
"""Interval between two looks at the table and the processes."""


@dataclass
class Used:
    """Total CPU seconds and peak resident bytes of several processes."""

    cpu_seconds: float = 0
    peak_bytes: int = 0


@dataclass(frozen=True)
class Result:
    """Result of one contender. Memory and CPU are those of the catch-up, without Kafka, S3 and the registry."""

    contender: str
    records: int
    seconds: float
    """Seconds from `begin` until a reader saw every record."""
    records_per_second: float
    peak_rss_mb: float
    cpu_seconds_per_million: float
    commits: int
    """Number of commits of the catch-up."""
    freshness_seconds: list[float]
    """Seconds until a reader saw all of a few hundred additional records, sorted, one per repetition."""

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def median(rounds: Sequence[Result]) -> Result:
    """Return the medians of a contender's rounds."""
    names = ("records", "seconds", "records_per_second", "peak_rss_mb", "cpu_seconds_per_million", "commits")
    medians = {name: statistics.median_low(getattr(result, name) for result in rounds) for name in names}
    freshness = sorted(seconds for result in rounds for seconds in result.freshness_seconds)
    return Result(contender=rounds[0].contender, **medians, freshness_seconds=freshness)


@contextmanager
def metered(contender: Contender) -> Iterator[Used]:
    """Measure the contender's processes while the body runs. Short-lived processes may be missed."""
    used, ended = Used(), threading.Event()
    before = {process: seconds for process, seconds, _ in _usage(contender)}
    last: dict[psutil.Process, float] = {}

    def look() -> None:
        usage = list(_usage(contender))
        last.update((process, seconds) for process, seconds, _ in usage)
        used.peak_bytes = max(used.peak_bytes, sum(resident for *_, resident in usage))

    def keep_looking() -> None:
        while not ended.wait(LOOK_SECONDS):
            look()

    watcher = threading.Thread(target=keep_looking, daemon=True)
    watcher.start()
    try:
        yield used
    finally:
        ended.set()
        watcher.join()
        look()
        used.cpu_seconds = sum(seconds - before.get(process, 0) for process, seconds in last.items())


def _usage(contender: Contender) -> Iterator[tuple[psutil.Process, float, int]]:
    leaders = contender.processes()
    # The children of a leader may be leaders, too.
    for process in {*leaders, *(child for leader in leaders for child in leader.children(recursive=True))}:
        try:
            times = process.cpu_times()
            yield process, times.user + times.system, process.memory_info().rss
        except psutil.NoSuchProcess:
            continue


def rows(catalog: Catalog, table: str) -> int:
    """Return the number of rows in the newest snapshot of a table; 0 without one."""
    identifier = (NAMESPACE, table)
    snapshot = catalog.load_table(identifier).current_snapshot() if catalog.table_exists(identifier) else None
    return int(snapshot.summary.additional_properties["total-records"]) if snapshot else 0


def await_rows(catalog: Catalog, table: str, wanted: int, contender: Contender, seconds: float) -> None:
    """Wait until a reader sees `wanted` rows.

    Raises:
        RuntimeError: The contender fails, takes longer than `seconds`, or has more rows.
    """

    def visible_rows() -> int:
        visible = rows(catalog, table)
        if visible < wanted and (failure := contender.failure()):
            raise RuntimeError(f"{contender.name} failed with {visible:,} of {wanted:,} rows: {failure}")
        return visible

    visible = polling.poll(
        visible_rows, pause=LOOK_SECONDS, deadline_seconds=seconds, until=lambda visible: visible >= wanted
    )
    if visible < wanted:
        raise RuntimeError(f"{contender.name} has {visible:,} of {wanted:,} rows after {seconds:.0f} s")
    if visible > wanted:
        raise RuntimeError(f"{contender.name} has {visible:,} rows of {wanted:,} records: some are duplicates")


def commits(catalog: Catalog, table: str) -> int:
    """Return the number of snapshots that added rows."""
    snapshots = catalog.load_table((NAMESPACE, table)).snapshots()
    return sum(int(snapshot.summary.additional_properties.get("added-records", 0)) > 0 for snapshot in snapshots)


def ends(kafka: str, topic: str) -> dict[int, int]:
    """Return the end offset of each partition."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "measure"})
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=20)[1] for p in partitions}
    finally:
        consumer.close()


def verify(catalog: Catalog, table: str, ends: dict[int, int]) -> None:
    """Verify by partition and offset in the rows that every record of the topic is exactly one row.

    Raises:
        RuntimeError: A record is missing or duplicated.
    """
    read = catalog.load_table((NAMESPACE, table)).scan(selected_fields=("kafka_partition", "kafka_offset")).to_arrow()
    groups = read.group_by(["kafka_partition", "kafka_offset"]).aggregate([])
    by_partition = groups.group_by("kafka_partition").aggregate([("kafka_offset", "count"), ("kafka_offset", "max")])
    counts = {row["kafka_partition"]: row for row in by_partition.to_pylist()}
    distinct = {p: (row["kafka_offset_count"], row["kafka_offset_max"] + 1) for p, row in counts.items()}
    expected = {p: (end, end) for p, end in ends.items() if end}
    if distinct != expected or read.num_rows != sum(ends.values()):
        raise RuntimeError(f"{table} has {read.num_rows:,} rows, {distinct} by partition, but the topic has {ends}")
