"""How far topics have come, and what is in their tables."""

from __future__ import annotations

import click

from lakehouse.core.terminal import echo
from lakehouse.query.engines import ENGINES


@click.command(short_help="Show servers, and how far each topic has come.")
def status() -> None:
    """Show each server, and per topic how far it has come: end offset, ingested offset, lag, Glue, Snowflake."""
    from assets.streaming import results
    from lakehouse.cli import console
    from lakehouse.cli.last_run import failures
    from lakehouse.cli.status import status
    from lakehouse.cli.systems import connected
    from lakehouse.config import loader
    from lakehouse.config.environment import environment_name

    if environment_name() == "local":
        from lakehouse.local import show, stack
        from lakehouse.local.home import Home

        home = Home.default()
        show.servers(stack.status(home), home)
    declared = loader.load()
    with connected(declared) as systems:
        console.console.print(console.topics(status(declared, systems)))
        for topic, reason in failures([*declared.topics]).items():
            console.console.print(f"[red]✗[/] {topic}: the last run failed. {console.plain(reason)}")
        for (asset, check), reason in results.failures(declared, [*declared.topics, *declared.routes]).items():
            said = f"a stream reports that '{check}' fails. {console.plain(reason)}"
            console.console.print(f"[red]✗[/] {asset}: {said}")


@click.command(short_help="Run SQL in Snowflake, or another engine.")
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

    DuckDB runs here and reads the catalog's tables whole. Snowflake and Athena show what was last published to them.
    """
    from lakehouse.cli import console
    from lakehouse.cli.systems import connected
    from lakehouse.config import loader

    with connected(loader.load()) as systems:
        result = ENGINES[engine](sql, systems)
    match output:
        case "csv":
            echo(result.csv(), nl=False)
        case "json":
            echo(result.json(), nl=False)
        case _:
            console.console.print(console.rows(result.columns, result.shown()))
