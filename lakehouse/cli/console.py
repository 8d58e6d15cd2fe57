"""How results and lags show on a terminal, or in a log file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lakehouse.cli.status import TopicStatus
from lakehouse.core.terminal import visible
from lakehouse.pipeline import ledger_page
from lakehouse.readers import registered
from lakehouse.readers.freshness import NAMES, Hop

if TYPE_CHECKING:
    from lakehouse.cli.check_runner import Outcome
    from lakehouse.pipeline.proof import Proof

console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 160)
"""In a log file or a pipe there is no width to fit into."""


def plain(value: object) -> str:
    """A value as text that rich takes literally, without what would act on a terminal."""
    return escape(visible(str(value)))


def topics(statuses: Sequence[TopicStatus]) -> Table:
    """How fresh each hop is, a row a topic."""
    there = {hop.asset for found in statuses for hop in found.hops}
    # Optional readers, which few have, are no empty columns for the others.
    optional = {reader.name for reader in registered() if reader.is_optional}
    shown = [asset for asset in NAMES if asset in there or asset not in optional]
    table = Table("topic", "end offset", "ingested", *(NAMES[asset] for asset in shown), title="Freshness")
    for found in statuses:
        hops = {hop.asset: hop for hop in found.hops}
        is_paused = any(hop.paused for hop in found.hops)
        name = f"{found.topic} [yellow](paused)[/]" if is_paused else found.topic
        if found.failure:
            table.add_row(name, f"[red]{plain(found.failure)}[/]", "–", *(_hop(hops.get(a)) for a in shown))
            continue
        if found.end_offset is None:
            table.add_row(found.topic, "the topic does not exist yet")
            continue
        numbers = (_number(n) for n in (found.end_offset, found.ingested_offset))
        table.add_row(name, *numbers, *(_hop(hops.get(asset)) for asset in shown))
    return table


def rows(columns: Sequence[str], values: Sequence[Sequence[Any]], title: str | None = None) -> Table:
    """A query's result; numbers to the right."""
    table = Table(title=plain(title) if title else None)
    for i, column in enumerate(columns):
        numeric = all(
            isinstance(row[i], int | float) or row[i] is None or hasattr(row[i], "quantize") for row in values
        )
        table.add_column(plain(column), justify="right" if numeric else "left")
    for row in values:
        table.add_row(*("null" if value is None else plain(value) for value in row))
    return table


def ledger(topic: str, proof: Proof) -> list[Table | str]:
    """A topic's ledger: its commits, its partitions, what was found, and the whole of it as a sentence."""
    shown: list[Table | str] = []
    tables = {
        f"Commits of {topic}": ledger_page.commits(proof.entries, proof.findings),
        "Partitions": ledger_page.partitions(proof.entries, proof.rows, proof.letters),
    }
    for title, (columns, cells) in tables.items():
        table = Table(*columns, title=title)
        for row in cells:
            table.add_row(*map(plain, row))
        shown.append(table)
    for finding in proof.findings:
        shown.append(f"[red]✗ {plain(finding.said)}[/]" if finding.fault else f"· {plain(finding.said)}")
    return [*shown, ledger_page.summary(proof.entries, proof.findings)]


def outcomes(found: Sequence[Outcome]) -> list[str]:
    """A line a check, and one for all of them."""
    marks = {"passed": "[green]✓[/]", "warned": "[yellow]![/]", "failed": "[red]✗[/]", "not run": "[red]?[/]"}
    lines = [f"{marks[one.verdict]} {one.asset} {one.check}: {plain(one.said)}" for one in found]
    counts = {verdict: sum(one.verdict == verdict for one in found) for verdict in marks}
    return [*lines, ", ".join(f"{n:,} {verdict}" for verdict, n in counts.items() if n) or "nothing to check"]


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _hop(hop: Hop | None) -> str:
    if hop is None:
        return "–"
    said = plain(hop.said.partition(": ")[2])
    return said if hop.fresh else f"[red]{said}[/]"
