"""The commands for the servers of the embedded stack."""

import os
import shutil
import webbrowser

import click

from lakehouse.core.errors import LakehouseError
from lakehouse.local.client_environment import environment
from lakehouse.local.dagster import ui_login
from lakehouse.local.home import Credentials, Home
from lakehouse.local.processes.description import LOOPBACK
from lakehouse.local.processes.process import running


@click.command()
@click.option("--only", multiple=True, metavar="SERVER", help="Start only this server. Can be repeated.")
@click.option("--kafka-sasl/--no-kafka-sasl", default=None, help="Require a password for Kafka, now and later.")
def up(only: tuple[str, ...], kafka_sasl: bool | None) -> None:
    """Start the servers of the embedded stack, and print the login link of Dagster's UI.

    Servers that are already running are left alone. Their data is in .lakehouse, or in the directory LAKEHOUSE_HOME.

    \b
    All servers:            lakehouse up
    Some servers:           lakehouse up --only kafka --only registry
    Kafka with a password:  lakehouse up --kafka-sasl
    """
    from lakehouse.cli.restore import Restoration
    from lakehouse.local import show, stack

    if unknown := set(only) - set(stack.SERVERS):
        raise click.BadParameter(f"no server {', '.join(sorted(unknown))}. Servers: {', '.join(stack.SERVERS)}")
    servers = only or tuple(stack.SERVERS)
    restoration = Restoration(servers)
    show.up(Home.default(), servers, restoration.on_ready, kafka_sasl)
    if restored := restoration.result():
        click.echo(f"Published to the readers again: {', '.join(restored)}")


@click.command()
def down() -> None:
    """Stop the servers that `lakehouse up` started, even if `lakehouse up` was killed. `lakehouse up` resumes."""
    from lakehouse.local import stack

    stopped = stack.down(Home.default())
    click.echo(f"Stopped: {', '.join(stopped)}" if stopped else "Nothing was running")


@click.command()
@click.option("--open", "open_browser", is_flag=True, help="Also open the link in the browser.")
def ui(open_browser: bool) -> None:
    """Print the link that logs a browser in to Dagster's UI.

    Anyone who has the link controls the stack. Programs authenticate with its token: `Authorization: Bearer TOKEN`.
    """
    home = Home.default()
    if not (server := running(home).get("dagster")):
        raise LakehouseError(f"The UI is not running in {home.path}. Nothing was done. Run `lakehouse up`")
    link = ui_login.link(f"http://{LOOPBACK}:{server.ports['dagster']}", Credentials.of(home).ui_token)
    click.echo(link)
    if open_browser and not webbrowser.open(ui_login.link_file(home, link).as_uri()):
        raise click.ClickException("No browser could be started. Open the link above")


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(command: tuple[str, ...]) -> None:
    """Run COMMAND with the environment variables that point to the embedded stack.

    Among them are KAFKA_BOOTSTRAP_SERVERS, SCHEMA_REGISTRY_URL, AWS_ENDPOINT_URL_S3 with its keys, SPARK_REMOTE,
    SNOWFLAKE_HOST and DAGSTER_HOME.

    \b
      lakehouse run python produce.py
      lakehouse run env
    """
    program = shutil.which(command[0])
    if program is None:
        raise click.ClickException(f"Program '{command[0]}' was not found. Nothing was run. Correct its name or PATH")
    os.execve(program, command, {**os.environ, **environment()})  # noqa: S606 (the user's own command)
