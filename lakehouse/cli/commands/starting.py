"""The command `lakehouse init`."""

from pathlib import Path

import click

STARTER = Path(__file__).parent.parent / "starter.yaml"


@click.command()
def init() -> None:
    """Create lakehouse.yaml in the current folder, with the embedded stack as its environment and without topics.

    An existing file is never overwritten. Next, declare topics, run `lakehouse validate`, and then `lakehouse up`.
    """
    path = Path("lakehouse.yaml")
    try:
        with path.open("x") as file:
            file.write(STARTER.read_text())
    except FileExistsError as error:
        raise click.ClickException(f"{path.resolve()} exists. Nothing was written. Choose another folder") from error
    click.echo("Wrote lakehouse.yaml. For the other commands, run: export LAKEHOUSE_CONFIG=$PWD/lakehouse.yaml")
