"""Control characters in text from records: escaped on terminals, unchanged in files and pipes."""

import io
import os
import pty
import re
import subprocess
import sys

import pytest
from rich.console import Console

from lakehouse.cli import console
from lakehouse.cli.check_runner import Outcome
from lakehouse.cli.status import TopicStatus
from lakehouse.core.errors import Diagnostic
from lakehouse.core.offsets.ledger import LedgerFinding
from lakehouse.core.terminal import visible
from lakehouse.pipeline.ledger.reconciliation import ReconciliationReport
from lakehouse.query.result import QueryResult
from lakehouse.readers.freshness import StageLag

ATTACK = "\x1b]52;c;cm0gLXJmIH4=\x07 \x1b[2J \x9b8m \u202egnp.exe\u2066 \r\x08 [red]x[/red]"
CONTROL_CHARACTERS = [c for c in ATTACK if not c.isprintable()]


def terminal_output(*renderables):
    """Return the output for a terminal, without rich's own codes."""
    output = Console(file=io.StringIO(), force_terminal=True, no_color=True, color_system=None, width=300)
    output.print(*renderables, sep="\n")
    return output.file.getvalue()


def run_on_terminal(script):
    """Return what a program writes to a terminal, on both of its streams."""
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


def test_visible_control_character_is_escaped():
    assert visible("\x1b[2J\x9b\x7f\r") == "\\x1b[2J\\x9b\\x7f\\x0d"
    assert visible("\u202eabc\u2066\ud800") == "\\u202eabc\\u2066\\ud800"


@pytest.mark.parametrize("text", ["tab\tand\nnewline", "a line\r\nof CSV", "Zürich → 東京 🚀", "עברית", ""])
def test_visible_other_text_is_unchanged(text):
    assert visible(text) == text


def test_rows_never_contain_control_characters():
    result = QueryResult([f"column {ATTACK}"], [[ATTACK], [{"nested": ATTACK}], [[ATTACK]]])
    output = terminal_output(console.rows(result.columns, result.terminal_rows()))
    assert not set(CONTROL_CHARACTERS) & set(output)
    assert "\\x1b]52" in output and "\\u202e" in output and "[red]x[/red]" in output


def test_text_between_colons_is_no_emoji():
    with console.console.capture() as output:
        console.console.print(console.rows([":id:"], [["urn:id:5"]]), console.plain("a:x:b"))
    assert all(text in output.get() for text in (" :id: ", " urn:id:5 ", "a:x:b"))


def test_outcomes_and_ledger_contain_no_control_characters():
    duplicate = LedgerFinding("duplicate_key", f"Key {ATTACK} has 2 rows")
    report = ReconciliationReport([], [duplicate, LedgerFinding("note", ATTACK, fault=False)])
    outcomes = console.outcomes([Outcome("iceberg/a", "b", "failed", ATTACK)])
    stage = StageLag("a", "glue", 1, None, None)
    output = terminal_output(
        *outcomes, *console.ledger("a", report), console.topics([TopicStatus("a", 1, 1, (stage,))])
    )
    assert not set(CONTROL_CHARACTERS) & set(output)


def test_diagnostics_contain_no_control_characters(capsys):
    with pytest.raises(SystemExit):
        console.report([Diagnostic("Glue", False, f"refused: {ATTACK}", ATTACK)])
    output = capsys.readouterr().out
    assert not set(CONTROL_CHARACTERS) & set(output) and output.count("\\x1b]52") == 2


COMMAND = """
import click
from lakehouse.cli.main import main
from lakehouse.core.errors import LakehouseError
from lakehouse.core.terminal import echo

@main.command()
@click.argument("kind")
def fail(kind):
    text = "quoted \\x1b]52;c;cm0=\\x07 \\u202e"
    if kind == "echo":
        return echo(text)
    raise {{"own": LakehouseError, "usage": click.UsageError, "unexpected": ValueError}}[kind](text)

main(["fail", "{kind}"])
"""


@pytest.mark.parametrize("kind", ["echo", "own", "usage", "unexpected"])
def test_command_message_contains_no_control_characters(kind):
    output = run_on_terminal(COMMAND.format(kind=kind))
    assert "quoted \\x1b]52;c;cm0=\\x07 \\u202e" in output
    assert not set("\x1b\x07\u202e") & set(output)


def test_pipe_receives_exact_text():
    script = COMMAND.format(kind="echo")
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert result.stdout.decode() == "quoted \x1b]52;c;cm0=\x07 \u202e\n"
    assert "\x1b]52" in QueryResult(["v"], [[ATTACK]]).csv()


NARROW = """
from datetime import datetime
from lakehouse.cli import console
columns = ["committed (UTC)", "snapshot", "commit", "offsets", "consumed", "rows", "without record", "verdict"]
row = [datetime(2026, 11, 28, 19, 24, 33), 6311034567890123456, "ingest", "0:12-40 1:40-80", 68, 67, 1, "consistent"]
console.console.print(console.rows(columns, [row, row], title="Commits of orders"))
console.console.print(console.rows(["partition", "offset", "message"], [[0, 12, "'cents': text is not one value"]]))
"""


@pytest.mark.parametrize("width", [40, 80, 200])
def test_rows_divide_no_value(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    output = run_on_terminal(NARROW)
    lines = [line.rstrip("\r") for line in output.split("\n")]
    plain_lines = [re.sub("\x1b\\[[0-9;]*m", "", line) for line in lines]
    assert all(len(line) <= width for line in plain_lines)
    for value in ("6311034567890123456", "19:24:33", "2026-11-28", "0:12-40", "consistent", "'cents':"):
        assert any(value in line for line in plain_lines)
