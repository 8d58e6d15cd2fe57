"""The embedded stack: start, stop, see, examine."""

from __future__ import annotations

import click


@click.command(short_help="Start the embedded stack.")
@click.option("--only", multiple=True, metavar="SERVER", help="Start this server only; may be repeated.")
@click.option("--kafka-sasl/--no-kafka-sasl", default=None, help="Whether Kafka asks for a password from now on.")
def up(only: tuple[str, ...], kafka_sasl: bool | None) -> None:
    """Start the embedded stack; what runs already is kept."""
    from lakehouse.cli.restore import Restoring
    from lakehouse.local import show, stack
    from lakehouse.local.home import Home

    if unknown := set(only) - set(stack.SERVERS):
        raise click.BadParameter(f"no server {', '.join(sorted(unknown))}. There are: {', '.join(stack.SERVERS)}")
    restoring = Restoring()
    show.up(Home.default(), only or tuple(stack.SERVERS), restoring.on_ready, kafka_sasl)
    if restored := restoring.result():
        click.echo(f"Registered in Glue and Snowflake again: {', '.join(restored)}")


@click.command(short_help="Stop the embedded stack; its data stays.")
def down() -> None:
    """Stop what `up` started, also when `up` was killed."""
    from lakehouse.local import stack
    from lakehouse.local.home import Home

    stopped = stack.down(Home.default())
    click.echo(f"Stopped: {', '.join(stopped)}" if stopped else "Nothing was running")


@click.command(short_help="Print the link that logs a browser in to the UI.")
@click.option("--open", "open_it", is_flag=True, help="Open it in the browser too.")
def ui(open_it: bool) -> None:
    """Print the link that logs a browser in to Dagster's UI.

    Whoever has the link controls the stack. Programs send its token as `Authorization: Bearer TOKEN`.
    """
    import webbrowser

    from lakehouse.core.errors import LakehouseError
    from lakehouse.local import ui_login
    from lakehouse.local.context import LOOPBACK
    from lakehouse.local.credentials import Credentials
    from lakehouse.local.home import Home
    from lakehouse.local.process import running

    home = Home.default()
    if not (server := running(home).get("dagster")):
        raise LakehouseError(f"The UI is not up in {home.path}. Nothing was done. Run `lakehouse up`")
    link = ui_login.link(f"http://{LOOPBACK}:{server.ports['dagster']}", Credentials.of(home).ui_token)
    click.echo(link)
    if open_it and not webbrowser.open(ui_login.link_file(home, link).as_uri()):
        raise click.ClickException("No browser could be started. Open the link above")


@click.command(
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
    os.execve(found, command, {**os.environ, **environment()})  # noqa: S606 (the user's own command)


@click.command(short_help="Take simulated trades all the way to Snowflake.")
@click.option("--once", is_flag=True, help="Stop everything after the result is shown.")
def demo(once: bool) -> None:
    """Start the stack, take simulated trades all the way to Snowflake, and show the result."""
    from lakehouse.cli.demo import demo

    demo(once)


@click.command(short_help="Check this machine, and say what to do.")
def doctor() -> None:
    """Check this machine and the stack; say what to do about each failure."""
    from lakehouse.local import doctor, show
    from lakehouse.local.home import Home

    findings = doctor.examine(Home.default())
    show.findings(findings)
    raise SystemExit(0 if all(finding.ok for finding in findings) else 1)
