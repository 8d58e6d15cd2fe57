"""Text from records, schemas and servers on a terminal, where it must not act.

A control sequence in a value can clear the screen, set the clipboard or retitle the window; a bidirectional override
can make a line read as another one.
"""

from __future__ import annotations

import re
import sys
from types import TracebackType

_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # marks, separators, embeddings, overrides and isolates
    "\ud800-\udfff]"  # halves of surrogate pairs, which no terminal can be sent
)


def visible(text: str) -> str:
    """Replace what would act on a terminal by its code, such as `\\x1b`; tabs and newlines stay."""
    return _ACTING.sub(_code, text)


def echo(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print as click does; to a terminal, only what is visible. Files and pipes get the exact text."""
    import click

    stream = sys.stderr if err else sys.stdout
    click.echo(visible(text) if stream.isatty() else text, nl=nl, err=err)


def print_traceback(type_: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an unforeseen error as Python does, with its text made visible: a replacement of `sys.excepthook`."""
    import traceback

    sys.stderr.write(visible("".join(traceback.format_exception(type_, error, trace))))


def _code(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
