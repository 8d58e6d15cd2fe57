"""The commands that verify a change before and after its deployment: `validate`, `plan`, `dry-run` and `check`."""

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import click
import dagster as dg

from lakehouse import DISTRIBUTION
from lakehouse.cli import check_runner, console
from lakehouse.cli.systems import (
    all_topics,
    kafka_topics,
    named_topics,
    open_clients,
    require_written_by_spark,
    verification,
)
from lakehouse.config import loader
from lakehouse.config.base import Fault
from lakehouse.config.discovery import environment_name
from lakehouse.config.known_columns import Columns, KnownColumns, column_faults, columns_of_files, with_key
from lakehouse.config.model import Config, Topic
from lakehouse.config.sensitive import hide_values
from lakehouse.core.errors import LakehouseError, SchemaError, logged_reason
from lakehouse.core.terminal import echo
from lakehouse.core.waiting import waiting_for
from lakehouse.pipeline.derivation.transforms import transform_faults
from resources.build import environment_faults, unknown_environment_faults


@click.command()
@click.option("--online", is_flag=True, help="Also compare the file with the schemas in the registry and the tables.")
def validate(online: bool) -> None:
    """Load lakehouse.yaml, its transforms and the Dagster definitions.

    Columns, values and the SQL of checks are compared with schema files. Without --online, no system is contacted. Run
    the command in CI on every change of lakehouse.yaml: every error has its line and the remedy. With --online, the
    settings of topics, those that routes match included, are also compared with their tables, as the next batch
    compares them.

    \b
    Exit code 0: the configuration is valid. 1: it is not. 2: with --online, a system does not answer.
    """
    from lakehouse.definitions import definitions_of

    def columns(config: Config) -> Columns:
        return registered_columns(config) if online else columns_of_files(config)

    validations: list[loader.Validation] = [
        lambda config: unknown_environment_faults(config, environment_name()),
        environment_faults,
        transform_faults,
        lambda config: column_faults(config, columns(config)),
    ]
    try:
        from lakehouse.local.check_syntax import syntax_faults

        validations.append(lambda config: syntax_faults(config, columns(config)))
    except ModuleNotFoundError:
        note = "SQL and patterns of checks were not parsed, because they need Java"
        echo(f"Note: {note}. Run pip install '{DISTRIBUTION}[local]', which contains it", err=True)
    with waiting_for("the transforms, and the SQL and patterns of checks"):
        declared = loader.load(validations=validations)
    if online:
        # The comparison reports columns that the schemas lack, too, so that it comes after theirs.
        declared = loader.load(validations=[table_faults])
    with _loading_definitions():
        loaded = definitions_of(declared)
        dg.Definitions.validate_loadable(loaded)
        graph = loaded.resolve_asset_graph()
    for topic, entries in entries_by_topic(declared).items():
        if len(entries) > 1:
            names = ", ".join(entries)
            echo(f"Note: the entries {names} ingest the same topic '{topic}', each to its own table", err=True)
    echo(f"{len(graph.get_all_asset_keys()):,} assets, {len(graph.asset_check_keys):,} checks")


@contextmanager
def _loading_definitions() -> Iterator[None]:
    with waiting_for("the Dagster definitions"), warnings.catch_warnings():
        # Dagster copies sensors that start a job, and the copy warns of Dagster's own argument `owners`.
        warnings.simplefilter("ignore", dg.BetaWarning)
        yield


def entries_by_topic(config: Config) -> dict[str, list[str]]:
    """Return the names of the entries that ingest each topic in Kafka."""
    entries: dict[str, list[str]] = {}
    for entry in config.topics.values():
        entries.setdefault(entry.topic, []).append(entry.name)
    return entries


def registered_columns(config: Config) -> Columns:
    """Return the function for the columns of schema files, and of the newest schemas in the registry."""
    from lakehouse.pipeline.schemas.decoding import resolve_schemas

    of_files, known = columns_of_files(config), dict[str, KnownColumns | None]()

    def columns(topic: Topic) -> KnownColumns | None:
        if topic.name not in known and (known_by_file := of_files(topic)):
            known[topic.name] = known_by_file
        elif topic.name not in known and topic.is_ingested:
            with verification(), open_clients(config) as resources:
                try:
                    schemas = resolve_schemas(resources.schema_registry, topic)
                except SchemaError:
                    known[topic.name] = None  # `lakehouse plan` reports a missing or unusable schema
                else:
                    subject = f"subject '{topic.subject('value')}'"
                    fields = with_key(topic, schemas.struct.fields)
                    known[topic.name] = KnownColumns(subject, fields, dict(schemas.previous_names))
        return known.get(topic.name)

    return columns


def table_faults(config: Config) -> list[Fault]:
    """Return the settings of topics and routes that do not fit their tables, and print what the next batch changes.

    Raises:
        click.ClickException: A system does not answer.
    """
    faults: list[Fault] = []
    with verification(), open_clients(config) as resources:
        topics = all_topics(config, resources)
        routes = {name: route.name for route, name, _ in config.match_routes([topic.name for topic in topics])}
        for outcome in check_runner.run_acceptance_checks(config, topics, resources):
            name = outcome.asset.rpartition("/")[0]
            at = ("routes", routes[name]) if name in routes else ("topics", name)
            message = f"topic '{name}': {outcome.message}" if name in routes else outcome.message
            match outcome.verdict:
                case "failed":
                    faults.append((at, message))
                case "warned":
                    echo(f"Note: {'.'.join(at)}: {message}", err=True)
                case "error":
                    raise LakehouseError(outcome.message)
    return faults


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

    SCHEMA_FILE defaults to the newest schema in the registry, and TOPIC to all topics and routes. The name of a route
    stands for its topics in Kafka. As JSON, one topic is an object, and several are a list.

    \b
    The newest schemas of all topics:   lakehouse plan
    A file against the table:           lakehouse plan users schemas/users.avsc
    Two files, offline:                 lakehouse plan users new.avsc --against old.avsc

    \b
    Exit code 0: ingestion accepts the schema. 1: it refuses the schema. 2: the plan could not be made.
    """
    from lakehouse.cli import schema_plan

    if against and not schema_file:
        raise click.UsageError("--against needs SCHEMA_FILE, the schema that is compared with the file. Name it")
    with verification():
        declared = loader.load()
        if against and topic in declared.routes:
            raise click.UsageError(f"--against contacts no system, and '{topic}' is a route. Name one of its topics")
        entry = declared.topic(topic) if topic and topic not in declared.routes else None
        if entry and schema_file and against:
            present = schema_plan.read(against, entry)
            table = schema_plan.as_table(present)
            plans = [schema_plan.plan(declared, entry, schema_file, table, present.value.versions)]
        else:
            with open_clients(declared) as resources:
                topics = named_topics(declared, [topic], resources) if topic else all_topics(declared, resources)
                plans = [schema_plan.plan_registered(declared, one, resources, schema_file) for one in topics]
    values = [schema.to_json() for schema in plans]
    lines = [line for schema in plans for line in schema.lines()]
    echo(json.dumps(values[0] if entry else values, indent=2) if as_json else "\n".join(lines))
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
@click.option("--compare-paths", is_flag=True, help="Compare the compiled decoder with the reference decoder instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write JUnit XML.")
def dry_run(topics: tuple[str, ...], records: int, compare_paths: bool, as_json: bool, junit: Path | None) -> None:
    """Ingest the newest records of TOPICS to a temporary branch, run their checks, and drop the branch.

    TOPICS are names of topics and routes, and default to all. The published table and its offsets do not change. The
    transform of a derived topic is tried with no rows. The steps by which a run would publish these records are printed
    first.

    With --compare-paths, the records are ingested by both decoders (docs/native.md), whatever `native` declares.
    Compared are the counts, the rejected records, the rows, and the field ids, statistics, partitions and sort order of
    files. A difference is reported by places and columns, without values.

    \b
    The newest 1,000 records of all topics:   lakehouse dry-run
    Of one topic, for a build server:         lakehouse dry-run orders --records 50 --junit report.xml
    Both decoders:                            lakehouse dry-run orders --records 100000 --compare-paths

    \b
    Exit code 0: no check failed (warnings are allowed). 1: a check failed, or the decoders differ. 2: a check could not
    be run, or the compiled decoder does not support the topic.
    """
    from lakehouse.pipeline.batches import path_comparison
    from lakehouse.pipeline.batches.dry_run import dry_run as ingest_sample
    from lakehouse.pipeline.clients import Clients
    from lakehouse.pipeline.derivation.trial import try_transform

    outcomes: list[check_runner.Outcome] = []
    with verification():
        declared = loader.load()
        require_written_by_spark(declared, topics)
        with open_clients(declared) as resources:
            clients = Clients.of(resources)
            for topic in named_topics(declared, topics, resources):
                asset = f"{topic.name}/iceberg"
                try:
                    with hide_values(topic):
                        if compare_paths:
                            results = path_comparison.compare_paths(declared.namespace, topic, clients, records)
                            outcomes += check_runner.as_outcomes(asset, results)
                            continue
                        if topic.source.upstream:
                            outcomes += check_runner.as_outcomes(asset, [try_transform(declared, topic, clients)])
                        result = ingest_sample(declared.namespace, topic, clients, records)
                    if not as_json:
                        steps = (f"  {number}. {step}" for number, step in enumerate(result.steps, 1))
                        echo("\n".join([f"A batch of these records of {topic.name} would:", *steps]))
                    outcomes += check_runner.as_outcomes(asset, result.findings)
                except Exception as error:
                    why = logged_reason(f"The dry run of {topic.name} failed", error)
                    outcomes.append(check_runner.Outcome(asset, "dry_run", "error", why))
    report(outcomes, as_json, junit)


@click.command()
@click.argument("topics", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write JUnit XML.")
def check(topics: tuple[str, ...], as_json: bool, junit: Path | None) -> None:
    """Run the checks of TOPICS, or of all topics and routes, in the environment that LAKEHOUSE_ENV names.

    The checks that lakehouse.yaml declares cover all published rows. The others verify that each reader shows the
    published snapshot, that lag is within its limit, that the ledger is consistent, and that the next batch accepts
    the newest schema and the settings. If Dagster's instance is available (DAGSTER_HOME), topics whose last run failed,
    or that a stream cannot ingest, are reported too.

    \b
    All checks:               lakehouse check
    One topic, as JUnit XML:  lakehouse check orders --junit report.xml

    \b
    Exit code 0: no check failed (warnings are allowed). 1: a check failed. 2: a check could not be run.
    """
    from lakehouse.cli.status import failed_runs, failing_checks

    with verification():
        declared = loader.load()
        names = list(topics or (*declared.topics, *declared.routes))
        with open_clients(declared) as resources:
            existing = kafka_topics(declared, resources)
            selected = declared.select(names, existing)
            outcomes = [
                *_asset_checks(declared, names, existing),
                *check_runner.run_acceptance_checks(declared, selected, resources),
                *check_runner.run_size_checks(declared, selected, resources),
                *check_runner.run_declared_checks(declared, selected, resources),
            ]
            for topic, reason in failed_runs(declared, [topic.name for topic in selected]).items():
                outcomes.append(check_runner.Outcome(f"{topic}/iceberg", "last_run", "failed", reason))
            for (asset, failing), reason in failing_checks(declared, names).items():
                outcomes.append(check_runner.Outcome(asset, failing, "failed", reason))
    report(outcomes, as_json, junit)


def _asset_checks(config: Config, names: Sequence[str], kafka_topics: Sequence[str]) -> list[check_runner.Outcome]:
    """Run the checks of the assets, in the definitions of this process."""
    from lakehouse.definitions import definitions_of

    with _loading_definitions():
        return [*check_runner.run_asset_checks(definitions_of(config), config, names, kafka_topics)]


def report(outcomes: list[check_runner.Outcome], as_json: bool, junit: Path | None) -> NoReturn:
    """Print the outcomes of checks, write them as JUnit XML to a file if there is one, and exit."""
    if junit:
        junit.parent.mkdir(parents=True, exist_ok=True)
        junit.write_text(check_runner.as_junit(outcomes), encoding="utf-8")
    if as_json:
        echo(check_runner.as_json(outcomes))
    else:
        console.console.print(*console.outcomes(outcomes), sep="\n")
    raise SystemExit(check_runner.exit_code(outcomes))
