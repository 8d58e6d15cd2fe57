"""The command `lakehouse demo`: runs the main job end to end on the embedded stack."""

import os
import signal
import time
from typing import Any
from urllib.parse import urlsplit

import click
import dagster as dg
from dagster_graphql import DagsterGraphQLClient

from lakehouse.cli import console
from lakehouse.cli.status import status
from lakehouse.cli.systems import open_clients
from lakehouse.config import loader
from lakehouse.config.model import Config, Topic
from lakehouse.config.sources import Datagen
from lakehouse.core.errors import LakehouseError
from lakehouse.core.polling import poll
from lakehouse.core.text import plain
from lakehouse.definitions import JOB
from lakehouse.local import show, stack
from lakehouse.local.dagster import ui_login
from lakehouse.local.home import Credentials, Home
from lakehouse.local.processes.process import running
from resources.protocols import Resources, resource_of
from resources.snowflake.snowflake import Snowflake

FILL_SECONDS = 120
RUN_SECONDS = 900
POLL_SECONDS = 0.5
"""Timeouts for the initial records and for the run, and the interval between polls, in seconds."""
STOPPED_POLL_SECONDS = 5
"""Interval between the checks of whether another command has stopped the stack."""

RESULT = """
SELECT TRADE_TIMESTAMP, USERID, SIDE, SYMBOL, TRADE_COUNT, QUANTITY, PRICE, TOTAL_PRICE
FROM {table}
ORDER BY TRADE_TIMESTAMP DESC, TOTAL_PRICE DESC
LIMIT 10
"""
FLAGS = "SELECT ANOMALY_FLAG, COUNT(*) AS TRADES FROM {table} GROUP BY ANOMALY_FLAG ORDER BY TRADES DESC"
SUMMARY = "SELECT COUNT(*), SUM(TRADE_COUNT), SUM(TOTAL_PRICE) FROM {table}"


@click.command()
@click.option("--once", is_flag=True, help="Stop all servers after the result is shown.")
def demo(once: bool) -> None:
    """Start the stack, ingest simulated trades, publish them to Glue and Snowflake, and show the result.

    Then ingestion continues until Ctrl-C or `lakehouse down`, which stop all servers and keep their data.
    """
    home = Home.default()
    began = time.monotonic()
    for number in (signal.SIGTERM, signal.SIGHUP):  # the end of the terminal or of a container
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        console.console.rule("1 · The embedded stack")
        show.up(home, [server for server in stack.SERVERS if server != "dagster-daemon"])
        config = loader.load()
        with open_clients(config) as resources:
            console.console.rule("2 · Records")
            _await_records(config, resources)
            console.console.rule("3 · Kafka → Iceberg → Glue → Snowflake")
            token = Credentials.of(home).ui_token
            run_id = _submit_job(JOB, token)
            # The daemon starts after the job is queued: else automation would request the same assets before it.
            stack.up(home)
            _follow(run_id)
            if not once:
                # Their pages in the UI are empty until the first night otherwise.
                for nightly_job in ("ledger", "maintenance"):
                    _submit_job(nightly_job, token)
            console.console.rule("4 · The result, from Snowflake")
            _show_result(config, resources)
            console.console.print(console.topics(status(config, resources)))
        console.console.print(f"Done in {time.monotonic() - began:.0f} s.")
        if once:
            console.console.print("The stack stops now and keeps its data. `lakehouse up` starts it again.")
        else:
            show.ui_address(os.environ["LAKEHOUSE_UI_URL"], home)
            console.console.print("New trades are ingested as they are produced. Ctrl-C stops the stack.")
            poll(lambda: not running(home), pause=STOPPED_POLL_SECONDS)
            console.console.print("Another command stopped the stack.")
    except KeyboardInterrupt:
        console.console.print("Stopping.")
    finally:
        try:
            stack.down(home)
        except KeyboardInterrupt:
            raise LakehouseError(
                "The stop was interrupted, so that servers may still run. Run `lakehouse down`"
            ) from None


def _await_records(config: Config, resources: Resources) -> None:
    """Wait until the generator has produced the initial records, and show its progress."""
    generated = [(topic, topic.source) for topic in config.topics.values() if isinstance(topic.source, Datagen)]
    expected = {topic.topic: source.initial_records for topic, source in generated}

    def count_records() -> dict[str, int]:
        existing = resources.kafka.describe(list(expected))
        counts = {
            topic: sum(o.end - o.start for o in offsets.values())
            for topic, offsets in resources.kafka.offsets(list(existing)).items()
        }
        progress.update(", ".join(f"{topic}: {n:,} records" for topic, n in counts.items()) or "waiting for records")
        return counts

    def is_complete(counts: dict[str, int]) -> bool:
        return all(counts.get(topic, 0) >= n for topic, n in expected.items())

    with console.console.status("waiting for records") as progress:
        counts = poll(count_records, until=is_complete, pause=POLL_SECONDS, deadline_seconds=FILL_SECONDS)
    if not is_complete(counts):
        raise LakehouseError(
            f"The generator produced {counts} in {FILL_SECONDS} s, expected {expected}. "
            f"Inspect the log of datagen, which `lakehouse status` names"
        )
    console.console.print("\n".join(f"{t.topic}: {counts[t.topic]:,} records{_keyed(t)}" for t, _ in generated))


def _keyed(topic: Topic) -> str:
    return "" if topic.mode == "append" else f", one row per {', '.join(topic.key)}"


def _submit_job(job: str, token: str) -> str:
    """Queue a job as the UI would, and return the run's id."""
    ui = urlsplit(os.environ["LAKEHOUSE_UI_URL"])
    client = DagsterGraphQLClient(ui.hostname or "", port_number=ui.port, headers=ui_login.bearer(token))
    return client.submit_job_execution(job, repository_location_name="lakehouse")


def _follow(run_id: str) -> None:
    """Print the events of a run until it finishes."""
    url = f"{os.environ['LAKEHOUSE_UI_URL']}/runs/{run_id}"
    console.console.print(f"run {url}")
    cursor = None
    with dg.DagsterInstance.get() as instance:

        def finished_run() -> dg.DagsterRun | None:
            nonlocal cursor
            page = instance.get_records_for_run(run_id, cursor=cursor)
            cursor = page.cursor
            for record in page.records:
                if line := _event_line(record.event_log_entry):
                    console.console.print(line)
            run = instance.get_run_by_id(run_id)
            return run if run is not None and run.is_finished and not page.records else None

        run = poll(finished_run, pause=POLL_SECONDS, deadline_seconds=RUN_SECONDS)
    if run is None:
        raise LakehouseError(f"The run did not finish in {RUN_SECONDS} s. Inspect {url}")
    if not run.is_success:
        raise LakehouseError(f"The run ended as {run.status.value}: an asset or a blocking check failed. Inspect {url}")


def _event_line(entry: Any) -> str | None:
    """Return the line that describes a materialization, a check or a failure, and None for other events."""
    event = entry.dagster_event
    if event is None:
        return None
    match event.event_type:
        case dg.DagsterEventType.ASSET_MATERIALIZATION:
            metadata = event.materialization.metadata
            numbers = {
                name: metadata[name].value
                for name in ("offsets", "messages", "dagster/row_count", "seconds")
                if name in metadata
            }
            details = ", ".join(f"{name.removeprefix('dagster/')} {value:,}" for name, value in numbers.items())
            return f"  [green]✓[/] {event.asset_key.to_user_string():<40} {details}"
        case dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            check = event.asset_check_evaluation_data
            mark = "[green]✓[/]" if check.passed else "[red]✗[/]"
            result = f"check {check.check_name}: {plain(check.description or '')}"
            return f"  {mark} {check.asset_key.to_user_string():<40} {result}"
        case dg.DagsterEventType.STEP_FAILURE:
            error = event.step_failure_data.error
            return f"  [red]✗ {event.step_key}: {error.message.strip() if error else 'failed'}[/]"
    return None


def _show_result(config: Config, resources: Resources) -> None:
    name = "stock_trades_with_totals"
    table = f"{config.namespace}.{config.topic(name).table}"
    snowflake = resource_of(resources, "snowflake", Snowflake)
    columns, values = snowflake.query(RESULT.format(table=table))
    _, [(groups, trades, pennies)] = snowflake.query(SUMMARY.format(table=table))
    console.console.print(console.rows(columns, values, title=f"{name} (newest 10 of {groups:,} groups)"))
    console.console.print(f"{trades:,} trades in {groups:,} groups, {pennies / 100:,.2f} dollars in total")
    flagged = config.topic("flagged_stock_trades")
    table = f"{config.namespace}.{flagged.table}"
    columns, values = snowflake.query(FLAGS.format(table=table))
    console.console.print(console.rows(columns, values, title=flagged.name))
