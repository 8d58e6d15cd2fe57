"""The command that moves the tables of an environment to the catalog of another one."""

import click

from lakehouse.cli.systems import all_spark_topics, catalog_of_environment, open_clients
from lakehouse.config import loader
from lakehouse.config.discovery import environment_name
from lakehouse.core.errors import ConfigError
from lakehouse.core.terminal import echo
from lakehouse.core.text import pluralize
from lakehouse.pipeline.moving import Move, Place


@click.command()
@click.option("--from", "source", required=True, metavar="NAME", help="Environment whose catalog has the tables.")
@click.option("--plan", "is_plan", is_flag=True, help="Show the move of each table, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def move(source: str, is_plan: bool, yes: bool) -> None:
    """Move the tables of all topics from the SQL database or Glue of an environment to the REST catalog of this one.

    \b
    Show what would be done:     lakehouse --env polaris move --from prod --plan
    Move the tables:             lakehouse --env polaris move --from prod

    Each table is registered at its current metadata file. No file is copied, and ledger, bookmarks, pauses and ids
    continue. A marker replaces the table in the old catalog, so that writers of the old environment stop, with the new
    address in their message. An interrupted move is completed by the same command.
    """
    target = environment_name()
    if source == target:
        raise ConfigError(
            f"Environment '{source}' is the one to which the tables are moved. Nothing was changed. Run `lakehouse "
            f"--env NEW move --from {source}` with the name of the other environment"
        )
    declared = loader.load()
    old = catalog_of_environment(declared, source)
    with open_clients(declared) as resources:
        places = Place(source, old), Place(target, resources.catalog)
        topics = all_spark_topics(declared, resources)
        moving = Move(declared.namespace, topics, *places, resources.kafka.cluster_id())
        planned = moving.plan()
        for table in planned:
            echo(table.describe())
        remaining = sum(not table.is_registered for table in planned)
        echo(f"{pluralize(remaining, 'table')} to move from {old.address} to {resources.catalog.address}")
        if is_plan:
            return
        if remaining and not yes:
            click.confirm("Move them?", abort=True)
        moving.apply(echo)
    echo(f"All tables are in {resources.catalog.address}. Use environment '{target}' from now on")
