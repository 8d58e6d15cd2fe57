"""The command line: a thin list of commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from lakehouse.cloud.command import deploy
from lakehouse.errors import LakehouseError
from lakehouse.query.engines import ENGINES

if TYPE_CHECKING:
    from lakehouse.config import Config
    from lakehouse.gate import Outcome


class _Commands(click.Group):
    """Prints the project's own errors as one sentence, without a traceback, and ends with exit code 1."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except LakehouseError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Any Kafka topic as a checked, fresh Apache Iceberg table.

    \b
    See it work:         lakehouse demo
    Work with it:        lakehouse up, then open the UI it names
    See how far it is:   lakehouse status
    See that all came:   lakehouse ledger stock_trades
    In a pipeline:       lakehouse validate, plan, rehearse, check
    Set up the clouds:   lakehouse deploy plan --env aws
    Ask for rows:        lakehouse query "SELECT * FROM trading.users"
    Something is wrong:  lakehouse doctor

    \b
    What exists is declared in lakehouse.yaml (LAKEHOUSE_CONFIG names another file).
    LAKEHOUSE_ENV chooses the environment in it, LAKEHOUSE_HOME where the embedded stack keeps its state.
    """


@main.command(short_help="Start the embedded stack.")
@click.option("--only", multiple=True, metavar="SERVER", help="Start this server only; may be repeated.")
def up(only: tuple[str, ...]) -> None:
    """Start the embedded stack; what runs already is kept."""
    from lakehouse.local import show, stack
    from lakehouse.local.home import Home
    from lakehouse.restore import Restoring

    if unknown := set(only) - set(stack.SERVERS):
        raise click.BadParameter(f"no server {', '.join(sorted(unknown))}. There are: {', '.join(stack.SERVERS)}")
    restoring = Restoring()
    show.up(Home.default(), only or tuple(stack.SERVERS), restoring.on_ready)
    if restored := restoring.result():
        click.echo(f"Registered in Glue and Snowflake again: {', '.join(restored)}")


@main.command(short_help="Stop the embedded stack; its data stays.")
def down() -> None:
    """Stop what `up` started, also when `up` was killed."""
    from lakehouse.local import stack
    from lakehouse.local.home import Home

    stopped = stack.down(Home.default())
    click.echo(f"Stopped: {', '.join(stopped)}" if stopped else "Nothing was running")


@main.command(
    short_help="Run a command that finds the embedded stack.", context_settings={"ignore_unknown_options": True}
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(command: tuple[str, ...]) -> None:
    """Run COMMAND with the variables that lead to the embedded stack: KAFKA_BOOTSTRAP_SERVERS, SCHEMA_REGISTRY_URL,
    AWS_ENDPOINT_URL_S3 with the keys for it, SPARK_REMOTE, SNOWFLAKE_HOST, DAGSTER_HOME and so on.

    \b
      lakehouse run python produce.py
      lakehouse run env
    """
    import os
    import shutil

    from lakehouse.local.environment import environment

    found = shutil.which(command[0])
    if found is None:
        raise click.ClickException(f"There is no program '{command[0]}'. Nothing was run. Correct its name or PATH")
    os.execve(found, command, {**os.environ, **environment()})


@main.command(short_help="Show servers, and how far each topic has come.")
def status() -> None:
    """Show each server, and per topic how far it has come: end offset, ingested offset, lag, Glue, Snowflake."""
    from rich.markup import escape

    from lakehouse import config, console
    from lakehouse.last_run import failures
    from lakehouse.status import status
    from lakehouse.systems import connected
    from resources.build import environment_name

    if environment_name() == "local":
        from lakehouse.local import show, stack
        from lakehouse.local.home import Home

        show.servers(stack.status(Home.default()))
    declared = config.load()
    with connected(declared) as systems:
        console.console.print(console.topics(status(declared, systems)))
        for topic, reason in failures([*declared.topics]).items():
            console.console.print(f"[red]✗[/] {topic}: the last run failed. {escape(reason)}")


@main.command(short_help="Prove that a table holds all of its topic, once.")
@click.argument("topic")
@click.option("--deep", is_flag=True, help="Also count rows and dead letters, and ask the log where some are missing.")
@click.option("--log", is_flag=True, help="Like --deep, and ask the log about everything it still holds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ledger(topic: str, deep: bool, log: bool, as_json: bool) -> None:
    """Show what each commit took from TOPIC, and whether all of it adds up; exit code 1 when it does not."""
    from assets.ingestion import Systems
    from assets.proof import check, prove
    from lakehouse import config, console, ledger_page
    from lakehouse.systems import connected

    declared = config.load()
    found = declared.topic(topic)
    with connected(declared) as r:
        if deep or log:
            systems = Systems(r.kafka, r.schema_registry, r.spark, r.catalog)
            proof = prove(declared.namespace, found, systems, whole_log=log)
        else:
            proof = check(r.catalog, declared.namespace, found)
    if as_json:
        click.echo(json.dumps({"topic": topic} | ledger_page.as_json(proof.entries, proof.findings), indent=2))
    else:
        console.console.print(*console.ledger(topic, proof), sep="\n")
    raise SystemExit(0 if proof.holds else 1)


@main.command(short_help="Run SQL in Snowflake, or another engine.")
@click.argument("sql")
@click.option(
    "--engine",
    type=click.Choice(list(ENGINES)),
    default="snowflake",
    show_default=True,
    help="Who answers.",
)
@click.option(
    "--output", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True, help="How to print it."
)
def query(sql: str, engine: str, output: str) -> None:
    """Run SQL and print the result; `csv` and `json` lose no digit.

    \b
    Tables are namespace.table, with the namespace of lakehouse.yaml:
      lakehouse query "SELECT * FROM trading.users LIMIT 10"
      lakehouse query "SELECT * FROM trading.users LIMIT 10" --engine duckdb --output csv

    DuckDB and pyiceberg run here and read the catalog's tables: DuckDB whole, pyiceberg only the columns and rows of a
    SELECT … FROM … WHERE … LIMIT. Snowflake and Athena show what was last published to them.
    """
    from lakehouse import config, console
    from lakehouse.systems import connected

    with connected(config.load()) as systems:
        result = ENGINES[engine](sql, systems)
    match output:
        case "csv":
            click.echo(result.csv(), nl=False)
        case "json":
            click.echo(result.json(), nl=False)
        case _:
            console.console.print(console.rows(result.columns, result.shown()))


@main.command(short_help="Show what a new schema would do to a topic's table.")
@click.argument("topic", required=False)
@click.argument("schema_file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The schema in use, in place of the table: nothing else is needed then.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan for programs.")
def plan(topic: str | None, schema_file: Path | None, against: Path | None, as_json: bool) -> None:
    """Show what a schema (.avsc, .json, .proto) would do to a topic's table; nothing is changed.

    Without SCHEMA_FILE it is the newest in the registry, and without TOPIC every topic's.

    \b
    Exit code 0: the table can follow. 1: it cannot, and ingestion would stop. 2: it could not be found out.
      lakehouse plan
      lakehouse plan users schemas/users.avsc
      lakehouse plan users new.avsc --against old.avsc
    """
    from lakehouse import config
    from lakehouse import plan as plans
    from lakehouse.systems import connected

    try:
        declared = config.load()
        wanted = [declared.topic(topic)] if topic else list(declared.topics.values())
        if schema_file:
            table = plans.as_table(plans.read(against), wanted[0]) if against else plans.table_now(declared, wanted[0])
            found = [plans.plan(declared, wanted[0], schema_file, table)]
        else:
            with connected(declared) as systems:
                found = [plans.registered(declared, one, systems) for one in wanted]
    except LakehouseError as error:
        raise click.UsageError(str(error)) from error
    said = [one.to_json() for one in found]
    lines = [line for one in found for line in one.lines()]
    click.echo(json.dumps(said if len(said) > 1 else said[0], indent=2) if as_json else "\n".join(lines))
    raise SystemExit(0 if all(one.accepted for one in found) else 1)


@main.command(short_help="Load all definitions, without any system.")
def validate() -> None:
    """Load lakehouse.yaml and everything that Dagster makes of it; no system is asked. For pull requests."""
    import dagster as dg

    from lakehouse.definitions import defs

    loaded = defs()
    dg.Definitions.validate_loadable(loaded)
    graph = loaded.resolve_asset_graph()
    click.echo(f"{len(graph.get_all_asset_keys()):,} assets, {len(graph.asset_check_keys):,} checks")


@main.command(short_help="Run every check, for a pipeline.")
@click.argument("topics", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write JUnit XML.")
def check(topics: tuple[str, ...], as_json: bool, junit: Path | None) -> None:
    """Run the checks of these topics, or of all, in the environment of LAKEHOUSE_ENV: as the UI would, without it.

    Those of lakehouse.yaml look at every published row; the others say whether each hop is fresh and shows what was
    published, and whether the ledger adds up. A table whose last run failed is named, where there is a Dagster to ask.

    \b
    Exit code 0: none failed (warnings allowed). 1: one failed. 2: not every check could be run.
    """
    from lakehouse import config, gate
    from lakehouse.last_run import failures
    from lakehouse.systems import connected

    try:
        known = config.load()
        names = list(topics or (*known.topics, *known.routes))
        with connected(known) as systems:
            there = systems.kafka.topics() if known.routes else []
            routed = [topic for topic in known.routed(there) if not topics]
            chosen = [known.topic(name) for name in names if name not in known.routes] + routed
            ours = [topic for topic in chosen if topic.engine == "spark"]
            outcomes = [*gate.standing(known, names, there), *gate.declared(known, ours, systems)]
            for topic, reason in failures([name for name in names if name in known.topics]).items():
                outcomes.append(gate.Outcome(f"iceberg/{topic}", "last_run", "failed", reason))
    except LakehouseError as error:
        raise click.UsageError(str(error)) from error
    _report(outcomes, as_json, junit)


@main.command(short_help="Check a sample of new records, without publishing it.")
@click.argument("topics", nargs=-1)
@click.option("--records", default=1_000, show_default=True, help="The newest records to take of each topic, at most.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write JUnit XML.")
def rehearse(topics: tuple[str, ...], records: int, as_json: bool, junit: Path | None) -> None:
    """Take the newest records of these topics, or of all, to a branch; check them there; drop the branch.

    Main and the position stay as they are. Exit codes are those of `lakehouse check`.
    """
    from assets.ingestion import Systems
    from assets.rehearsal import rehearse
    from lakehouse import config, gate
    from lakehouse.systems import connected

    outcomes: list[gate.Outcome] = []
    try:
        known = config.load()
        chosen = [known.topic(name) for name in topics or known.by_spark]
        with connected(known) as r:
            systems = Systems(r.kafka, r.schema_registry, r.spark, r.catalog)
            for topic in chosen:
                asset = f"iceberg/{topic.name}"
                try:
                    done = rehearse(known.namespace, topic, systems, records)
                    outcomes += gate.of_findings(asset, done.findings)
                except LakehouseError as error:
                    outcomes.append(gate.Outcome(asset, "rehearsal", "not run", str(error)))
    except LakehouseError as error:
        raise click.UsageError(str(error)) from error
    _report(outcomes, as_json, junit)


def _report(outcomes: list[Outcome], as_json: bool, junit: Path | None) -> NoReturn:
    from lakehouse import console, gate

    if junit:
        junit.write_text(gate.as_junit(outcomes))
    if as_json:
        click.echo(gate.as_json(outcomes))
    else:
        console.console.print(*console.outcomes(outcomes), sep="\n")
    raise SystemExit(gate.exit_code(outcomes))


@main.command(short_help="Decide where a table's next batch begins.")
@click.argument("topic")
@click.option("--at", "where", required=True, metavar="POSITION", help="earliest, latest, a time, or 0:12,1:40.")
@click.option("--reason", required=True, help="Why; it is kept in the table's history.")
def resume(topic: str, where: str, reason: str) -> None:
    """Decide where a table's next batch begins, after ingestion stopped because the state was unclear.

    \b
    The broker lost records before they were read:  lakehouse resume orders --at earliest --reason "retention, see #12"
    Leave partition 0 at 12 and partition 1 at 40:  lakehouse resume orders --at 0:12,1:40 --reason "..."

    The decision is a snapshot without rows; `lakehouse ledger` shows it and what it skipped.
    """
    from assets.position import resume
    from lakehouse import config
    from lakehouse.systems import connected

    declared = config.load()
    with connected(declared) as systems:
        position = resume(systems, declared.namespace, declared.topic(topic), where, reason)
    for partition, offset in sorted(position.end.items()):
        click.echo(f"partition {partition}: was at {position.start[partition]:,}, goes on at {offset:,}")


@main.command(short_help="Read a range of a topic again.")
@click.argument("topic")
@click.option("--since", required=True, metavar="POSITION", help="earliest, a time, or offsets as 0:12,1:40.")
@click.option("--branch", help="Write to this branch of the table, and leave main as it is.")
def replay(topic: str, since: str, branch: str | None) -> None:
    """Read a topic again from a position, and replace the rows of those records. Doing it twice changes nothing."""
    from assets.replay import replay
    from lakehouse import config
    from lakehouse.systems import connected

    declared = config.load()
    with connected(declared) as systems:
        done = replay(declared.namespace, declared.topic(topic), systems, since, branch)
        click.echo(f"{done.counts.consumed:,} records read again, {done.counts.rows:,} rows in {branch or 'main'}")
        if done.snapshot_id and not branch:
            _show_readers(declared, topic, systems)


@main.command(short_help="Decode dead letters again.")
@click.argument("topic")
def redrive(topic: str) -> None:
    """Decode a topic's dead letters again, after what was wrong is mended; those that decode become rows."""
    from assets.replay import redrive
    from lakehouse import config
    from lakehouse.systems import connected

    declared = config.load()
    with connected(declared) as systems:
        done = redrive(declared.namespace, declared.topic(topic), systems)
        click.echo(f"{done.tried:,} dead letters decoded again, {done.landed:,} are rows now")
        if done.landed:
            _show_readers(declared, topic, systems)
    if done.tried > done.landed:
        click.echo(f"{done.tried - done.landed:,} stay what they are: `lakehouse dead-letters {topic}` says why")


def _show_readers(declared: Config, topic: str, systems: Any) -> None:
    """Nothing else tells Glue and Snowflake of a snapshot that no run of Dagster published."""
    from assets.glue import register
    from assets.snowflake import show

    register(declared, declared.topic(topic), systems.catalog, systems.glue)
    state = show(
        declared, systems.catalog.current(declared.namespace, declared.topic(topic)), systems.catalog, systems.snowflake
    )
    click.echo(f"Glue and Snowflake show it: {state.row_count:,} rows")


@main.command("dead-letters", short_help="Say which records wait as dead letters, and why.")
@click.argument("topic")
@click.option("--newest", default=20, show_default=True, type=click.IntRange(min=0), help="So many are shown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def dead_letters(topic: str, newest: int, as_json: bool) -> None:
    """Say which records of TOPIC could not become rows, or are in quarantine, and why.

    They stay until `lakehouse redrive` makes rows of them, which it does once the reason is gone. Their bytes are in
    the table `<table>__dead_letters`: lakehouse query --engine duckdb "SELECT * FROM <namespace>.<table>__dead_letters"
    """
    from dataclasses import asdict

    from assets.waiting_letters import waiting
    from lakehouse import config, console
    from lakehouse.systems import connected

    declared = config.load()
    with connected(declared) as systems:
        found = waiting(systems.catalog, declared.namespace, declared.topic(topic), newest)
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2, default=str))
        return
    columns = ["partition", "offset", "reason", "what it says", "bytes", "since"]
    values = [
        [one.partition, one.offset, one.check or one.reason, one.said, one.bytes, f"{one.at:%Y-%m-%d %H:%M:%S}"]
        for one in found.newest
    ]
    console.console.print(console.rows(columns, values, title=f"Dead letters of {topic}"))
    click.echo(", ".join(f"{reason}: {n:,}" for reason, n in found.by_reason.items()) or "No dead letters wait")


@main.command(short_help="Compact, expire and clean up tables.")
@click.argument("topics", nargs=-1)
def maintain(topics: tuple[str, ...]) -> None:
    """Compact, expire and clean up the tables of these topics, or of all; as the schedule `maintenance` does."""
    from assets.maintenance import maintain
    from lakehouse import config
    from lakehouse.systems import connected

    declared = config.load()
    with connected(declared) as systems:
        for name in topics or declared.by_spark:
            for done in maintain(declared.namespace, declared.topic(name), systems.catalog, systems.spark):
                click.echo(f"{done.table}: {', '.join(done.done) or 'nothing to do'} ({done.seconds:.1f} s)")


@main.command(short_help="Take simulated trades all the way to Snowflake.")
@click.option("--once", is_flag=True, help="Stop everything after the result is shown.")
def demo(once: bool) -> None:
    """Start the stack, take simulated trades all the way to Snowflake, and show the result."""
    from lakehouse.demo import demo

    demo(once)


@main.command(short_help="Check this machine, and say what to do.")
def doctor() -> None:
    """Check this machine and the stack; say what to do about each failure."""
    from lakehouse.local import doctor, show
    from lakehouse.local.home import Home

    findings = doctor.examine(Home.default())
    show.findings(findings)
    raise SystemExit(0 if all(finding.ok for finding in findings) else 1)


main.add_command(deploy)


if __name__ == "__main__":
    main()
