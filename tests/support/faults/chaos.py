"""A seeded schedule of real faults during continuous ingestion and production."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewPartitions

from lakehouse.core.errors import TransientError
from lakehouse.local import stack as local_stack
from lakehouse.local.home import Home
from lakehouse.local.processes import process
from tests.support.faults import oracle
from tests.support.faults.ingester import keep_ingesting
from tests.support.faults.producers import Producers
from tests.support.processes.forked import Forked, fork
from tests.support.servers.proxy import REGISTRY_ERROR, S3_ERROR, S3_SLOW_DOWN, Fault, Proxy
from tests.support.topics import Stream, admin

PUBLISH_SECONDS = 120
"""Seconds until an ingester must publish after the last fault."""


@dataclass
class Ingester:
    """The process of tests/support/faults/ingester.py for one topic, as a supervisor runs it."""

    stream: Stream
    folder: Path
    environment: dict[str, str]
    started: list[Forked] = field(default_factory=list)

    @property
    def process(self) -> Forked:
        """The newest process."""
        return self.started[-1]

    @property
    def log(self) -> Path:
        return self.folder / f"{self.stream.name}.jsonl"

    def start(self) -> None:
        """Start a further process."""
        self.folder.mkdir(exist_ok=True)
        self.log.touch()
        files = {"output": self.log, "errors": self.folder / "stderr"}
        config, environment = self.stream.declare(self.folder), {**os.environ, **self.environment}
        self.started.append(fork(keep_ingesting, str(config), self.stream.name, environment=environment, **files))

    def stop(self) -> None:
        """Kill all processes, including suspended ones."""
        for started in self.started:
            started.kill()
            started.wait()

    def reports(self) -> list[dict[str, Any]]:
        """Return the batches and errors that all processes have reported."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.endswith("}")]

    def batches(self) -> int:
        return sum("published" in report for report in self.reports())

    def wait_for_a_batch(self) -> None:
        """Wait until one more batch is published.

        Raises:
            AssertionError: No batch was published within PUBLISH_SECONDS.
        """
        before, deadline = self.batches(), time.monotonic() + PUBLISH_SECONDS
        while self.batches() == before:
            assert time.monotonic() < deadline, (
                f"no batch in {PUBLISH_SECONDS} s; the last report: {self.reports()[-1:]}"
            )
            time.sleep(0.2)


@dataclass
class Chaos:
    """One run. `fired` counts the faults by kind."""

    home: Home
    resources: Any
    streams: list[Stream]
    folder: Path
    seed: int
    fired: Counter[str] = field(default_factory=Counter)
    seconds: float = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.s3 = Proxy(os.environ["AWS_ENDPOINT_URL_S3"])
        self.registry = Proxy(os.environ["SCHEMA_REGISTRY_URL"])
        environment = {"AWS_ENDPOINT_URL_S3": self.s3.address, "SCHEMA_REGISTRY_URL": self.registry.address}
        self.ingesters = [Ingester(s, self.folder / s.name, environment) for s in self.streams]
        self.producers = [Producers(s, self.seed + i) for i, s in enumerate(self.streams)]
        self.faults: dict[str, Callable[[], None]] = {
            "kill -9": self.kill,
            "zombie": self.zombie,
            "two writers": self.two_writers,
            "S3": self.s3_fault,
            "registry": self.registry_fault,
            "broker killed": self.broker_killed,
            "Spark killed": self.spark_killed,
            "compaction": self.compaction,
            "expiry": self.expiry,
            "partitions added": self.partitions_added,
        }

    def run(self, seconds: float) -> None:
        """Inject each kind of fault in a random order, then random faults; then wait until all records are ingested.

        Args:
            seconds: Minimum duration of the faults.

        Raises:
            AssertionError: Ingestion does not resume by itself.
        """
        began = time.monotonic()
        try:
            for process in (*self.producers, *self.ingesters):
                process.start()
            for ingester in self.ingesters:
                ingester.wait_for_a_batch()
            kinds = sorted(self.faults)
            self.chance.shuffle(kinds)
            while kinds or time.monotonic() - began < seconds:
                kind = kinds.pop() if kinds else self.chance.choice(sorted(self.faults))
                print(f"{time.monotonic() - began:6.1f} s  {kind}", flush=True)
                self.faults[kind]()
                time.sleep(self.chance.uniform(0.2, 1.5))
            self._quiet()
            for producer in self.producers:
                producer.stop()
            self._drain()
        finally:
            for ingester in self.ingesters:
                ingester.stop()
            for proxy in (self.s3, self.registry):
                proxy.__exit__()
            for producer in self.producers:
                producer.stopping.set()
            # A fault may have killed the server of this session.
            self.resources.spark.close()
        self.seconds = time.monotonic() - began

    def judge(self) -> list[str]:
        """Print a summary, and return a message for each topic with lost, duplicated or changed records."""
        verdicts, wrong = [], []
        for stream in self.streams:
            try:
                verdict = oracle.judge(stream)
                verdicts.append(f"{stream.topic.mode}: {verdict}")
            except AssertionError as error:
                wrong.append(f"{stream.topic.mode}: {error}")
        errors = Counter(line["error"] for ingester in self.ingesters for line in ingester.reports() if "error" in line)
        print(
            f"chaos: seed {self.seed}, {self.seconds:.0f} s; faults: {_counted(self.fired)}; failed runs: "
            f"{_counted(errors)}; {sum(ingester.batches() for ingester in self.ingesters)} batches, "
            f"{sum(producer.aborted for producer in self.producers)} transactions aborted; "
            f"{'; '.join((*verdicts, *wrong))}{'' if wrong else '; lost 0, duplicated 0'}",
            flush=True,
        )
        return wrong

    def _quiet(self) -> None:
        """Remove all faults and require that each topic publishes by itself while records are produced."""
        self.s3.heal()
        self.registry.heal()
        for ingester in self.ingesters:
            ingester.wait_for_a_batch()
        for proxy, kind in ((self.s3, "S3"), (self.registry, "registry")):
            self.fired.update({f"{kind}: {fault}": times for fault, times in proxy.fired.items()})

    def _drain(self) -> None:
        """Wait until the offsets of every table reach the end of its topic."""
        deadline = time.monotonic() + PUBLISH_SECONDS
        for stream in self.streams:
            end = oracle.read_log(stream.name).end
            while (at := _position(stream)) != end:
                assert time.monotonic() < deadline, f"{stream.name} is at {at} and not at {end}"
                time.sleep(0.5)

    def kill(self) -> None:
        """Kill a process by SIGKILL at a random moment, and start another, as a supervisor does."""
        ingester = self.chance.choice(self.ingesters)
        time.sleep(self.chance.uniform(0, 2))
        self._replace(ingester)
        self.fired["kill -9"] += 1

    def zombie(self) -> None:
        """Suspend a process until another one has published, and then resume it."""
        ingester = self.chance.choice(self.ingesters)
        time.sleep(self.chance.uniform(0, 2))
        stopped = ingester.process
        stopped.send_signal(signal.SIGSTOP)
        ingester.start()
        ingester.wait_for_a_batch()
        stopped.send_signal(signal.SIGCONT)
        time.sleep(3)
        stopped.kill()
        stopped.wait()
        self.fired["zombie"] += 1

    def two_writers(self) -> None:
        """Run two processes for the same topic at the same time."""
        ingester = self.chance.choice(self.ingesters)
        other = ingester.process
        ingester.start()
        ingester.wait_for_a_batch()
        time.sleep(4)
        other.kill()
        other.wait()
        self.fired["two writers"] += 1

    def s3_fault(self) -> None:
        """Inject faults of each kind into a few requests to S3."""
        for fault in (
            Fault("response", "PUT|GET", times=3, status=503, body=S3_SLOW_DOWN),
            Fault("lost response", "PUT", times=1, body=S3_ERROR),
            Fault("lost connection", "PUT", times=1),
            Fault("cut", "GET", times=2),
            Fault("truncate", "GET .*parquet|GET .*avro", times=1),
        ):
            self.s3.inject(fault)

    def registry_fault(self) -> None:
        """Make the registry unavailable, slow or overloaded for some requests."""
        fault = self.chance.choice(
            [
                Fault("response", times=10, status=500, body=REGISTRY_ERROR),
                Fault("cut", times=10),
                Fault("delay", times=4, seconds=1),
                Fault("response", times=3, status=429, body=REGISTRY_ERROR),
            ]
        )
        self.registry.inject(fault)
        deadline = time.monotonic() + PUBLISH_SECONDS
        while not fault.fired and time.monotonic() < deadline:
            time.sleep(0.1)

    def broker_killed(self) -> None:
        """Kill and restart the broker."""
        self._restart("kafka")
        self.fired["broker killed"] += 1

    def spark_killed(self) -> None:
        """Kill and restart the Spark server."""
        self._restart("spark")
        self.fired["Spark killed"] += 1

    def compaction(self) -> None:
        """Rewrite the data files of a table by another writer."""
        self._maintain(
            "rewrite_data_files", "options => map('rewrite-all', 'true', 'partial-progress.enabled', 'false')"
        )
        self.fired["compaction"] += 1

    def expiry(self) -> None:
        """Expire all snapshots except the newest one."""
        self._maintain("expire_snapshots", "older_than => TIMESTAMP '2099-01-01 00:00:00', retain_last => 1")
        self.fired["expiry"] += 1

    def partitions_added(self) -> None:
        """Add a partition to the append topic, where no order of keys depends on the partitions."""
        stream = next(stream for stream in self.streams if stream.topic.mode == "append")
        stream.partitions += 1
        [done] = admin().create_partitions([NewPartitions(stream.name, stream.partitions)]).values()
        try:
            done.result(20)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_PARTITIONS:
                raise
        self.fired["partitions added"] += 1

    def _maintain(self, procedure: str, arguments: str) -> None:
        """Call a procedure of Iceberg, which may conflict with an ingester."""
        from pyspark.errors import PySparkException

        stream = self.chance.choice(self.streams)
        call = f"CALL lake.system.{procedure}(table => '{stream.namespace}.{stream.topic.table}', {arguments})"
        for _ in range(5):
            try:
                session = self.resources.spark.session(self.resources.catalog.spark_settings())
                session.sql(call).collect()
                return
            except (PySparkException, TransientError) as error:
                last = error
                if "Commit" not in str(error) and "Validation" not in str(error):
                    self.resources.spark.close()
        self.fired[f"{procedure} that lost ({type(last).__name__})"] += 1

    def _restart(self, name: str) -> None:
        for running in process.running(self.home)[name].processes:
            # The process may have ended by itself, as after the kill of another process of the server.
            with suppress(psutil.NoSuchProcess):
                running.kill()
            running.wait(10)
        local_stack.up(self.home, [name])

    def _replace(self, ingester: Ingester) -> None:
        ingester.process.kill()
        ingester.process.wait()
        ingester.start()


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{kind} {times}" for kind, times in sorted(counter.items())) or "none"


def _position(stream: Stream) -> dict[int, int]:
    """Return the end offsets of the newest batch of the table, by partition."""
    table = stream.table()
    token, _ = next(oracle.tokens(table)) if table else ({"end": {}}, None)
    return {int(partition): offset for partition, offset in token["end"].items()}
