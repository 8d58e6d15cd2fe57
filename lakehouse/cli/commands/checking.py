"""The command `lakehouse check`."""

from pathlib import Path
from typing import NoReturn

import click

from assets.streaming import results
from lakehouse.cli import check_runner, console
from lakehouse.cli.last_run import failures
from lakehouse.cli.systems import kafka_topics, open_clients
from lakehouse.cli.verification import verification
from lakehouse.config import loader
from lakehouse.core.text.terminal import echo


@click.command()
@click.argument("topics", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write JUnit XML.")
def check(topics: tuple[str, ...], as_json: bool, junit: Path | None) -> None:
    """Run the checks of TOPICS, or of all topics and routes, in the environment that LAKEHOUSE_ENV names.

    The checks that lakehouse.yaml declares cover all published rows. The others verify that each reader shows the
    published snapshot, that lag is within its limit, and that the ledger is consistent. If Dagster's instance is
    available (DAGSTER_HOME), topics whose last run failed, or that a stream cannot ingest, are reported too.

    \b
    All checks:               lakehouse check
    One topic, as JUnit XML:  lakehouse check orders --junit report.xml

    \b
    Exit code 0: no check failed (warnings are allowed). 1: a check failed. 2: a check could not be run.
    """
    with verification():
        declared = loader.load()
        names = list(topics or (*declared.topics, *declared.routes))
        with open_clients(declared) as resources:
            existing = kafka_topics(declared, resources)
            selected = declared.select(names, existing)
            outcomes = [
                *check_runner.run_asset_checks(declared, names, existing),
                *check_runner.run_declared_checks(declared, selected, resources),
            ]
            for topic, reason in failures(declared, [topic.name for topic in selected]).items():
                outcomes.append(check_runner.Outcome(f"iceberg/{topic}", "last_run", "failed", reason))
            for (asset, failing), reason in results.failures(declared, names).items():
                outcomes.append(check_runner.Outcome(asset, failing, "failed", reason))
    report(outcomes, as_json, junit)


def report(outcomes: list[check_runner.Outcome], as_json: bool, junit: Path | None) -> NoReturn:
    """Print the outcomes of checks, write them as JUnit XML to a file if there is one, and exit."""
    if junit:
        junit.parent.mkdir(parents=True, exist_ok=True)
        junit.write_text(check_runner.as_junit(outcomes), encoding="utf-8")
    if as_json:
        echo(check_runner.as_json(outcomes))
    else:
        console.console.print(*console.outcomes(outcomes), sep="\n")
    raise SystemExit(check_runner.exit_code(outcomes))
