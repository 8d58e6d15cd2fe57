"""Text from records cannot act on the terminal that shows it; files and pipes get it unchanged."""

import io
import os
import pty
import subprocess
import sys

import pytest
from rich.console import Console

from lakehouse.cli import console
from lakehouse.cli.check_runner import Outcome
from lakehouse.cli.status import TopicStatus
from lakehouse.core.ledger_findings import Finding
from lakehouse.core.terminal import visible
from lakehouse.query.result import Result
from lakehouse.readers.freshness import Hop

ATTACK = "\x1b]52;c;cm0gLXJmIH4=\x07 \x1b[2J \x9b8m \u202egnp.exe\u2066 \r\x08 [red]x[/red]"
ACTING = [c for c in ATTACK if not c.isprintable()]


def written(*renderables):
    """What a terminal gets, without the codes of rich itself."""
    shown = Console(file=io.StringIO(), force_terminal=True, no_color=True, color_system=None, width=300)
    shown.print(*renderables, sep="\n")
    return shown.file.getvalue()


def on_a_terminal(script):
    """What a program writes to a terminal, on both of its streams."""
    master, slave = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", script], stdout=slave, stderr=slave, stdin=slave) as process:
        os.close(slave)
        output = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:
                break
            if not part:
                break
            output += part
        process.wait()
    os.close(master)
    return output.decode().replace("\r\n", "\n")


def test_a_control_character_shows_as_its_code():
    assert visible("\x1b[2J\x9b\x7f\r") == "\\x1b[2J\\x9b\\x7f\\x0d"
    assert visible("\u202eabc\u2066\ud800") == "\\u202eabc\\u2066\\ud800"


@pytest.mark.parametrize("text", ["tab\tand\nnewline", "Zürich → 東京 🚀", "עברית", ""])
def test_other_text_stays(text):
    assert visible(text) == text


def test_no_value_column_or_title_acts():
    result = Result([f"column {ATTACK}"], [[ATTACK], [{"nested": ATTACK}], [[ATTACK]]])
    shown = written(console.rows(result.columns, result.shown()))
    assert not set(ACTING) & set(shown)
    assert "\\x1b]52" in shown and "\\u202e" in shown and "[red]x[/red]" in shown


def test_nothing_that_a_check_or_a_ledger_quotes_acts():
    class Proof:
        entries, rows, letters, holds = (), {}, {}, False
        findings = (Finding("duplicate_key", f"Key {ATTACK} has 2 rows"), Finding("note", ATTACK, fault=False))

    outcomes = console.outcomes([Outcome("iceberg/a", "b", "failed", ATTACK)])
    hop = Hop("a", "glue", 1, None, None)
    shown = written(*outcomes, *console.ledger("a", Proof()), console.topics([TopicStatus("a", 1, 1, (hop,))]))
    assert not set(ACTING) & set(shown)


COMMAND = """
import click
from lakehouse.cli.main import main
from lakehouse.core.errors import LakehouseError
from lakehouse.core.terminal import echo

@main.command()
@click.argument("how")
def fail(how):
    text = "quoted \\x1b]52;c;cm0=\\x07 \\u202e"
    if how == "echo":
        return echo(text)
    raise {{"own": LakehouseError, "usage": click.UsageError, "unforeseen": ValueError}}[how](text)

main(["fail", "{how}"])
"""


@pytest.mark.parametrize("how", ["echo", "own", "usage", "unforeseen"])
def test_no_message_of_a_command_acts(how):
    output = on_a_terminal(COMMAND.format(how=how))
    assert "quoted \\x1b]52;c;cm0=\\x07 \\u202e" in output
    assert not set("\x1b\x07\u202e") & set(output)


def test_a_pipe_gets_the_exact_text():
    script = COMMAND.format(how="echo")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.decode() == "quoted \x1b]52;c;cm0=\x07 \u202e\n"
    assert "\x1b]52" in Result(["v"], [[ATTACK]]).csv()
