"""Display of the embedded stack on a terminal or in a log file."""

from collections.abc import Callable, Collection

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from lakehouse.local import doctor, stack
from lakehouse.local.dagster import ui_login
from lakehouse.local.home import Credentials, Home


def up(
    home: Home,
    names: Collection[str] = tuple(stack.SERVERS),
    on_ready: Callable[[stack.ServerState], None] = lambda state: None,
    kafka_sasl: bool | None = None,
) -> list[stack.ServerState]:
    """Run `stack.up`, and print a bar for each download, a line for each server that is ready, and a table of all."""
    console = Console(emoji=False)

    def ready(state: stack.ServerState) -> None:
        console.print(f"  {state.name:<15} {f'ready in {state.seconds:.1f} s' if state.seconds else 'was running'}")
        on_ready(state)

    named: set[str] = set()

    def starting(servers: Collection[str]) -> None:
        if new := [name for name in servers if name not in named]:
            console.print(f"  starting {', '.join(new)}")
        named.update(new)

    columns = TextColumn("  {task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        states = stack.up(home, names, progress, ready, starting, kafka_sasl)
    servers(states, home, console)
    if warning := doctor.other_users_warning(home):
        console.print(f"[yellow]{escape(warning)}[/]", soft_wrap=True)
    return states


def servers(states: list[stack.ServerState], home: Home, console: Console | None = None) -> None:
    """Print the servers with their states and addresses, the address of the UI, and the path of the logs."""
    console = console or Console(emoji=False)
    table = Table("server", "state", "address", "MiB")
    for state in states:
        memory = f"{state.resident_bytes >> 20}" if state.resident_bytes else ""
        table.add_row(state.name, state.state, state.address, memory)
    console.print(table)
    if ui := next((state.address for state in states if (state.name, state.state) == ("dagster", "ready")), ""):
        ui_address(ui, home, console)
    for folder in {state.log.parent for state in states}:
        console.print(f"Logs: {escape(str(folder))}/<server>.log", soft_wrap=True)
    if warning := home.space_warning():
        console.print(f"[red]![/] {escape(warning)}", soft_wrap=True)


def ui_address(address: str, home: Home, console: Console | None = None) -> None:
    """Print the address of Dagster's UI. The login link is a secret: it is printed on terminals, but not in files."""
    console = console or Console(emoji=False)
    if console.file.isatty():
        link = ui_login.link(address, Credentials.of(home).ui_token)
        console.print(f"The UI: {escape(link)}", soft_wrap=True, highlight=False)
    else:
        console.print(f"The UI: {address} (`lakehouse ui` prints the link that logs in)", soft_wrap=True)
