"""CPU, memory and requests of a stream of idle topics and its Spark server, by two builds in one run.

    lakehouse up --only kafka --only registry --only s3
    python benchmarks/at_rest.py --against CHECKOUT --topics 20 --load 240 --rest 300

Each build has a stream and a Spark server of its own, and ingests the same topics into its own tables. After the load,
the processes are measured while no record is produced. Then single records are produced to idle topics, which shows the
seconds until the table has them. Proxies count the requests to S3 and to the registry.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from builds import python_of, spark_of
from latency import CATCH_UP_SECONDS, prepared, produce, pyiceberg_catalog, wait_until_ingested
from rich.console import Console
from rich.table import Table

from lakehouse.cli.systems import open_clients
from lakehouse.config import loader
from lakehouse.config.discovery import config_path
from lakehouse.local.client_environment import environment
from lakehouse.local.home import Home
from lakehouse.local.processes.process import running
from resources.kafka.kafka import Kafka
from tests.support.servers.proxy import Proxy, Request
from tools.repository import PROJECT

PAUSE_SECONDS = 3
"""Time after each record in which the streams come to rest again."""
SETTLE_SECONDS = 20
"""Time after the last record until the rest begins: readers and events in Dagster follow."""
STOP_SECONDS = 60


@dataclass
class Measured:
    """A build at rest."""

    namespace: str
    processes: dict[str, psutil.Process]
    requests: Counter[str] = field(default_factory=Counter)
    """Requests by system since the rest began."""
    cpu_percent: dict[str, float] = field(default_factory=dict)
    """Of one core, by process."""
    megabytes: dict[str, float] = field(default_factory=dict)
    """Resident memory at the end of the rest, by process."""
    loaded_megabytes: dict[str, float] = field(default_factory=dict)
    """The same at the end of the load."""
    loaded_seconds: dict[str, float] = field(default_factory=dict)
    """CPU time until the end of the load, with the start, by process."""
    seconds: list[float] = field(default_factory=list)
    """Seconds from a record's production until the table has it."""


def main() -> None:
    """Load, rest, measure, and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", required=True, help="another build with a .venv")
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--rate", type=float, default=1_000, help="records per second of load, of all topics together")
    parser.add_argument("--load", type=float, default=240, help="seconds of load")
    parser.add_argument("--rest", type=float, default=300, help="seconds of rest")
    parser.add_argument("--records", type=int, default=10, help="single records to idle topics")
    arguments = parser.parse_args()
    checkouts = {"this": PROJECT, "other": arguments.against.resolve()}
    started = time.time_ns()
    topics = [f"at_rest_{started}_{n}" for n in range(arguments.topics)]
    with open_clients(loader.load()) as systems, ExitStack() as stack:
        pool = prepared(systems, topics)
        builds = {
            name: stack.enter_context(streaming(checkout, f"{name}_{started}", topics))
            for name, checkout in checkouts.items()
        }
        produce(systems, topics, pool, arguments.rate, arguments.load)
        for build in builds.values():
            wait_until_ingested(systems, build.namespace, topics)
            build.loaded_megabytes = memory(build.processes)
            build.loaded_seconds = cpu_seconds(build.processes)
        time.sleep(SETTLE_SECONDS)
        rest(builds, arguments.rest)
        for number in range(arguments.records):
            wake(systems, builds, topics[number % len(topics)], pool[number])
    report(builds, arguments.rest)


@contextmanager
def streaming(checkout: Path, namespace: str, topics: list[str]) -> Iterator[Measured]:
    """Run a stream of a build with its Spark server, behind proxies that count requests."""
    stack, requests = Home.default(), Counter[str]()

    def counted(variables: dict[str, str], variable: str, system: str) -> Proxy:
        def count(_: Request) -> None:
            requests[system] += 1

        proxy = Proxy(variables[variable], guard=count)
        variables[variable] = proxy.address
        return proxy

    variables = environment(stack)
    with (
        counted(variables, "AWS_ENDPOINT_URL_S3", "S3"),
        counted(variables, "SCHEMA_REGISTRY_URL", "registry"),
        spark_of(checkout, stack, variables) as (home, process_environment),
        tempfile.TemporaryDirectory() as folder,
    ):
        environments = yaml.safe_load(config_path().read_text())["environments"]
        systems = ("kafka", "schema_registry", "spark", "catalog")
        local = {name: settings for name, settings in environments["local"].items() if name in systems}
        file = Path(folder, "lakehouse.yaml")
        declared = {"topics": {topic: {"key": "userid"} for topic in topics}, "environments": {"bench": local}}
        file.write_text(yaml.safe_dump({"namespace": namespace, **declared}))
        stream = subprocess.Popen(
            [str(python_of(checkout)), "-P", "-m", "lakehouse.cli.main", "stream"],
            env={**process_environment, "LAKEHOUSE_CONFIG": str(file), "LAKEHOUSE_ENV": "bench"},
            cwd=checkout,
            stdout=(home.path / "stream.log").open("w"),
        )
        try:
            spark = running(home)["spark"].leader
            assert spark is not None
            yield Measured(namespace, {"stream": psutil.Process(stream.pid), "Spark": spark}, requests)
        except BaseException:
            print(namespace, (home.path / "stream.log").read_text()[-3000:])
            raise
        finally:
            stream.terminate()
            stream.wait(STOP_SECONDS)


def rest(builds: dict[str, Measured], seconds: float) -> None:
    """Measure the builds while no record is produced."""
    before = {name: cpu_seconds(build.processes) for name, build in builds.items()}
    for build in builds.values():
        build.requests.clear()
    time.sleep(seconds)
    for name, build in builds.items():
        after = cpu_seconds(build.processes)
        build.cpu_percent = {part: 100 * (after[part] - before[name][part]) / seconds for part in after}
        build.megabytes = memory(build.processes)
        build.requests = Counter(build.requests)


def wake(systems: Any, builds: dict[str, Measured], topic: str, message: tuple[bytes, bytes]) -> None:
    """Produce one record to an idle topic, and measure when each table has it."""
    catalog = pyiceberg_catalog()
    before = {name: catalog.load_table((build.namespace, topic)).metadata_location for name, build in builds.items()}
    producer = systems.kafka.producer(linger_ms=0)
    Kafka.enqueue(producer, topic, *message)
    producer.flush()
    began, waiting = time.monotonic(), set(builds)
    while waiting:
        assert time.monotonic() < began + CATCH_UP_SECONDS, topic
        time.sleep(0.02)
        for name in [*waiting]:
            if catalog.load_table((builds[name].namespace, topic)).metadata_location != before[name]:
                builds[name].seconds.append(time.monotonic() - began)
                waiting.remove(name)
    time.sleep(PAUSE_SECONDS)


def tree(process: psutil.Process) -> list[psutil.Process]:
    """Return a process and those that it started."""
    return [process, *process.children(recursive=True)]


def cpu_seconds(processes: dict[str, psutil.Process]) -> dict[str, float]:
    """Return the CPU time of processes and those that they started."""
    times = {name: [one.cpu_times() for one in tree(process)] for name, process in processes.items()}
    return {name: sum(one.user + one.system for one in of) for name, of in times.items()}


def memory(processes: dict[str, psutil.Process]) -> dict[str, float]:
    """Return the resident megabytes of processes and those that they started."""
    return {name: sum(one.memory_info().rss for one in tree(of)) / 1e6 for name, of in processes.items()}


def report(builds: dict[str, Measured], seconds: float) -> None:
    """Print each measurement of both builds, and their ratios."""
    this, other = builds["this"], builds["other"]
    table = Table("measurement", "this build", "the other", "ratio")

    def row(name: str, one: float, two: float, digits: int = 0) -> None:
        table.add_row(name, f"{one:,.{digits}f}", f"{two:,.{digits}f}", f"{one / two:.2f}" if two else "")

    for part in this.processes:
        row(f"CPU of {part}, % of a core", this.cpu_percent[part], other.cpu_percent[part], 2)
    row("CPU, % of a core", sum(this.cpu_percent.values()), sum(other.cpu_percent.values()), 2)
    for part in this.processes:
        row(f"CPU of {part} until the end of the load, s", this.loaded_seconds[part], other.loaded_seconds[part])
        row(f"memory of {part} after the load, MB", this.loaded_megabytes[part], other.loaded_megabytes[part])
        row(f"memory of {part} at rest, MB", this.megabytes[part], other.megabytes[part])
    row("memory at rest, MB", sum(this.megabytes.values()), sum(other.megabytes.values()))
    for system in ("S3", "registry"):
        row(f"requests to {system} an hour", *(one.requests[system] * 3600 / seconds for one in (this, other)))
    row("seconds until a record is in an idle table, median", *map(statistics.median, (this.seconds, other.seconds)), 2)
    row("the same, maximum", max(this.seconds), max(other.seconds), 2)
    Console().print(table)


if __name__ == "__main__":
    main()
