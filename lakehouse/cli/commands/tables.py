"""What a table holds, and what an operator decides about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from lakehouse.config.sensitive import unquoted
from lakehouse.core.terminal import echo

if TYPE_CHECKING:
    from lakehouse.config.loader import Config


@click.command(short_help="Prove that a table holds all of its topic, once.")
@click.argument("topic")
@click.option("--deep", is_flag=True, help="Also count rows and dead letters, and ask the log where some are missing.")
@click.option("--log", is_flag=True, help="Like --deep, and ask the log about everything it still holds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ledger(topic: str, deep: bool, log: bool, as_json: bool) -> None:
    """Show what each commit took from TOPIC, and whether all of it adds up; exit code 1 when it does not."""
    from lakehouse.cli import console
    from lakehouse.cli.systems import connected
    from lakehouse.config import loader
    from lakehouse.pipeline import ledger_page
    from lakehouse.pipeline.clients import Clients
    from lakehouse.pipeline.proof import check, prove

    declared = loader.load()
    found = declared.topic(topic)
    with connected(declared) as r, unquoted(found):
        if deep or log:
            systems = Clients.of(r)
            proof = prove(declared.namespace, found, systems, whole_log=log)
        else:
            proof = check(r.catalog, declared.namespace, found)
    if as_json:
        echo(json.dumps({"topic": topic} | ledger_page.as_json(proof.entries, proof.findings), indent=2))
    else:
        console.console.print(*console.ledger(topic, proof), sep="\n")
    raise SystemExit(0 if proof.holds else 1)


@click.command("dead-letters", short_help="Say which records wait as dead letters, and why.")
@click.argument("topic")
@click.option("--newest", default=20, show_default=True, type=click.IntRange(min=0), help="So many are shown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def dead_letters(topic: str, newest: int, as_json: bool) -> None:
    """Say which records of TOPIC could not become rows, or are in quarantine, and why.

    They stay until `lakehouse redrive` makes rows of them, which it does once the reason is gone. Their bytes are in
    the table `<table>__dead_letters`: lakehouse query --engine duckdb "SELECT * FROM <namespace>.<table>__dead_letters"
    """
    from dataclasses import asdict

    from lakehouse.cli import console
    from lakehouse.cli.systems import connected
    from lakehouse.config import loader
    from lakehouse.pipeline.waiting_letters import waiting

    declared = loader.load()
    with connected(declared) as systems, unquoted(declared.topic(topic)):
        found = waiting(systems.catalog, declared.namespace, declared.topic(topic), newest)
    if as_json:
        echo(json.dumps(asdict(found), indent=2, default=str))
        return
    columns = ["partition", "offset", "reason", "what it says", "bytes", "since"]
    values = [
        [one.partition, one.offset, one.check or one.reason, one.said, one.bytes, f"{one.at:%Y-%m-%d %H:%M:%S}"]
        for one in found.newest
    ]
    console.console.print(console.rows(columns, values, title=f"Dead letters of {topic}"))
    echo(", ".join(f"{reason}: {n:,}" for reason, n in found.by_reason.items()) or "No dead letters wait")


@click.command(short_help="Decode dead letters again.")
@click.argument("topic")
def redrive(topic: str) -> None:
    """Decode a topic's dead letters again, after what was wrong is mended; those that decode become rows."""
    from lakehouse.cli.systems import connected
    from lakehouse.config import loader
    from lakehouse.pipeline.replay import redrive

    declared = loader.load()
    with connected(declared) as systems, unquoted(declared.topic(topic)):
        done = redrive(declared.namespace, declared.topic(topic), systems)
        echo(f"{done.tried:,} dead letters decoded again, {done.landed:,} are rows now")
        if done.landed:
            _show_readers(declared, topic, systems)
    if done.tried > done.landed:
        echo(f"{done.tried - done.landed:,} stay what they are: `lakehouse dead-letters {topic}` says why")


@click.command(short_help="Read a range of a topic again.")
@click.argument("topic")
@click.option(
    "--since",
    required=True,
    metavar="POSITION",
    help="earliest, a time, or offsets as 0:12,1:40: partitions that are not named are not read.",
)
@click.option("--branch", help="Write to this branch of the table, and leave main as it is.")
def replay(topic: str, since: str, branch: str | None) -> None:
    """Read a topic again from a position up to where its table is, and replace the rows of those records.

    \b
    Everything that the log still has:       lakehouse replay orders --since earliest
    Partition 0 from offset 12, no other:    lakehouse replay orders --since 0:12

    Doing it twice changes nothing. The rows must pass the same audit as a batch before readers see them. A partition
    or an offset that the table does not have yet is refused.
    """
    from lakehouse.cli.systems import connected
    from lakehouse.config import loader
    from lakehouse.pipeline.replay import replay

    declared = loader.load()
    with connected(declared) as systems, unquoted(declared.topic(topic)):
        done = replay(declared.namespace, declared.topic(topic), systems, since, branch)
        echo(f"{done.counts.consumed:,} records read again, {done.counts.rows:,} rows in {branch or 'main'}")
        if done.snapshot_id and not branch:
            _show_readers(declared, topic, systems)


@click.command(short_help="Decide where a table's next batch begins.")
@click.argument("topic")
@click.option("--at", "where", required=True, metavar="POSITION", help="earliest, latest, a time, or 0:12,1:40.")
@click.option("--reason", required=True, help="Why; it is kept in the table's history.")
def resume(topic: str, where: str, reason: str) -> None:
    """Decide where a table's next batch begins, after ingestion stopped because the state was unclear.

    \b
    The broker lost records before they were read:  lakehouse resume orders --at earliest --reason "retention, see #12"
    Leave partition 0 at 12 and partition 1 at 40:  lakehouse resume orders --at 0:12,1:40 --reason "..."

    Partitions that are not named stay where the table is; where the topic is another one, name each. The decision is a
    snapshot without rows; `lakehouse ledger` shows it and what it skipped.
    """
    from lakehouse.cli.systems import connected
    from lakehouse.config import loader
    from lakehouse.pipeline.position import resume

    declared = loader.load()
    with connected(declared) as systems:
        position = resume(systems, declared.namespace, declared.topic(topic), where, reason)
    for partition, offset in sorted(position.end.items()):
        echo(f"partition {partition}: was at {position.start[partition]:,}, goes on at {offset:,}")


@click.command(short_help="Set where a derived topic continues in its source.")
@click.argument("topic")
@click.option("--at", "where", required=True, metavar="POSITION", help="earliest, latest, a time, or 0:12,1:40.")
@click.option("--reason", required=True, help="Why; it is kept with the bookmark.")
@click.option("--dead-letters", is_flag=True, help="Of the topic's dead letters, in its 'dead_letter_topic'.")
def bookmark(topic: str, where: str, reason: str, dead_letters: bool) -> None:
    """Decide from which of its source's records on TOPIC is derived, after that stopped because it was unclear.

    What is before the position counts as derived. With --dead-letters it is about the topic's dead letters: from which
    records on they are produced to its 'dead_letter_topic'.
    """
    from lakehouse.cli.systems import connected
    from lakehouse.config import loader
    from lakehouse.pipeline.bookmarks import decide
    from lakehouse.pipeline.clients import Clients

    declared = loader.load()
    with connected(declared) as r:
        systems = Clients.of(r)
        offsets = decide(declared, declared.topic(topic), systems, where, reason, letters=dead_letters)
    for partition, offset in sorted(offsets.items()):
        echo(f"partition {partition}: continues at {offset:,}")


@click.command(short_help="Compact, expire and clean up tables.")
@click.argument("topics", nargs=-1)
def maintain(topics: tuple[str, ...]) -> None:
    """Compact, expire and clean up the tables of these topics, or of all; as the schedule `maintenance` does."""
    from lakehouse.cli.systems import connected
    from lakehouse.config import loader
    from lakehouse.pipeline.maintenance import maintain

    declared = loader.load()
    with connected(declared) as systems:
        for name in topics or declared.by_spark:
            with unquoted(declared.topic(name)):
                for done in maintain(declared.namespace, declared.topic(name), systems.catalog, systems.spark):
                    echo(f"{done.table}: {', '.join(done.done) or 'nothing to do'} ({done.seconds:.1f} s)")


def _show_readers(declared: Config, topic: str, systems: Any) -> None:
    """Publish to the readers: no run of Dagster follows a snapshot that none published."""
    from lakehouse.readers import publish

    for reader, published in publish(declared, declared.topic(topic), systems).items():
        rows = "" if published.rows is None else f", {published.rows:,} rows"
        echo(f"{reader.label} shows snapshot {published.snapshot_id}{rows}")
