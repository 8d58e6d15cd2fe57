"""The command `lakehouse up`."""

import click

from lakehouse.cli.restore import Restoring
from lakehouse.local import show, stack
from lakehouse.local.home import Home


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
    if unknown := set(only) - set(stack.SERVERS):
        raise click.BadParameter(f"no server {', '.join(sorted(unknown))}. Servers: {', '.join(stack.SERVERS)}")
    servers = only or tuple(stack.SERVERS)
    restoring = Restoring(servers)
    show.up(Home.default(), servers, restoring.on_ready, kafka_sasl)
    if restored := restoring.result():
        click.echo(f"Registered again in Glue and Snowflake: {', '.join(restored)}")
