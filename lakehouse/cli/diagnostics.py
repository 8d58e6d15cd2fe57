"""Display of what `lakehouse doctor` and `lakehouse deploy doctor` observed."""

from rich.console import Console
from rich.markup import escape

from lakehouse.core.diagnostic import Diagnostic
from lakehouse.core.text.terminal import visible


def show(results: list[Diagnostic]) -> None:
    """Print the results of `doctor`, with a remedy for each problem."""
    console = Console(emoji=False)
    for result in results:
        mark = "[green]ok    [/]" if result.ok else "[red]failed[/]"
        console.print(f"{mark} {result.subject:<15} {escape(visible(result.observation))}", soft_wrap=True)
        if not result.ok:
            console.print(f"       {'':<15} → {escape(visible(result.remedy))}", soft_wrap=True)
