"""The commands `lakehouse plan` and `lakehouse dry-run`, which verify a change before it is deployed."""

import json
from pathlib import Path

import click

from lakehouse.cli import check_runner, schema_plan
from lakehouse.cli.commands.checking import report
from lakehouse.cli.systems import all_spark_topics, all_topics, open_clients
from lakehouse.cli.verification import verification
from lakehouse.config import loader
from lakehouse.config.sensitive import hide_values
from lakehouse.core.errors import logged_reason
from lakehouse.core.text.terminal import echo
from lakehouse.pipeline.batches.dry_run import dry_run as ingest_sample
from lakehouse.pipeline.clients import Clients


@click.command()
@click.argument("topic", required=False)
@click.argument("schema_file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The present schema, instead of the table's. The command then contacts no system.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(topic: str | None, schema_file: Path | None, against: Path | None, as_json: bool) -> None:
    """Show how a schema (.avsc, .json, .proto) would change the table of TOPIC. Nothing is changed.

    SCHEMA_FILE defaults to the newest schema in the registry, and TOPIC to all topics and routes. As JSON, one topic
    is an object, and all topics are a list.

    \b
    The newest schemas of all topics:   lakehouse plan
    A file against the table:           lakehouse plan users schemas/users.avsc
    Two files, offline:                 lakehouse plan users new.avsc --against old.avsc

    \b
    Exit code 0: ingestion accepts the schema. 1: it refuses the schema. 2: the plan could not be made.
    """
    if against and not schema_file:
        raise click.UsageError("--against needs SCHEMA_FILE, the schema that is compared with the file. Name it")
    with verification():
        declared = loader.load()
        entry = declared.topic(topic) if topic else None
        if entry and schema_file:
            table = (
                schema_plan.as_table(schema_plan.read(against, entry))
                if against
                else schema_plan.current_schema(declared, entry)
            )
            plans = [schema_plan.plan(declared, entry, schema_file, table)]
        else:
            with open_clients(declared) as resources:
                topics = [entry] if entry else all_topics(declared, resources)
                plans = [schema_plan.plan_registered(declared, each_topic, resources) for each_topic in topics]
    values = [schema.to_json() for schema in plans]
    lines = [line for schema in plans for line in schema.lines()]
    echo(json.dumps(values[0] if topic else values, indent=2) if as_json else "\n".join(lines))
    raise SystemExit(0 if all(schema.is_accepted for schema in plans) else 1)


@click.command("dry-run")
@click.argument("topics", nargs=-1)
@click.option(
    "--records",
    default=1_000,
    show_default=True,
    type=click.IntRange(min=1),
    help="Maximum number of newest records per topic.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write JUnit XML.")
def dry_run(topics: tuple[str, ...], records: int, as_json: bool, junit: Path | None) -> None:
    """Ingest the newest records of TOPICS to a temporary branch, run their checks, and drop the branch.

    TOPICS defaults to all topics and routes. The published table and its offsets do not change.

    \b
    The newest 1,000 records of all topics:   lakehouse dry-run
    Of one topic, for a build server:         lakehouse dry-run orders --records 50 --junit report.xml

    \b
    Exit code 0: no check failed (warnings are allowed). 1: a check failed. 2: a check could not be run.
    """
    outcomes: list[check_runner.Outcome] = []
    with verification():
        declared = loader.load()
        selected = [declared.topic_written_by_spark(name) for name in topics]
        with open_clients(declared) as resources:
            clients = Clients.of(resources)
            for topic in selected or all_spark_topics(declared, resources):
                asset = f"iceberg/{topic.name}"
                try:
                    with hide_values(topic):
                        result = ingest_sample(declared.namespace, topic, clients, records)
                    outcomes += check_runner.as_outcomes(asset, result.findings)
                except Exception as error:
                    why = logged_reason(f"The dry run of {topic.name} failed", error)
                    outcomes.append(check_runner.Outcome(asset, "dry_run", "error", why))
    report(outcomes, as_json, junit)
