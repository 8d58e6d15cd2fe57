"""The command line: a thin list of commands."""

from __future__ import annotations

import click

from lakehouse.errors import LakehouseError


class _Commands(click.Group):
    """Prints the project's own errors as one sentence, without a traceback, and ends with exit code 1."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except LakehouseError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Any Kafka topic as a checked, fresh Apache Iceberg table."""


@main.command()
@click.option("--only", multiple=True, metavar="SERVER", help="Start this server only; may be repeated.")
def up(only: tuple[str, ...]) -> None:
    """Start the embedded stack; what runs already is kept."""
    from lakehouse.local import show, stack
    from lakehouse.local.home import Home

    if unknown := set(only) - set(stack.SERVERS):
        raise click.BadParameter(f"no server {', '.join(sorted(unknown))}. There are: {', '.join(stack.SERVERS)}")
    show.up(Home.default(), only or tuple(stack.SERVERS))


@main.command()
def down() -> None:
    """Stop what `up` started, also when `up` was killed."""
    from lakehouse.local import stack
    from lakehouse.local.home import Home

    stopped = stack.down(Home.default())
    click.echo(f"Stopped: {', '.join(stopped)}" if stopped else "Nothing was running")


@main.command()
def doctor() -> None:
    """Check this machine and the stack; say what to do about each failure."""
    from lakehouse.local import doctor, show
    from lakehouse.local.home import Home

    findings = doctor.examine(Home.default())
    show.findings(findings)
    raise SystemExit(0 if all(finding.ok for finding in findings) else 1)


if __name__ == "__main__":
    main()
