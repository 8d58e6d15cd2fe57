"""Rendering of results, lags, checks and diagnoses on a terminal or in a log file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from lakehouse.core.errors import Diagnostic
from lakehouse.core.offsets.lag import UP_TO_DATE
from lakehouse.core.terminal import echo, visible
from lakehouse.pipeline.ledger import ledger_page
from lakehouse.pipeline.row_files import FAILED

if TYPE_CHECKING:
    from lakehouse.cli.check_runner import Outcome
    from lakehouse.cli.status import TopicStatus
    from lakehouse.pipeline.ledger.reconciliation import ReconciliationReport


console = Console(soft_wrap=True, emoji=False, width=None if sys.stdout.isatty() else 160)
"""The console of all commands. Pipes and log files have no width, so lines are up to 160 characters long."""


MAX_TOPIC = 40
"""Characters of a topic's name from which on it may be folded."""


def plain(value: object) -> str:
    """Return a value as text for rich, with markup and terminal control characters escaped."""
    return escape(visible(str(value)))


def topics(statuses: Sequence[TopicStatus]) -> Table:
    """Return a table with the offsets of each topic, and the lag of each stage that has one, for 80 columns."""
    # The readers load Dagster, pyiceberg and the clients of all systems, which other commands do not need.
    from lakehouse.readers.freshness import NAMES

    numbers = (Column(name, justify="right", no_wrap=True) for name in ("end offset", "ingested"))
    present = {stage.stage for status in statuses for stage in status.stages}
    stages = ", ".join(name for stage, name in NAMES.items() if stage in present)
    length = min(max((len(status.topic) for status in statuses), default=0), MAX_TOPIC)
    topic = Column("topic", overflow="fold", min_width=length)
    table = Table(topic, *numbers, Column("lag"), title="Freshness", caption=f"Stages: {stages}")
    for status in statuses:
        is_paused = any(stage.paused for stage in status.stages)
        name = f"{status.topic} [yellow](paused)[/]" if is_paused else status.topic
        lags = [line for stage in NAMES for line in _lag(status, stage)] or [UP_TO_DATE]
        if status.failure:
            lags.insert(0, f"[red]{plain(status.failure)}[/]")
        elif status.end_offset is None:
            lags = ["the topic does not exist yet"]
        if status.decoder.startswith(FAILED):
            lags.append(f"[yellow]{plain(status.decoder)}[/]")
        table.add_row(name, _number(status.end_offset), _number(status.ingested_offset), "\n".join(lags))
    return table


def rows(columns: Sequence[str], values: Sequence[Sequence[Any]], title: str | None = None) -> Table | str:
    """Return the result of a query as a table, with numbers aligned to the right."""
    cells = [["null" if value is None else visible(str(value)) for value in row] for row in values]
    numeric = [
        all(isinstance(row[i], int | float) or row[i] is None or hasattr(row[i], "quantize") for row in values)
        for i in range(len(columns))
    ]
    return _table([visible(column) for column in columns], cells, title, numeric)


def _table(
    columns: Sequence[str], cells: Sequence[Sequence[str]], title: str | None, numeric: Sequence[bool] = ()
) -> Table | str:
    """Return a table, or a block of lines for each row if the terminal is too narrow for the words of a table.

    Args:
        columns: The names of the columns.
        cells: Their texts by row.
        title: The title.
        numeric: Whether each column has numbers.
    """
    words = [
        max(len(word) for text in (name, *column) for word in (text.split() or [""]))
        for name, *column in zip(columns, *cells, strict=True)
    ]
    if sum(words) + 3 * len(words) + 1 > console.width and len(words) > 1 and cells:
        return "\n".join(
            [f"[italic]{escape(title)}[/]" if title else "", *(_block(columns, row) for row in cells)]
        ).lstrip()
    table = Table(title=escape(title) if title else None)
    for name, length, right in zip(columns, words, numeric or [False] * len(words), strict=True):
        least = min(length, console.width - 4)
        table.add_column(escape(name), justify="right" if right else "left", overflow="fold", min_width=least)
    for row in cells:
        table.add_row(*map(escape, row))
    return table


def _block(columns: Sequence[str], row: Sequence[str]) -> str:
    """Return a row as lines of `name value` pairs. A pair is not split unless it is longer than a line."""
    lines = [""]
    for name, value in zip(columns, row, strict=True):
        pair = f"{name} {value}"
        if lines[-1] and len(lines[-1]) + 2 + len(pair) > console.width - 2:
            lines.append("")
        lines[-1] += f"{', ' if lines[-1] else ''}{pair}"
    return escape("- " + "\n  ".join(lines))


def ledger(topic: str, report: ReconciliationReport) -> list[Table | str]:
    """Return a topic's ledger: tables of its commits and partitions, then the findings, then a summary."""
    shown: list[Table | str] = []
    tables = {
        f"Commits of {topic}": ledger_page.commits(report.entries, report.findings),
        "Partitions": ledger_page.partitions(report.entries, report.rows, report.letters),
    }
    for title, (columns, cells) in tables.items():
        shown.append(_table(columns, [[visible(text) for text in row] for row in cells], title))
    for finding in report.findings:
        shown.append(f"[red]✗ {plain(finding.message)}[/]" if finding.fault else f"· {plain(finding.message)}")
    return [*shown, ledger_page.summary(report.entries, report.findings)]


def outcomes(results: Sequence[Outcome]) -> list[str]:
    """Return a line for each check, and a summary line."""
    marks = {"passed": "[green]✓[/]", "warned": "[yellow]![/]", "failed": "[red]✗[/]", "error": "[red]?[/]"}
    lines = [f"{marks[result.verdict]} {result.asset} {result.check}: {plain(result.message)}" for result in results]
    counts = {verdict: sum(result.verdict == verdict for result in results) for verdict in marks}
    return [*lines, ", ".join(f"{n:,} {verdict}" for verdict, n in counts.items() if n) or "no checks to run"]


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _lag(status: TopicStatus, name: str) -> Iterator[str]:
    """Yield the lag of a stage, unless the topic has no such stage or the stage is up to date."""
    for stage in status.stages:
        text = stage.description.partition(": ")[2]
        if stage.stage == name and text != UP_TO_DATE:
            line = f"{name}: {plain(text)}"
            yield line if stage.is_fresh else f"[red]{line}[/]"


def report(diagnostics: Sequence[Diagnostic], *, as_json: bool = False) -> NoReturn:
    """Print what `doctor` observed, with a remedy for each problem, and exit."""
    if as_json:
        echo(json.dumps([asdict(diagnostic) for diagnostic in diagnostics], indent=2))
        raise SystemExit(0 if all(diagnostic.ok for diagnostic in diagnostics) else 1)
    for diagnostic in diagnostics:
        mark = "[green]ok    [/]" if diagnostic.ok else "[red]failed[/]"
        console.print(f"{mark} {plain(f'{diagnostic.subject:<15}')} {plain(diagnostic.observation)}")
        if not diagnostic.ok:
            console.print(f"       {'':<15} → {plain(diagnostic.remedy)}")
    raise SystemExit(0 if all(diagnostic.ok for diagnostic in diagnostics) else 1)
