"""Make text from records, schemas and servers safe to print on a terminal.

A control sequence in a value can clear the screen, set the clipboard or change the window title; a bidirectional
override can disguise a line as another one.
"""

import re
import sys
import traceback

import click

_CONTROL = re.compile(
    r"\r(?!\n)|"  # RFC 4180 ends lines with both
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # the rest of C0 without tab and newline, DEL, C1
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # marks, separators, embeddings, overrides and isolates
    "\ud800-\udfff]"  # surrogates, which cannot be encoded
)


def visible(text: str) -> str:
    """Replace control characters by their code, such as `\\x1b`; tabs and ends of lines are unchanged."""
    return _CONTROL.sub(_code, text)


def echo(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print as click does, with control characters replaced on a terminal; files and pipes get the exact text."""
    stream = sys.stderr if err else sys.stdout
    click.echo(visible(text) if stream.isatty() else text, nl=nl, err=err)


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an error, with control characters replaced."""
    return visible("".join(traceback.format_exception(error)))


def _code(character: re.Match[str]) -> str:
    number = ord(character[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
