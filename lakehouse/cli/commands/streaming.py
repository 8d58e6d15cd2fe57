"""Topics into their tables, seconds after records come."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack
from pathlib import Path

import click

from lakehouse.core.terminal import echo


@click.command(short_help="Take what comes, on and on.")
@click.argument("topics", nargs=-1)
@click.option("--once", is_flag=True, help="End when each table has what its topic holds now.")
def stream(topics: tuple[str, ...], once: bool) -> None:
    """Take these topics on and on: seconds after a record was produced it is in its table, in Glue and in Snowflake.

    Without TOPICS, those with `continuous: true`, or all where there are none. Ctrl-C and SIGTERM end it after the
    batches in progress; killed, the next one goes on where the tables are.

    \b
    Exit code 0: it was told to end, or with --once every table is complete. 1: with --once, one is not.
    """
    # First of all: a signal that comes while everything is loaded is not to end in a traceback.
    stopping = threading.Event()
    for end in (signal.SIGTERM, signal.SIGINT):
        signal.signal(end, lambda *_: stopping.set())
    import dagster as dg

    from assets.streaming.service import Streaming, chosen
    from lakehouse.cli.systems import connected
    from lakehouse.config import loader

    declared = loader.load()
    with connected(declared) as systems, ExitStack() as stack:
        home = os.environ.get("DAGSTER_HOME")
        instance = stack.enter_context(dg.DagsterInstance.get()) if home and Path(home).is_dir() else None
        wanted = chosen(declared, topics, systems.kafka.topics() if declared.routes else ())
        errors = Streaming(declared, wanted, systems, echo, instance, once=once, stopping=stopping).run()
    for name, error in errors.items():
        echo(f"{name}: {error}", err=True)
    raise SystemExit(1 if errors else 0)
