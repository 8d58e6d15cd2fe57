"""What a change must pass before it is deployed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from lakehouse.core.errors import LakehouseError
from lakehouse.core.terminal import echo

if TYPE_CHECKING:
    from lakehouse.cli.check_runner import Outcome


@click.command(short_help="Load all definitions, without any system.")
def validate() -> None:
    """Load lakehouse.yaml and everything that Dagster makes of it; no system is asked. For pull requests."""
    import warnings

    import dagster as dg

    from lakehouse.definitions import defs

    loaded = defs()
    with warnings.catch_warnings():
        # Dagster copies sensors that start a job, and warns of its own argument `owners`.
        warnings.simplefilter("ignore", dg.BetaWarning)
        dg.Definitions.validate_loadable(loaded)
    graph = loaded.resolve_asset_graph()
    echo(f"{len(graph.get_all_asset_keys()):,} assets, {len(graph.asset_check_keys):,} checks")


@click.command(short_help="Show what a new schema would do to a topic's table.")
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
    from lakehouse.cli import schema_plan
    from lakehouse.cli.systems import connected
    from lakehouse.config import loader

    try:
        declared = loader.load()
        wanted = [declared.topic(topic)] if topic else list(declared.topics.values())
        if schema_file:
            table = (
                schema_plan.as_table(schema_plan.read(against), wanted[0])
                if against
                else schema_plan.table_now(declared, wanted[0])
            )
            found = [schema_plan.plan(declared, wanted[0], schema_file, table)]
        else:
            with connected(declared) as systems:
                found = [schema_plan.registered(declared, one, systems) for one in wanted]
    except LakehouseError as error:
        raise click.UsageError(str(error)) from error
    said = [one.to_json() for one in found]
    lines = [line for one in found for line in one.lines()]
    echo(json.dumps(said if len(said) > 1 else said[0], indent=2) if as_json else "\n".join(lines))
    raise SystemExit(0 if all(one.accepted for one in found) else 1)


@click.command(short_help="Check a sample of new records, without publishing it.")
@click.argument("topics", nargs=-1)
@click.option("--records", default=1_000, show_default=True, help="The newest records to take of each topic, at most.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write JUnit XML.")
def rehearse(topics: tuple[str, ...], records: int, as_json: bool, junit: Path | None) -> None:
    """Take the newest records of these topics, or of all, to a branch; check them there; drop the branch.

    Main and the position stay as they are. Exit codes are those of `lakehouse check`.
    """
    from lakehouse.cli import check_runner
    from lakehouse.cli.systems import connected
    from lakehouse.config import loader
    from lakehouse.config.sensitive import unquoted
    from lakehouse.pipeline.clients import Clients
    from lakehouse.pipeline.rehearsal import rehearse

    outcomes: list[check_runner.Outcome] = []
    try:
        known = loader.load()
        chosen = [known.topic(name) for name in topics or known.by_spark]
        with connected(known) as r:
            systems = Clients.of(r)
            for topic in chosen:
                asset = f"iceberg/{topic.name}"
                try:
                    with unquoted(topic):
                        done = rehearse(known.namespace, topic, systems, records)
                    outcomes += check_runner.of_findings(asset, done.findings)
                except LakehouseError as error:
                    outcomes.append(check_runner.Outcome(asset, "rehearsal", "not run", str(error)))
    except LakehouseError as error:
        raise click.UsageError(str(error)) from error
    _report(outcomes, as_json, junit)


@click.command(short_help="Run every check, for a pipeline.")
@click.argument("topics", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write JUnit XML.")
def check(topics: tuple[str, ...], as_json: bool, junit: Path | None) -> None:
    """Run the checks of these topics, or of all, in the environment of LAKEHOUSE_ENV: as the UI would, without it.

    Those of lakehouse.yaml look at every published row; the others say whether each hop is fresh and shows what was
    published, and whether the ledger adds up. A table whose last run failed, or that a stream cannot serve, is named,
    where there is a Dagster to ask.

    \b
    Exit code 0: none failed (warnings allowed). 1: one failed. 2: not every check could be run.
    """
    from assets.streaming import results
    from lakehouse.cli import check_runner
    from lakehouse.cli.last_run import failures
    from lakehouse.cli.systems import connected
    from lakehouse.config import loader

    try:
        known = loader.load()
        names = list(topics or (*known.topics, *known.routes))
        with connected(known) as systems:
            there = systems.kafka.topics() if known.routes else []
            routed = [topic for topic in known.routed(there) if not topics]
            chosen = [known.topic(name) for name in names if name not in known.routes] + routed
            ours = [topic for topic in chosen if topic.engine == "spark"]
            outcomes = [*check_runner.standing(known, names, there), *check_runner.declared(known, ours, systems)]
            for topic, reason in failures([name for name in names if name in known.topics]).items():
                outcomes.append(check_runner.Outcome(f"iceberg/{topic}", "last_run", "failed", reason))
            for (asset, failing), reason in results.failures(known, names).items():
                outcomes.append(check_runner.Outcome(asset, failing, "failed", reason))
    except LakehouseError as error:
        raise click.UsageError(str(error)) from error
    _report(outcomes, as_json, junit)


def _report(outcomes: list[Outcome], as_json: bool, junit: Path | None) -> NoReturn:
    from lakehouse.cli import check_runner, console

    if junit:
        junit.write_text(check_runner.as_junit(outcomes))
    if as_json:
        echo(check_runner.as_json(outcomes))
    else:
        console.console.print(*console.outcomes(outcomes), sep="\n")
    raise SystemExit(check_runner.exit_code(outcomes))
