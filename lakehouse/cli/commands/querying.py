"""The command `lakehouse query`."""

import click

from lakehouse.cli import console
from lakehouse.cli.systems import open_clients
from lakehouse.config import loader
from lakehouse.core.text.terminal import echo
from lakehouse.query.engines import ENGINES, run


@click.command()
@click.argument("sql")
@click.option(
    "--engine", type=click.Choice(list(ENGINES)), default="snowflake", show_default=True, help="Query engine."
)
@click.option(
    "--output", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True, help="Output format."
)
def query(sql: str, engine: str, output: str) -> None:
    """Run a query and print its result. `csv` and `json` print numbers with all digits.

    \b
    Tables are namespace.table, with the namespace of lakehouse.yaml:
      lakehouse query "SELECT * FROM trading.users LIMIT 10"
      lakehouse query "SELECT * FROM trading.users LIMIT 10" --engine duckdb --output csv

    The SQL is one query. Statements that write are refused, in each engine. DuckDB runs in this process on full copies
    of the catalog's tables. Snowflake and Athena query the snapshots that were last published to them.
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
