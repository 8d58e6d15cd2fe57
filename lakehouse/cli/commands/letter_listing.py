"""The command `lakehouse dead-letters`."""

import json
from dataclasses import asdict

import click

from lakehouse.cli import console
from lakehouse.cli.systems import open_clients
from lakehouse.config import loader
from lakehouse.config.sensitive import hide_values
from lakehouse.core.text.terminal import echo
from lakehouse.pipeline.dead_letters.dead_letter_queries import pending_dead_letters


@click.command("dead-letters")
@click.argument("topic")
@click.option("--newest", default=20, show_default=True, type=click.IntRange(min=0), help="Maximum number to list.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def dead_letters(topic: str, newest: int, as_json: bool) -> None:
    """List the records of TOPIC that could not become rows or are in quarantine, with the reasons.

    A dead letter stays until `lakehouse redrive` makes it a row, after its cause was fixed. Its bytes are in the table
    `<table>__dead_letters`: lakehouse query --engine duckdb "SELECT * FROM <namespace>.<table>__dead_letters"
    """

    declared = loader.load()
    entry = declared.topic_written_by_spark(topic)
    with open_clients(declared) as resources, hide_values(entry):
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
