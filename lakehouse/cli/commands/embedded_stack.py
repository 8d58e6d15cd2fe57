"""Commands for the embedded stack."""

from __future__ import annotations

import click


@click.command(short_help="Start the embedded stack.")
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
    from lakehouse.cli.restore import Restoring
    from lakehouse.local import show, stack
    from lakehouse.local.home import Home

    if unknown := set(only) - set(stack.SERVERS):
        raise click.BadParameter(f"no server {', '.join(sorted(unknown))}. Servers: {', '.join(stack.SERVERS)}")
    restoring = Restoring()
    show.up(Home.default(), only or tuple(stack.SERVERS), restoring.on_ready, kafka_sasl)
    if restored := restoring.result():
        click.echo(f"Registered again in Glue and Snowflake: {', '.join(restored)}")


@click.command(short_help="Stop the embedded stack and keep its data.")
def down() -> None:
    """Stop the servers that `lakehouse up` started, even if `lakehouse up` was killed. `lakehouse up` resumes."""
    from lakehouse.local import stack
    from lakehouse.local.home import Home

    stopped = stack.down(Home.default())
    click.echo(f"Stopped: {', '.join(stopped)}" if stopped else "Nothing was running")


@click.command(short_help="Print the login link of Dagster's UI.")
@click.option("--open", "open_browser", is_flag=True, help="Also open the link in the browser.")
def ui(open_browser: bool) -> None:
    """Print the link that logs a browser in to Dagster's UI.

    Anyone who has the link controls the stack. Programs authenticate with its token: `Authorization: Bearer TOKEN`.
    """
    import webbrowser

    from lakehouse.core.errors import LakehouseError
    from lakehouse.local.credentials import Credentials
    from lakehouse.local.dagster import ui_login
    from lakehouse.local.home import Home
    from lakehouse.local.processes.process import running
    from lakehouse.local.processes.server_context import LOOPBACK

    home = Home.default()
    if not (server := running(home).get("dagster")):
        raise LakehouseError(f"The UI is not running in {home.path}. Nothing was done. Run `lakehouse up`")
    link = ui_login.link(f"http://{LOOPBACK}:{server.ports['dagster']}", Credentials.of(home).ui_token)
    click.echo(link)
    if open_browser and not webbrowser.open(ui_login.link_file(home, link).as_uri()):
        raise click.ClickException("No browser could be started. Open the link above")


@click.command(
    short_help="Run a command with the stack's environment variables.",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(command: tuple[str, ...]) -> None:
    """Run COMMAND with the environment variables that point to the embedded stack.

    Among them are KAFKA_BOOTSTRAP_SERVERS, SCHEMA_REGISTRY_URL, AWS_ENDPOINT_URL_S3 with its keys, SPARK_REMOTE,
    SNOWFLAKE_HOST and DAGSTER_HOME.

    \b
      lakehouse run python produce.py
      lakehouse run env
    """
    import os
    import shutil

    from lakehouse.local.client_environment import environment

    program = shutil.which(command[0])
    if program is None:
        raise click.ClickException(f"Program '{command[0]}' was not found. Nothing was run. Correct its name or PATH")
    os.execve(program, command, {**os.environ, **environment()})  # noqa: S606 (the user's own command)


@click.command(short_help="Ingest simulated trades and publish them to Snowflake.")
@click.option("--once", is_flag=True, help="Stop all servers after the result is shown.")
def demo(once: bool) -> None:
    """Start the stack, ingest simulated trades, publish them to Glue and Snowflake, and show the result.

    Then ingestion continues until Ctrl-C, which stops all servers and keeps their data.
    """
    from lakehouse.cli.demo import demo

    demo(once)


@click.command(short_help="Diagnose this machine and the stack, or an environment's identities.")
@click.option("--env", "environment", help="Check the AWS identities of this environment instead of the stack.")
def doctor(environment: str | None) -> None:
    """Check this machine and the stack, and print a remedy for each failure.

    With `--env`, check the AWS credentials of this process, the role that each plane of the environment assumes, and
    that Spark's executors read a table with the role of ingestion.

    \b
    Exit code 0: every check passed. 1: a check failed.
    """
    from lakehouse.local import doctor, show
    from lakehouse.local.home import Home

    if environment:
        import dagster as dg

        from lakehouse.config import loader
        from lakehouse.deploy.verification.role_diagnosis import examine
        from resources.build import build_resources

        config = loader.load(environment=environment)
        with dg.build_resources(build_resources(config, environment)) as clients:
            diagnostics = list(examine(config, clients))
    else:
        diagnostics = doctor.examine(Home.default())
    show.diagnostics(diagnostics)
    raise SystemExit(0 if all(diagnostic.ok for diagnostic in diagnostics) else 1)
