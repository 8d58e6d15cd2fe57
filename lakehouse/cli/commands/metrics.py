"""The command `lakehouse metrics`."""

import signal
import threading
from importlib.resources import files

import click

from lakehouse.cli.address import Address
from lakehouse.core import log_entry
from lakehouse.core.log_entry import LogEntry
from lakehouse.core.terminal import echo


@click.command()
@click.option("--listen", type=Address(), help="Serve /metrics and /healthz there, until Ctrl-C.")
@click.option("--every", metavar="SECONDS", type=click.IntRange(min=1), default=60, show_default=True, help="Interval.")
@click.option("--dashboard", "file", flag_value="dashboard.json", help="Print a dashboard for Grafana.")
@click.option("--alerts", "file", flag_value="alerts.yaml", help="Print alert rules for Prometheus.")
def metrics(listen: tuple[str, int] | None, every: int, file: str | None) -> None:
    """Measure all topics, tables and readers for Prometheus: once to the terminal, or at intervals with --listen.

    The values are those of `lakehouse status`: offsets, the lag of each stage, pauses, files and snapshots of tables,
    the time of the last commit, and dead letters by reason. A measurement asks each system. For the batches of a
    stream, add `--metrics` to `lakehouse stream`.

    \b
      lakehouse metrics                              print the metrics
      lakehouse metrics --listen 127.0.0.1:9465      serve them
      lakehouse metrics --alerts > lakehouse.yml     alert rules that name the command for each cause
    """
    if file:
        echo(files("lakehouse.metrics").joinpath(file).read_text(), nl=False)
        return
    stopping = threading.Event()
    for stop_signal in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop_signal, lambda *_: stopping.set())
    from lakehouse.cli.status import status
    from lakehouse.cli.systems import open_clients
    from lakehouse.config import loader
    from lakehouse.metrics.server import serving
    from lakehouse.metrics.table_metrics import TableMetrics

    declared = loader.load()
    with open_clients(declared) as resources:
        measurements = TableMetrics(declared, resources, status)
        if listen is None:
            measurements.measure()
            echo(measurements.text(), nl=False)
            return
        with serving(listen, measurements.registry, {"/healthz": lambda: measurements.problems(3 * every)}) as url:
            log_entry.write(LogEntry(f"Metrics: {url}/metrics"))
            while not stopping.is_set():
                if failure := measurements.try_measure():
                    log_entry.write(failure, err=True)
                stopping.wait(every)
