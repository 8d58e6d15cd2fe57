"""The command `lakehouse status`."""

import click

from assets.streaming import results
from lakehouse.cli import console
from lakehouse.cli.last_run import failures
from lakehouse.cli.status import status as measure_status
from lakehouse.cli.systems import open_clients
from lakehouse.config import loader
from lakehouse.config.environment import environment_name


@click.command()
def status() -> None:
    """Show each server, and for each topic its end offset, its ingested offset and the lag of each stage.

    The servers of the embedded stack are shown in the environment `local` only. Stale stages are red; `lakehouse check`
    has an exit code for them.
    """
    if environment_name() == "local":
        from lakehouse.local import show, stack
        from lakehouse.local.home import Home

        home = Home.default()
        show.servers(stack.status(home), home)
    declared = loader.load()
    with open_clients(declared) as resources:
        statuses = measure_status(declared, resources)
        console.console.print(console.topics(statuses))
        for topic, reason in failures(declared, [status.topic for status in statuses]).items():
            console.console.print(f"[red]✗[/] {topic}: the last run failed. {console.plain(reason)}")
        for (asset, check), reason in results.failures(declared, [*declared.topics, *declared.routes]).items():
            console.console.print(f"[red]✗[/] {asset}: a stream reports that '{check}' fails. {console.plain(reason)}")
