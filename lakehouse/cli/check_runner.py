"""`lakehouse check`: every check of an environment without the UI, with a verdict that a pipeline understands."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal
from xml.etree import ElementTree

from assets.entry import partitions
from assets.streaming.results import CHECK as STREAMING
from lakehouse.config.checks import RowCount
from lakehouse.config.loader import Config
from lakehouse.config.sensitive import unquoted
from lakehouse.config.topic import Topic
from lakehouse.core.errors import reason, trace
from lakehouse.core.markdown import plain
from lakehouse.core.terminal import visible
from lakehouse.pipeline import quality
from lakehouse.pipeline.audit import Finding

_LOG = logging.getLogger(__name__)

Verdict = Literal["passed", "warned", "failed", "not run"]


@dataclass(frozen=True)
class Outcome:
    """One check of one asset, such as `iceberg/users`: a check that warns does not fail, one that is silent does."""

    asset: str
    check: str
    verdict: Verdict
    said: str


def standing(config: Config, names: Collection[str], there: Collection[str]) -> Iterator[Outcome]:
    """The checks of Dagster's assets that need no run of the asset, as the UI would run them.

    Parameters: `names` are entries of lakehouse.yaml; `there` are the topics in Kafka, of which routes have some.
    """
    import dagster as dg

    from lakehouse.definitions import defs

    loaded = defs()
    chosen = [
        check for check in loaded.asset_checks or () if all(k.asset_key.path[1] in names for k in check.check_keys)
    ]
    job = dg.define_asset_job("check", dg.AssetSelection.checks(*chosen))
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        for route in config.routes.values():
            known = partitions(route)
            assert known and known.name
            found = [name for of, name, topic in config.matched(there) if of is route and isinstance(topic, Topic)]
            instance.add_dynamic_partitions(known.name, found)
        done = (
            dg.Definitions.merge(loaded, dg.Definitions(jobs=[job]))
            .resolve_job_def("check")
            .execute_in_process(instance=instance, raise_on_error=False, run_config=quiet)
        )
    reported = {evaluation.asset_check_key: evaluation for evaluation in done.get_asset_check_evaluations()}
    failures = {event.step_key: event.step_failure_data for event in done.filter_events(lambda e: e.is_step_failure)}
    for check in chosen:
        for key in check.check_keys:
            if key.name == STREAMING:
                # The instance of this run knows of no stream: assets/streaming/results.py asks the one that does.
                continue
            asset = key.asset_key.to_user_string()
            if key not in reported:
                yield Outcome(asset, key.name, "not run", _reason(failures.get(check.op.name)))
                continue
            evaluation = reported[key]
            warns = evaluation.severity == dg.AssetCheckSeverity.WARN
            verdict: Verdict = "passed" if evaluation.passed else "warned" if warns else "failed"
            yield Outcome(asset, key.name, verdict, plain(evaluation.description or ""))


def _reason(failure: Any) -> str:
    if failure is None:
        return "it did not report"
    if failure.user_failure_data and failure.user_failure_data.description:
        return failure.user_failure_data.description
    return failure.error.message.strip() if failure.error else "it failed"


def declared(config: Config, topics: Sequence[Topic], systems: Any) -> Iterator[Outcome]:
    """The checks of lakehouse.yaml on every published row."""
    for topic in topics:
        checks = {name: check for name, check in topic.checks.items() if not isinstance(check, RowCount)}
        asset = f"iceberg/{topic.name}"
        try:
            current, table = systems.catalog.resolve_table(config.namespace, topic)
            snapshot = table.current_snapshot() if table else None
            if not checks or snapshot is None:
                continue
            spark = systems.spark.session(systems.catalog.spark_settings())
            with unquoted(topic):
                found = quality.findings(
                    spark, systems.catalog, config.namespace, current, checks, table, snapshot.snapshot_id, {}
                )
        except Exception as error:
            if where := trace(error):
                _LOG.error("The checks of %s could not be run. %s", asset, where)
            yield from (Outcome(asset, name, "not run", reason(error)) for name in checks)
            continue
        yield from of_findings(asset, found)


def of_findings(asset: str, findings: Sequence[Finding]) -> Iterator[Outcome]:
    """What an audit found, as outcomes."""
    for finding in findings:
        verdict: Verdict = "passed" if finding.passed else "failed" if finding.blocks else "warned"
        yield Outcome(asset, finding.check, verdict, finding.said)


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """0: nothing failed. 1: something did. 2: nothing did, but not every check could be run."""
    verdicts = {outcome.verdict for outcome in outcomes}
    return 1 if "failed" in verdicts else 2 if "not run" in verdicts else 0


def as_json(outcomes: Sequence[Outcome]) -> str:
    """The outcomes for programs."""
    return json.dumps({"exit_code": exit_code(outcomes), "checks": [asdict(outcome) for outcome in outcomes]}, indent=2)


def as_junit(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as build servers read them (JUnit XML, as pytest writes it: `xunit2`)."""
    count = {verdict: str(sum(o.verdict == verdict for o in outcomes)) for verdict in ("failed", "not run")}
    numbers = {"tests": str(len(outcomes)), "failures": count["failed"], "errors": count["not run"]}
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "lakehouse check", **numbers})
    for outcome in outcomes:
        case = ElementTree.SubElement(suite, "testcase", classname=outcome.asset, name=outcome.check)
        kind = {"failed": "failure", "not run": "error"}.get(outcome.verdict)
        if kind:
            ElementTree.SubElement(case, kind, message=visible(outcome.said))
        else:
            ElementTree.SubElement(case, "system-out").text = f"{outcome.verdict}: {visible(outcome.said)}"
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True)
