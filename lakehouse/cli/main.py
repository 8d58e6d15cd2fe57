"""The command line: one list of all commands."""

import sys

import click

from lakehouse.cli.commands import deploy, pausing, pipeline, reading, stack, streaming, tables
from lakehouse.core.errors import LakehouseError
from lakehouse.core.terminal import print_traceback, visible

COMMANDS = (
    *(stack.demo, stack.up, stack.down, stack.ui, stack.run, stack.doctor),
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
    *(pipeline.validate, pipeline.plan, pipeline.rehearse, pipeline.check),
    deploy.deploy,
)


class _Commands(click.Group):
    """Prints the project's own errors as one sentence, without a traceback, and ends with exit code 1.

    What errors quote from records cannot act on the terminal.
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
    See it work:         lakehouse demo
    Work with it:        lakehouse up, then open the link it prints
    Take what comes:     lakehouse stream
    Stop one of them:    lakehouse pause stock_trades, and unpause
    See how far it is:   lakehouse status
    See that all came:   lakehouse ledger stock_trades
    In a pipeline:       lakehouse validate, plan, rehearse, check
    Set up the clouds:   lakehouse deploy plan --env aws
    Ask for rows:        lakehouse query "SELECT * FROM trading.users"
    Something is wrong:  lakehouse doctor

    \b
    What exists is declared in lakehouse.yaml (LAKEHOUSE_CONFIG names another file).
    LAKEHOUSE_ENV chooses the environment in it, LAKEHOUSE_HOME where the embedded stack keeps its state.
    """


for command in COMMANDS:
    main.add_command(command)


if __name__ == "__main__":
    main()
