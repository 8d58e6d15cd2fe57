"""Commands that inspect tables, and commands that repair or maintain them."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click

from lakehouse.cli import console
from lakehouse.cli.systems import named_topics, open_clients, require_table, require_written_by_spark, verification
from lakehouse.config import loader
from lakehouse.config.model import Config, Topic
from lakehouse.config.sensitive import hide_values
from lakehouse.core.errors import LakehouseError, logged_reason
from lakehouse.core.terminal import echo
from lakehouse.core.text import pluralize
from lakehouse.pipeline import maintenance
from lakehouse.pipeline.batches.offsets import require_position
from lakehouse.pipeline.batches.offsets import resume as resume_at
from lakehouse.pipeline.bookmarks import set_dead_letter_bookmark, set_derived_bookmark
from lakehouse.pipeline.clients import Clients, engine_client
from lakehouse.pipeline.commits.audit import AuditFailed
from lakehouse.pipeline.ledger import ledger_page
from lakehouse.pipeline.ledger.reconciliation import check_ledger, reconcile
from lakehouse.pipeline.production import produce
from lakehouse.pipeline.redrive import redrive as redrive_letters
from lakehouse.pipeline.replay import replay as replay_range
from lakehouse.readers import publish
from resources.protocols import Resources


def _not_blank(context: click.Context, parameter: click.Parameter, value: str) -> str:  # noqa: ARG001 (click's interface)
    if not value.strip():
        raise click.BadParameter("it is empty. Write why, for those who read the history")
    return value


@click.command()
@click.argument("topic")
@click.option("--deep", is_flag=True, help="Also count rows and dead letters, and look for missing ones in the topic.")
@click.option("--log", is_flag=True, help="Like --deep, and compare with all records that the topic still contains.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ledger(topic: str, deep: bool, log: bool, as_json: bool) -> None:
    """Show the records that each commit ingested from TOPIC, and verify that none is missing or duplicated.

    Without options only the counts in the table's snapshots are verified, which takes seconds.

    \b
    The counts of all commits:   lakehouse ledger orders
    The rows themselves:         lakehouse ledger orders --deep

    \b
    Exit code 0: the ledger is consistent. 1: it is not. 2: it could not be verified.
    """
    with verification():
        declared = loader.load()
        entry = declared.topic_written_by_spark(topic)
        with open_clients(declared) as resources, hide_values(entry):
            require_table(declared, entry, resources)
            if deep or log:
                report = reconcile(declared.namespace, entry, Clients.of(resources), whole_log=log)
            else:
                report = check_ledger(resources.catalog, declared.namespace, entry)
    if as_json:
        echo(json.dumps({"topic": topic} | ledger_page.as_json(report.entries, report.findings), indent=2))
    else:
        console.console.print(*console.ledger(topic, report), sep="\n")
    raise SystemExit(0 if report.is_consistent else 1)


@click.command()
@click.argument("topic")
@click.option("--poison", is_flag=True, help="Also decode the records whose decoding aborted the Spark job.")
def redrive(topic: str, poison: bool) -> None:
    """Decode and check the dead letters of TOPIC again, and publish those that pass as rows.

    The others stay dead letters. Readers and derived topics receive the rows. A second redrive duplicates nothing, and
    passes on to them what one that was interrupted did not.

    \b
    List the reasons:            lakehouse dead-letters orders
    Retry after a fix:           lakehouse redrive orders
    With more memory for Spark:  lakehouse redrive orders --poison
    """
    declared = loader.load()
    entry = declared.topic_written_by_spark(topic)
    with open_clients(declared) as resources, hide_values(entry), _with_check_results():
        require_table(declared, entry, resources)
        result = redrive_letters(declared.namespace, entry, Clients.of(resources), poison=poison)
        echo(result.describe())
        # Without a new row, too: a command that was killed may have added rows.
        if resources.catalog.chain(entry.table_in(declared.namespace)).published:
            _pass_on(declared, topic, resources)
    if result.attempted > result.recovered:
        remaining = result.attempted - result.recovered
        echo(f"{pluralize(remaining, 'dead letter')} left. List the reasons with `lakehouse dead-letters {topic}`")


@click.command()
@click.argument("topic")
@click.option(
    "--since",
    required=True,
    metavar="POSITION",
    help="earliest, a time, or offsets such as 0:12,1:40. Partitions that are not named are not read.",
)
@click.option("--branch", help="Write to this branch of the table, and leave the published rows unchanged.")
def replay(topic: str, since: str, branch: str | None) -> None:
    """Read TOPIC again from a position up to the table's offsets, and replace the rows of those records.

    \b
    All records that Kafka still has:        lakehouse replay orders --since earliest
    Only partition 0, from offset 12:        lakehouse replay orders --since 0:12
    To a branch, to be compared first:       lakehouse replay orders --since earliest --branch fixed

    Readers and derived topics receive the rows.

    A second replay changes nothing more. The rows must pass the same audit as a batch before they are published. A
    partition or an offset that the table has not ingested yet is refused.
    """
    require_position(since)
    declared = loader.load()
    entry = declared.topic_written_by_spark(topic)
    with open_clients(declared) as resources, hide_values(entry), _with_check_results():
        result = replay_range(declared.namespace, entry, Clients.of(resources), since, branch)
        rows = pluralize(result.counts.rows, "row")
        echo(f"{pluralize(result.counts.consumed, 'record')} replayed: {rows} written to {branch or 'main'}")
        if not branch:
            _pass_on(declared, topic, resources)


@click.command()
@click.argument("topic")
@click.option("--at", "where", required=True, metavar="POSITION", help="earliest, latest, a time, or 0:12,1:40.")
@click.option("--reason", required=True, callback=_not_blank, help="Reason, which is stored in the table's history.")
def resume(topic: str, where: str, reason: str) -> None:
    """Set the offsets from which the next batch of TOPIC starts, after ingestion stopped because they were unclear.

    \b
    After Kafka deleted records too early:  lakehouse resume orders --at earliest --reason "retention, see #12"
    Two partitions by offset:               lakehouse resume orders --at 0:12,1:40 --reason "..."

    Partitions that are not named keep the table's offsets; if the topic was recreated, all must be named. The decision
    is a snapshot without rows, and `lakehouse ledger` shows it with the records that it skipped.
    """
    require_position(where)
    declared = loader.load()
    entry = declared.topic_written_by_spark(topic)
    with open_clients(declared) as resources:
        position = resume_at(Clients.of(resources), declared.namespace, entry, where, reason)
    for partition, offset in sorted(position.end.items()):
        echo(f"partition {partition}: was at {position.start[partition]:,}, continues at {offset:,}")


@click.command()
@click.argument("topic")
@click.option(
    "--at", "where", required=True, metavar="POSITION", help="earliest, latest, current, a time, or 0:12,1:40."
)
@click.option("--reason", required=True, callback=_not_blank, help="Reason, which is stored with the bookmark.")
@click.option("--dead-letters", is_flag=True, help="Set the bookmark of the topic's 'dead_letter_topic' instead.")
def bookmark(topic: str, where: str, reason: str, dead_letters: bool) -> None:
    """Set the records from which the derived TOPIC continues, after it stopped in an unclear state.

    Records before the position count as derived. `latest` is the position of the source's table, so that records which
    are ingested later are derived; it never moves back. `current` keeps the position, for messages that may stay after
    `transform` was changed. With --dead-letters, the position is that of the first dead letter that is produced to the
    topic's 'dead_letter_topic'.

    \b
    Derive everything again:     lakehouse bookmark totals --at earliest --reason "new transform"
    Skip the table's rows:       lakehouse bookmark totals --at latest --reason "derived before"
    Derive new rows otherwise:   lakehouse bookmark totals --at current --reason "transform moved"
    """
    require_position(where, "current")
    declared = loader.load()
    with open_clients(declared) as resources:
        clients = Clients.of(resources)
        set_bookmark = set_dead_letter_bookmark if dead_letters else set_derived_bookmark
        offsets = set_bookmark(declared, declared.topic(topic), clients, where, reason)
    for partition, offset in sorted(offsets.items()):
        echo(f"partition {partition}: continues at {offset:,}")


@click.command()
@click.argument("topics", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def maintain(topics: tuple[str, ...], as_json: bool) -> None:
    """Compact, expire and clean up the tables of TOPICS, as the schedule `maintenance` does nightly.

    TOPICS are names of topics and routes, and default to all. Readers are not affected. What is kept is configured
    under `retention` in lakehouse.yaml.

    \b
    Exit code 0: all tables were maintained. 1: some were not; the others were.
    """
    declared, maintained = loader.load(), []
    require_written_by_spark(declared, topics)
    with open_clients(declared) as resources:

        def maintain_one(entry: Topic) -> None:
            engines = engine_client(resources.spark)
            for result in maintenance.maintain(declared.namespace, entry, resources.catalog, engines):
                maintained.append({"topic": entry.name, **asdict(result)})
                if not as_json:
                    echo(f"{result.table}: {', '.join(result.actions) or 'nothing to do'} ({result.seconds:.1f} s)")

        failed = _failing(maintain_one, named_topics(declared, topics, resources), "maintenance")
    if as_json:
        echo(json.dumps({"tables": maintained, "failed": failed}, indent=2))
    if failed:
        raise LakehouseError(
            f"The maintenance of {', '.join(failed)} failed, and that of the other topics is done. Remove the cause, "
            f"and run `lakehouse maintain {' '.join(failed)}`"
        )


def _pass_on(declared: Config, topic: str, resources: Resources) -> None:
    """Publish to the readers and derive, because no run of Dagster follows a snapshot of the command line.

    Raises:
        LakehouseError: A derived topic lacks the rows, and the table and its readers have them.
    """
    for reader, published in publish(declared, declared.topic(topic), resources).items():
        rows = "" if published.rows is None else f", {published.rows:,} rows"
        echo(f"{reader.label} shows snapshot {published.snapshot_id}{rows}")

    def derive(derived: Topic) -> None:
        messages = produce(declared, derived, Clients.of(resources)).messages
        echo(f"{pluralize(messages, 'message')} derived for {derived.name}")

    entries = (entry for entry in declared.topics.values() if entry.source.upstream == topic)
    failed = _failing(derive, entries, "derivation")
    if failed:
        raise LakehouseError(
            f"The rows are published, and {', '.join(failed)} was not derived from them. Remove the cause, and "
            f"materialize {', '.join(f'{name}/kafka' for name in failed)}"
        )


def _failing(action: Callable[[Topic], None], entries: Iterable[Topic], kind: str) -> list[str]:
    """Do something for all entries, print why it failed, and return the names of the entries for which it did."""
    failed = []
    for entry in entries:
        try:
            with hide_values(entry):
                action(entry)
        except Exception as error:
            echo(f"{entry.name}: {logged_reason(f'The {kind} of {entry.name} failed', error)}", err=True)
            failed.append(entry.name)
    return failed


@contextmanager
def _with_check_results() -> Iterator[None]:
    """Print how to list the failing rows if an audit fails: only runs of Dagster have check results."""
    try:
        yield
    except AuditFailed as failure:
        for finding in failure.findings:
            if finding.blocks and finding.result:
                echo(f"Rows that fail check '{finding.check}': {finding.result.sql}")
        raise
