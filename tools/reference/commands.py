"""Page of commands, with the help text of each."""

from __future__ import annotations

from collections.abc import Iterator

import click

from lakehouse.cli.main import main
from tools.reference.markdown import page


def commands() -> str:
    """Return the page."""
    return page("Command line", *_sections(main, "lakehouse", None))


def _sections(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    with click.Context(
        command,
        info_name=name,
        parent=parent,
        max_content_width=100,
        terminal_width=100,
        # click creates the help option once per process, so its names must be those of a real invocation.
        **command.context_settings,
    ) as context:
        path = context.command_path
        yield f"{'##' if parent else ''} {path if parent else ''}\n\n```text\n{command.get_help(context)}\n```"
        if isinstance(command, click.Group):
            for child in command.list_commands(context):
                if subcommand := command.get_command(context, child):
                    yield from _sections(subcommand, child, context)
