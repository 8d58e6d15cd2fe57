"""The commands before the first ingestion: `lakehouse init` and `lakehouse doctor`. They need no extra."""

from pathlib import Path

import click

from lakehouse.cli import console
from lakehouse.config import loader

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


@click.command()
@click.option("--env", "environment", help="Check the AWS identities of this environment instead of the stack.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(environment: str | None, as_json: bool) -> None:
    """Check this machine and the stack, and print a remedy for each failure.

    With `--env`, check the AWS credentials of this process, the roles that systems of the environment assume, that
    Spark's executors read a table with the role of ingestion, and that no derived topic or topic of dead letters has
    messages of another table, such as one of another environment.

    \b
    Exit code 0: every check passed. 1: a check failed.
    """
    if environment:
        import dagster as dg

        from lakehouse.deploy.verification.role_diagnosis import examine
        from lakehouse.pipeline.bookmark_owners import examine_bookmarks
        from resources.build import build_resources

        config = loader.load(environment=environment)
        with dg.build_resources(build_resources(config, environment)) as resources:
            diagnostics = [*examine(config, resources), *examine_bookmarks(config, resources)]
    else:
        from lakehouse.local import doctor
        from lakehouse.local.home import Home

        diagnostics = doctor.examine(Home.default())
    console.report(diagnostics, as_json=as_json)
