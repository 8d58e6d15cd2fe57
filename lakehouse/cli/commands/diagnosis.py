"""The command `lakehouse doctor`."""

import click

from lakehouse.cli.diagnostics import show
from lakehouse.config import loader


@click.command()
@click.option("--env", "environment", help="Check the AWS identities of this environment instead of the stack.")
def doctor(environment: str | None) -> None:
    """Check this machine and the stack, and print a remedy for each failure.

    With `--env`, check the AWS credentials of this process, the roles that systems of the environment assume, and
    that Spark's executors read a table with the role of ingestion.

    \b
    Exit code 0: every check passed. 1: a check failed.
    """
    if environment:
        import dagster as dg

        from lakehouse.deploy.verification.role_diagnosis import examine
        from resources.build import build_resources

        config = loader.load(environment=environment)
        with dg.build_resources(build_resources(config, environment)) as resources:
            diagnostics = list(examine(config, resources))
    else:
        from lakehouse.local import doctor
        from lakehouse.local.home import Home

        diagnostics = doctor.examine(Home.default())
    show(diagnostics)
    raise SystemExit(0 if all(diagnostic.ok for diagnostic in diagnostics) else 1)
