"""The commands that show states and rows: `lakehouse status`, `lakehouse query` and `lakehouse dead-letters`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from lakehouse.cli import console
from lakehouse.cli.systems import open_clients, require_table
from lakehouse.config import loader
from lakehouse.config.discovery import environment_name
from lakehouse.config.sensitive import hide_values
from lakehouse.core.terminal import echo
from lakehouse.query.engines import ENGINES, run

if TYPE_CHECKING:
    from lakehouse.local.stack import ServerState

WATCH_SECONDS = 5
"""Pause between two displays of `status --watch`, each of which asks every system."""


@click.command()
@click.option("--watch", is_flag=True, help="Show the status again every few seconds, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(watch: bool, as_json: bool) -> None:
    """Show each server, and for each topic its end offset, its ingested offset and the lag of each stage.

    For a topic that does not ingest its records, the reason is shown, and the command that resolves it. The servers of
    the embedded stack are shown in the environment `local` only. Stale stages are red; `lakehouse check` has an exit
    code for them.
    """
    from lakehouse.cli.status import report

    if watch and as_json:
        raise click.UsageError("--watch shows tables, and --json prints one object. Use one of them")
    declared = loader.load()
    with open_clients(declared) as resources:
        while True:
            servers = _servers()
            if not (watch or as_json):
                _show_servers(servers)
            measured = report(declared, resources)
            if as_json:
                of_stack = [asdict(server) | {"log": str(server.log)} for server in servers]
                echo(json.dumps({"servers": of_stack, **measured.to_json()}, indent=2))
                return
            if watch:
                console.console.clear()
                _show_servers(servers)
            console.console.print(console.topics(measured.topics))
            for subject, problem in measured.problems:
                console.console.print(f"[red]✗[/] {console.plain(subject)}: {console.plain(problem)}")
            if not watch:
                return
            time.sleep(WATCH_SECONDS)


def _show_servers(servers: Sequence[ServerState]) -> None:
    if servers:
        from lakehouse.local import show
        from lakehouse.local.home import Home

        show.servers([*servers], Home.default())


def _servers() -> Sequence[ServerState]:
    """Return the servers of the embedded stack; none in other environments."""
    if environment_name() != "local":
        return []
    from lakehouse.local import stack
    from lakehouse.local.home import Home

    return stack.status(Home.default())


@click.command()
@click.argument("sql")
@click.option(
    "--engine",
    type=click.Choice(list(ENGINES)),
    help="Query engine. Default: snowflake if the environment has it, and else duckdb.",
)
@click.option(
    "--output", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True, help="Output format."
)
def query(sql: str, engine: str | None, output: str) -> None:
    """Run a query and print its result. `csv` and `json` print numbers with all digits.

    \b
    Tables are namespace.table, with the namespace of lakehouse.yaml:
      lakehouse query "SELECT * FROM trading.users LIMIT 10"
      lakehouse query "SELECT * FROM trading.users LIMIT 10" --engine duckdb --output csv

    The SQL is one query. Statements that write are refused, in each engine. DuckDB runs in this process on full copies
    of the catalog's tables. Snowflake and Athena, which the environment must have, query the snapshots that were last
    published to them.
    """
    with open_clients(loader.load()) as resources:
        result = run(sql, engine, resources)
    match output:
        case "csv":
            echo(result.csv(), nl=False)
        case "json":
            echo(result.json(), nl=False)
        case _:
            console.console.print(console.rows(result.columns, result.terminal_rows()))


@click.command("dead-letters")
@click.argument("topic")
@click.option("--newest", default=20, show_default=True, type=click.IntRange(min=0), help="Maximum number to list.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def dead_letters(topic: str, newest: int, as_json: bool) -> None:
    """List the records of TOPIC that could not become rows or are in quarantine, with the reasons.

    A dead letter stays until `lakehouse redrive` makes it a row, after its cause was fixed. Its bytes are in the table
    `<table>__dead_letters`: lakehouse query --engine duckdb "SELECT * FROM <namespace>.<table>__dead_letters"
    """
    from lakehouse.pipeline.dead_letters.dead_letter_queries import pending_dead_letters

    declared = loader.load()
    entry = declared.topic_written_by_spark(topic)
    with open_clients(declared) as resources, hide_values(entry):
        require_table(declared, entry, resources)
        pending = pending_dead_letters(resources.catalog, declared.namespace, entry, newest)
    if as_json:
        echo(json.dumps(asdict(pending), indent=2, default=str))
        return
    columns = ["partition", "offset", "reason or check", "message", "bytes", "since"]
    values = [
        [one.partition, one.offset, one.check or one.reason, one.message, one.bytes, f"{one.at:%Y-%m-%d %H:%M:%S}"]
        for one in pending.newest
    ]
    console.console.print(console.rows(columns, values, title=f"Dead letters of {topic}"))
    echo(", ".join(f"{reason}: {n:,}" for reason, n in pending.by_reason.items()) or "No dead letters")
