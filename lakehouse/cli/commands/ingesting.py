"""The commands `lakehouse stream`, `lakehouse pause` and `lakehouse unpause`."""

import logging
import signal
import threading
from contextlib import nullcontext

import click

from lakehouse.cli.address import Address
from lakehouse.core import log_entry
from lakehouse.core.errors import ConfigError, LakehouseError, redact_credentials
from lakehouse.core.log_entry import LogEntry
from lakehouse.core.tables.naming import table_name
from lakehouse.core.terminal import echo


@click.command()
@click.argument("topics", nargs=-1)
@click.option("--once", is_flag=True, help="Ingest the backlog of each topic, then exit.")
@click.option("--metrics", type=Address(), help="Serve /metrics, /healthz and /readyz there. Default: do not.")
@click.option(
    "--stuck-after",
    metavar="SECONDS",
    type=click.IntRange(min=1),
    default=900,
    show_default=True,
    help="Time without progress after which /healthz answers 503.",
)
def stream(topics: tuple[str, ...], once: bool, metrics: tuple[str, int] | None, stuck_after: int) -> None:
    """Ingest TOPICS continuously: a record is in its table and its readers seconds after it was produced.

    TOPICS defaults to the entries with `continuous: true`, or to all entries if none has it. The topic that a derived
    one is derived from is ingested as well. Ctrl-C and SIGTERM stop the stream after the batches in progress. After a
    kill, the next stream resumes from the offsets in the tables.

    With --metrics 127.0.0.1:9464, Prometheus can scrape http://127.0.0.1:9464/metrics. /healthz answers 503 when a
    thread is stuck, so that the process can be restarted, and /readyz until the topics have been read. Whoever
    reaches the address can read the names and numbers of all topics.

    \b
    Exit code 0: the stream was stopped or, with --once, each backlog was ingested. 1: with --once, a topic
    failed, a reader failed to expose its table, or Kafka did not answer five times.
    """
    # Handlers come before the slow imports, so that an early signal does not print a traceback.
    stopping = threading.Event()
    for stop_signal in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop_signal, lambda *_: stopping.set())
    from assets.streaming.service import StreamService, select_topics
    from lakehouse.cli.instance import dagster_instance
    from lakehouse.cli.systems import kafka_topics, open_clients
    from lakehouse.config import loader
    from lakehouse.metrics.stream_metrics import serve_metrics

    declared = loader.load()
    with open_clients(declared) as resources, dagster_instance() as instance:
        selected = select_topics(declared, topics, kafka_topics(declared, resources))
        service = StreamService(declared, selected, resources, log_entry.write, instance, once=once, stopping=stopping)
        with serve_metrics(service, metrics, stuck_after) if metrics else nullcontext():
            errors = service.run()
    for name, error in errors.items():
        message, kind = f"{name}: {redact_credentials(error)}", type(error).__name__
        log_entry.write(LogEntry(message, logging.ERROR, topic=name.partition("/")[0], error=kind), err=True)
    raise SystemExit(1 if errors else 0)


@click.command()
@click.argument("topic")
@click.option("--reason", default="", metavar="TEXT", help="Reason, shown by `lakehouse status` and the UI.")
def pause(topic: str, reason: str) -> None:
    """Pause TOPIC in the runs, streams and sensors of all processes. The pause survives restarts.

    A batch in progress is completed first. Other topics are not affected. No record is lost while Kafka retains it.
    """
    from lakehouse.cli.systems import open_clients
    from lakehouse.config import loader
    from resources.iceberg import pauses

    declared = loader.load()
    entry = declared.topic_written_by_spark(topic)
    with open_clients(declared) as resources:
        echo(f"{topic}: {pauses.pause(resources.catalog, declared.namespace, entry, reason).describe()}")
    echo(f"Resume with `lakehouse unpause {topic}`")


@click.command()
@click.argument("topic")
def unpause(topic: str) -> None:
    """Resume TOPIC from the offsets in its table: streams within seconds, sensors with their next tick."""
    from lakehouse.cli.systems import open_clients
    from lakehouse.config import loader
    from resources.iceberg import pauses

    declared = loader.load()
    with open_clients(declared) as resources:
        try:
            table = declared.topic(topic).table
        except ConfigError:
            # lakehouse.yaml may no longer declare the topic of a pause.
            table = table_name(topic)
            if table not in pauses.pauses(resources.catalog, declared.namespace):
                raise
        if not pauses.unpause(resources.catalog, declared.namespace, table):
            raise LakehouseError(f"Topic '{topic}' is not paused. Nothing was changed. See `lakehouse status`")
    echo(f"{topic}: resumed")
