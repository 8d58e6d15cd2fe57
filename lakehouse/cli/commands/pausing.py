"""Stop one topic for a while, and let it continue."""

from __future__ import annotations

import click

from lakehouse.core.errors import LakehouseError
from lakehouse.core.terminal import echo


@click.command(short_help="Stop taking one topic, until it is unpaused.")
@click.argument("topic")
@click.option("--reason", default="", metavar="TEXT", help="Why; `lakehouse status` and the UI show it.")
def pause(topic: str, reason: str) -> None:
    """Stop taking TOPIC: in runs, streams and sensors, of every process, also after they are restarted.

    A batch in progress ends first. Other topics are not affected. Nothing is lost while Kafka keeps the records.
    """
    from lakehouse.cli.systems import connected
    from lakehouse.config import loader
    from resources.pauses import pause

    declared = loader.load()
    if declared.topic(topic).engine != "spark":
        raise LakehouseError(f"Confluent's Tableflow makes the table of '{topic}'. Nothing was changed. Pause it there")
    with connected(declared) as systems:
        echo(f"{topic}: {pause(systems.catalog, declared.namespace, topic, reason).describe()}")
    echo(f"Continue with `lakehouse unpause {topic}`")


@click.command(short_help="Take a paused topic again.")
@click.argument("topic")
def unpause(topic: str) -> None:
    """Take TOPIC again, from where its table is: streams within seconds, the sensors with their next tick."""
    from lakehouse.cli.systems import connected
    from lakehouse.config import loader
    from resources.pauses import unpause

    declared = loader.load()
    with connected(declared) as systems:
        # Also one that lakehouse.yaml no longer declares.
        if not unpause(systems.catalog, declared.namespace, topic):
            declared.topic(topic)
            raise LakehouseError(f"Topic '{topic}' is not paused. Nothing was changed. See `lakehouse status`")
    echo(f"{topic}: taken again")
