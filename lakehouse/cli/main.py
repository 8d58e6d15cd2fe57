"""The command line `lakehouse`, with the list of its commands."""

import sys

import click

from lakehouse.cli.commands import deploy, embedded_stack, pausing, pipeline, reading, starting, streaming, tables
from lakehouse.core.errors import LakehouseError
from lakehouse.core.text.terminal import print_traceback, visible

COMMANDS = (
    starting.init,
    *(
        embedded_stack.demo,
        embedded_stack.up,
        embedded_stack.down,
        embedded_stack.ui,
        embedded_stack.run,
        embedded_stack.doctor,
    ),
    *(reading.status, reading.query),
    *(streaming.stream, pausing.pause, pausing.unpause),
    *(
        tables.ledger,
        tables.dead_letters,
        tables.redrive,
        tables.replay,
        tables.resume,
        tables.bookmark,
        tables.maintain,
    ),
    *(pipeline.validate, pipeline.plan, pipeline.dry_run, pipeline.check),
    deploy.deploy,
)


class _Commands(click.Group):
    """A command group that prints this project's errors without a traceback and exits with code 1.

    Control characters in messages are escaped, because errors quote values of records.
    """

    def invoke(self, ctx: click.Context) -> object:
        sys.excepthook = print_traceback
        try:
            return super().invoke(ctx)
        except LakehouseError as error:
            raise click.ClickException(visible(str(error))) from error
        except click.ClickException as error:
            vars(error)["message"] = visible(error.message)
            raise


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Any Kafka topic as a checked, fresh Apache Iceberg table.

    \b
    Run the demo:             lakehouse demo
    Start the local stack:    lakehouse up, then open the link that it prints
    Ingest continuously:      lakehouse stream
    Pause a topic:            lakehouse pause stock_trades, and unpause
    Show progress and lag:    lakehouse status
    Verify completeness:      lakehouse ledger stock_trades
    Check in CI:              lakehouse validate, plan, dry-run, check
    Set up the clouds:        lakehouse deploy plan --env aws
    Query a table:            lakehouse query "SELECT * FROM trading.users"
    Diagnose a problem:       lakehouse doctor

    \b
    Topics and environments are declared in lakehouse.yaml (LAKEHOUSE_CONFIG names another file).
    LAKEHOUSE_ENV selects the environment, and LAKEHOUSE_HOME the directory of the embedded stack's state.
    """


for command in COMMANDS:
    main.add_command(command)


if __name__ == "__main__":
    main()
