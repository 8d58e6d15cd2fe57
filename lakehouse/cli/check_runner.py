"""Checks of an environment without Dagster's UI, as `lakehouse check` and `lakehouse dry-run` report them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

import dagster as dg

from assets.entry import partitions
from assets.freshness import ONLY
from lakehouse.cli.systems import missing_table_error
from lakehouse.config.checks import STREAMING, RowCount
from lakehouse.config.model import Config, Topic
from lakehouse.config.sensitive import hide_values
from lakehouse.core.errors import SchemaError, UnclearState, logged_reason
from lakehouse.core.tables import layout
from lakehouse.core.terminal import visible
from lakehouse.core.text import plain
from lakehouse.pipeline.table_location import catalog_of, table_of
from resources.protocols import Resources

if TYPE_CHECKING:
    from lakehouse.pipeline.commits.audit import CheckResult


Verdict = Literal["passed", "warned", "failed", "error"]


@dataclass(frozen=True)
class Outcome:
    """The verdict of one check of an asset, such as `users/iceberg`. A check that did not report is an error."""

    asset: str
    check: str
    verdict: Verdict
    message: str


def run_asset_checks(
    definitions: dg.Definitions, config: Config, names: Collection[str], kafka_topics: Collection[str]
) -> Iterator[Outcome]:
    """Run the checks of Dagster's assets that need no run of the asset, as the UI would.

    Args:
        definitions: All definitions of the environment.
        config: lakehouse.yaml.
        names: Entries of lakehouse.yaml, or topics that routes match. If they include all entries, the checks of other
            assets, such as the Kafka cluster, run too.
        kafka_topics: The topics in Kafka, to be matched with routes.
    """
    matches = config.match_routes(kafka_topics)
    routed = [
        (route.name, name)
        for route, name, topic in matches
        if isinstance(topic, Topic) and not {route.name, name}.isdisjoint(names)
    ]
    entries = {*names, *(route for route, _ in routed)}
    everything = {*names}.issuperset((*config.topics, *config.routes))
    chosen = [
        check
        for check in definitions.asset_checks or ()
        if everything or all(key.asset_key.path[0] in entries for key in check.check_keys)
    ]
    job = dg.define_asset_job("check", dg.AssetSelection.checks(*chosen))
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        for route in config.routes.values():
            definition = partitions(route)
            assert definition and definition.name
            instance.add_dynamic_partitions(definition.name, [name for of, name in routed if of == route.name])
        run = (
            dg.Definitions.merge(definitions, dg.Definitions(jobs=[job]))
            .resolve_job_def("check")
            .execute_in_process(instance=instance, raise_on_error=False, run_config=quiet, tags={ONLY: ",".join(names)})
        )
    reported = {evaluation.asset_check_key: evaluation for evaluation in run.get_asset_check_evaluations()}
    failures = {event.step_key: event.step_failure_data for event in run.filter_events(lambda e: e.is_step_failure)}
    # Dagster handles Ctrl-C itself, as a failure of the step.
    if any(
        one.error and one.error.cls_name == dg.DagsterExecutionInterruptedError.__name__ for one in failures.values()
    ):
        raise KeyboardInterrupt
    for check in chosen:
        for key in check.check_keys:
            if key.name == STREAMING:
                # Streams report to another Dagster instance, which lakehouse/cli/status.py reads.
                continue
            asset = key.asset_key.to_user_string()
            if key not in reported:
                yield Outcome(asset, key.name, "error", _reason(failures.get(check.op.name), key.name))
                continue
            evaluation = reported[key]
            warns = evaluation.severity == dg.AssetCheckSeverity.WARN
            verdict: Verdict = "passed" if evaluation.passed else "warned" if warns else "failed"
            yield Outcome(asset, key.name, verdict, plain(evaluation.description or ""))


def _reason(failure: Any, check: str) -> str:
    if failure is None:
        return "the check did not report a result"
    if raised := failure.user_failure_data:
        return str(raised.metadata[check].value if check in raised.metadata else raised.description)
    return failure.error.message.strip() if failure.error else "the check could not be run"


def run_declared_checks(config: Config, topics: Sequence[Topic], resources: Resources) -> Iterator[Outcome]:
    """Run the checks of lakehouse.yaml on all published rows of the topics' tables."""
    for topic in topics:
        checks = {name: check for name, check in topic.checks.items() if not isinstance(check, RowCount)}
        asset = f"{topic.name}/iceberg"
        try:
            catalog = catalog_of(topic, resources)
            if not checks:
                continue
            ref = table_of(config, topic, resources)
            chain = catalog.chain(ref)
            if not chain.existing:
                raise missing_table_error(ref, resources.catalog.address if topic.is_ingested else "of Tableflow")
            if (published := chain.published) is None:
                yield from (Outcome(asset, name, "passed", "the table has no published rows yet") for name in checks)
                continue
            # It loads Spark's client, which the other checks do not need.
            from lakehouse.pipeline.clients import engine_client
            from lakehouse.pipeline.commits import column_checks

            table, engine = published[1], engine_client(resources.spark).engine(catalog.spark_settings())
            with hide_values(topic):
                snapshot_id = table.metadata.current_snapshot_id
                assert snapshot_id is not None, "a published table has a snapshot"
                results = column_checks.run_checks(engine, catalog, topic, checks, table, snapshot_id, {})
        except Exception as error:
            why = logged_reason(f"The checks of {asset} could not be run", error)
            yield from (Outcome(asset, name, "error", why) for name in checks)
            continue
        yield from as_outcomes(asset, results)


def run_acceptance_checks(config: Config, topics: Sequence[Topic], resources: Resources) -> Iterator[Outcome]:
    """Compare the newest schema and the settings of topics with their tables, as the next batch does."""
    # They load pyiceberg and the formats, which the other checks do not need.
    from lakehouse.pipeline.bookmark_owners import own_bookmark
    from lakehouse.pipeline.schemas.decoding import resolve_schemas
    from lakehouse.pipeline.schemas.schema_decision import decide_schema

    for topic in (topic for topic in topics if topic.is_ingested):
        asset, check = f"{topic.name}/iceberg", "schema_and_settings"
        try:
            if topic.source.upstream:
                own_bookmark(config, topic, resources, topic.topic)
            _, table = resources.catalog.chain(topic.table_in(config.namespace)).newest
            if table is None:
                continue
            decision = decide_schema(topic, resolve_schemas(resources.schema_registry, topic), table)
        except (SchemaError, UnclearState) as error:
            yield Outcome(asset, check, "failed", str(error))
        except Exception as error:
            yield Outcome(asset, check, "error", logged_reason(f"The schema of {asset} could not be compared", error))
        else:
            verdicts: dict[str, Verdict] = {"accept": "passed", "refuse": "failed"}
            message = str(decision.error or "the next batch accepts the newest schema and the settings")
            edited = layout.changes(table, topic.partition_by, topic.sort_by)
            if decision.action == "accept" and edited:
                yield Outcome(asset, check, "warned", f"the next batch changes {' and '.join(edited)} for new files")
                continue
            yield Outcome(asset, check, verdicts.get(decision.action, "warned"), message)


def run_size_checks(config: Config, topics: Sequence[Topic], resources: Resources) -> Iterator[Outcome]:
    """Compare the size of each table's metadata file with the limit of its catalog."""
    # It loads pyiceberg, which the other checks do not need.
    from lakehouse.pipeline.maintenance import is_large, metadata_bytes
    from lakehouse.pipeline.metadata_limit import exceeds

    for topic in (topic for topic in topics if topic.is_ingested):
        asset, check, catalog = f"{topic.name}/iceberg", "metadata_size", resources.catalog
        try:
            with catalog.translate_errors():
                _, table = catalog.chain(topic.table_in(config.namespace)).newest
                if table is None:
                    continue
                size, limit = metadata_bytes(table), catalog.metadata_limit
        except Exception as error:
            yield Outcome(asset, check, "error", logged_reason(f"The metadata of {asset} could not be measured", error))
            continue
        message = f"the metadata file has {size / 1e6:.1f} MB"
        if limit and exceeds(size, limit):
            message += f", and the catalog refuses more than {limit / 1e6:.0f} MB, so no batch begins"
            yield Outcome(asset, check, "failed", message)
        elif is_large(size):
            message += f". Run `lakehouse maintain {topic.name}`, or lower `retention.snapshots`"
            yield Outcome(asset, check, "warned", message)
        else:
            yield Outcome(asset, check, "passed", message)


def as_outcomes(asset: str, results: Sequence[CheckResult]) -> Iterator[Outcome]:
    """Yield the results of an audit as outcomes."""
    for result in results:
        verdict: Verdict = "passed" if result.passed else "failed" if result.blocks else "warned"
        yield Outcome(asset, result.check, verdict, result.message)


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """Return 0 if no check failed, 1 if a check failed, 2 if none failed but a check could not be run."""
    verdicts = {outcome.verdict for outcome in outcomes}
    return 1 if "failed" in verdicts else 2 if "error" in verdicts else 0


def as_json(outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes as JSON."""
    return json.dumps({"exit_code": exit_code(outcomes), "checks": [asdict(outcome) for outcome in outcomes]}, indent=2)


def as_junit(outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes as JUnit XML for build servers, in pytest's dialect `xunit2`."""
    count = {verdict: str(sum(o.verdict == verdict for o in outcomes)) for verdict in ("failed", "error")}
    numbers = {"tests": str(len(outcomes)), "failures": count["failed"], "errors": count["error"]}
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "lakehouse check", **numbers})
    for outcome in outcomes:
        case = ElementTree.SubElement(suite, "testcase", classname=outcome.asset, name=outcome.check)
        kind = {"failed": "failure", "error": "error"}.get(outcome.verdict)
        if kind:
            ElementTree.SubElement(case, kind, message=visible(outcome.message))
        else:
            ElementTree.SubElement(case, "system-out").text = f"{outcome.verdict}: {visible(outcome.message)}"
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True)
