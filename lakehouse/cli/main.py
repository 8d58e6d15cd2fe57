"""The command line `lakehouse`, with the list of its commands."""

import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click

from lakehouse import DISTRIBUTION
from lakehouse.cli import boundary, interrupts, progress
from lakehouse.config import discovery
from lakehouse.core import extras, log_entry
from lakehouse.core.errors import ConfigError
from lakehouse.core.log_entry import LogEntry
from lakehouse.core.terminal import visible
from lakehouse.core.text import did_you_mean

COMMANDS = {
    "init": ("commands.setup:init", "Create a project."),
    "demo": ("demo:demo", "Ingest simulated trades and publish them to Snowflake."),
    "up": ("commands.stack:up", "Start the embedded stack."),
    "down": ("commands.stack:down", "Stop the embedded stack and keep its data."),
    "ui": ("commands.stack:ui", "Print the login link of Dagster's UI."),
    "run": ("commands.stack:run", "Run a command with the stack's environment variables."),
    "doctor": ("commands.setup:doctor", "Diagnose this machine and the stack, or an environment's identities."),
    "status": ("commands.reading:status", "Show servers, and the offsets and lag of each topic."),
    "metrics": ("commands.metrics:metrics", "Measure topics, tables and readers for Prometheus."),
    "query": ("commands.reading:query", "Run SQL in Snowflake, or another engine."),
    "stream": ("commands.ingesting:stream", "Ingest topics continuously."),
    "pause": ("commands.ingesting:pause", "Pause the ingestion of one topic."),
    "unpause": ("commands.ingesting:unpause", "Resume the ingestion of a paused topic."),
    "ledger": ("commands.tables:ledger", "Verify that a table contains its whole topic, once."),
    "dead-letters": ("commands.reading:dead_letters", "List dead letters and their reasons."),
    "redrive": ("commands.tables:redrive", "Retry dead letters after their cause was fixed."),
    "replay": ("commands.tables:replay", "Ingest a range of a topic again."),
    "resume": ("commands.tables:resume", "Set the offsets from which ingestion continues."),
    "bookmark": ("commands.tables:bookmark", "Set the records from which a derived topic continues."),
    "maintain": ("commands.tables:maintain", "Compact, expire and clean up tables."),
    "move": ("commands.moving:move", "Move the tables to a REST catalog."),
    "validate": ("commands.checking:validate", "Validate the configuration offline."),
    "plan": ("commands.checking:plan", "Show the effect of a new schema on a topic's table."),
    "dry-run": ("commands.checking:dry_run", "Ingest and check a sample of new records without publishing it."),
    "check": ("commands.checking:check", "Run all checks of an environment."),
    "deploy": ("commands.deploy:deploy", "Create and delete the cloud set-up."),
}
"""The function of each command, and its line in `lakehouse --help`."""

CHANGING = frozenset(
    {"demo", "up", "down", "stream", "pause", "unpause", "redrive", "replay", "resume", "bookmark", "maintain", "move"}
)
"""Commands that change a stack or tables. They print which configuration they use unless it is obvious."""

INTERRUPTED = 128 + signal.SIGINT
"""Exit code after Ctrl-C, as of shells. The other codes are results of the commands."""


class _Commands(click.Group):
    """A command group that prints errors without a traceback and exits with code 1.

    Control characters in messages are escaped, because errors quote values of records. The module of a command is
    imported when the command runs: the clients of all commands take seconds to import.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        command: click.Command = resolve_name(f"lakehouse.cli.{COMMANDS[cmd_name][0]}")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            vars(error)["message"] = error.message + did_you_mean(args[0], COMMANDS)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted((name, summary) for name, (_, summary) in COMMANDS.items()))

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.ClickException as error:
            raise boundary.shown(error) from error.__cause__

    def invoke(self, ctx: click.Context) -> object:
        sys.excepthook = log_entry.write_traceback
        try:
            with boundary.traces_in_log(), progress.shown(), extras.explained():
                return super().invoke(ctx)
        except click.ClickException as error:
            vars(error)["message"] = visible(error.message + self._place_of_option(ctx, error))
            raise boundary.shown(error, error.__cause__) from error.__cause__
        except KeyboardInterrupt:
            log_entry.write(LogEntry("Interrupted"), err=True)
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if shown := boundary.to_click(error):
                raise boundary.shown(shown, error) from error
            raise

    def _place_of_option(self, ctx: click.Context, error: click.ClickException) -> str:
        """Return where to write an option of `lakehouse` itself that was written after the command; else ''."""
        command = ctx.invoked_subcommand
        options = {name: option for option in self.params for name in option.opts}
        if isinstance(error, click.NoSuchOption) and (option := options.get(error.option_name)):
            vars(error)["possibilities"] = None
            value = f" {option.metavar}" if option.metavar else ""
            return f" It is an option of lakehouse itself. Write `lakehouse {error.option_name}{value} {command}`"
        if file := re.search(r"unexpected extra argument \((\S+\.ya?ml)\)", error.message):
            return f". Write `lakehouse --config {file[1]} {command}` to use that file"
        return ""


def _set_log_format(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:  # noqa: ARG001 (click's signature)
    """Set the format before the command runs, also for processes that it starts."""
    if value:
        os.environ[log_entry.FORMAT] = value


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="A command that Ctrl-C ended has exit code 130; `lakehouse stream` ends with 0. Completion in bash: "
    'eval "$(_LAKEHOUSE_COMPLETE=bash_source lakehouse)", and likewise zsh_source or fish_source.',
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Use this configuration, like the variable LAKEHOUSE_CONFIG. Default: the nearest lakehouse.yaml.",
)
@click.option("--env", metavar="NAME", help="Use this environment, like the variable LAKEHOUSE_ENV. Default: local.")
@click.option("-v", "--verbose", is_flag=True, help="Print which configuration and environment are used.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    envvar=log_entry.FORMAT,
    callback=_set_log_format,
    expose_value=False,
    help=f"Format of logs and errors, like the variable {log_entry.FORMAT}. Default: text.",
)
@click.option("--debug", is_flag=True, help="Print the traceback of an error.")
@click.version_option(package_name=DISTRIBUTION, message="%(package)s %(version)s")
@click.pass_context
def main(ctx: click.Context, config: Path | None, env: str | None, verbose: bool, debug: bool) -> None:  # noqa: ARG001 (the boundary reads `debug`)
    """Turn Kafka topics into audited Apache Iceberg tables.

    \b
    Begin a project:          lakehouse init shop
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
    Topics and environments are declared in lakehouse.yaml, in the current folder or one above it. The embedded stack
    keeps its state in .lakehouse beside that file, or in the folder LAKEHOUSE_HOME.
    """
    interrupts.acknowledge()
    is_explicit = config is not None or env is not None
    # Processes that the command starts inherit the variables.
    if config:
        os.environ["LAKEHOUSE_CONFIG"] = os.path.abspath(config)
    if env:
        os.environ["LAKEHOUSE_ENV"] = env
    with suppress(ConfigError):  # the command reports it, unless it only prints its help
        if verbose or (ctx.invoked_subcommand in CHANGING and not is_explicit and not discovery.is_obvious()):
            used = f"Using {discovery.config_path()}, environment {discovery.environment_name()}"
            log_entry.write(LogEntry(used), err=True)


if __name__ == "__main__":
    main()
