"""The check `streaming`: permanent failures at once, transient ones after a minute, and recoveries."""

import dagster as dg
import pytest

from assets.streaming.check import CHECK, PASSED, Verdicts, failure, streaming_check
from assets.topics.topic_chain import topic_definitions
from lakehouse.cli.status import failing_checks
from lakehouse.config.model import Config, Route, Topic
from lakehouse.core.errors import BadRecords, UnclearState, Unreachable
from lakehouse.core.text import plain
from tests.support.declared import EMBEDDED_READERS

TABLE = ("trades", "iceberg")
BAD = BadRecords("trades", 1, [(0, 7, "no such schema")])
SILENT = Unreachable("Kafka", "b-1:9092", "the broker")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def reports():
    return []


@pytest.fixture
def verdicts(reports, clock):
    return Verdicts(
        lambda evaluation: reports.append(
            (evaluation.asset_key.to_user_string(), evaluation.passed, plain(evaluation.description))
        ),
        clock,
    )


def test_failed_permanent_error_is_reported_once_and_recovery(verdicts, reports, clock):
    for _ in range(3):
        verdicts.failed(TABLE, "", BAD)
        clock.now += 10
    assert reports == [("trades/iceberg", False, str(BAD))]
    verdicts.passed(TABLE, "")
    verdicts.passed(TABLE, "")
    assert reports[1:] == [("trades/iceberg", True, PASSED)]


def test_failed_transient_error_is_reported_after_a_minute(verdicts, reports, clock):
    verdicts.passed(TABLE, "")
    for _ in range(5):
        verdicts.failed(TABLE, "", SILENT)
        clock.now += 11
    verdicts.passed(TABLE, "")
    assert reports == [("trades/iceberg", True, PASSED)]

    for _ in range(7):
        verdicts.failed(TABLE, "", SILENT)
        clock.now += 11
    assert reports[1:] == [("trades/iceberg", False, str(SILENT))]


def test_failed_unexpected_error_is_reported_by_type(verdicts, reports, clock):
    verdicts.failed(TABLE, "", ValueError("row: alice@example.com"))
    assert reports == []
    clock.now += 61
    verdicts.failed(TABLE, "", ValueError("row: alice@example.com"))
    assert reports == [("trades/iceberg", False, "ValueError (unexpected: see the log)")]


def test_passed_first_success_is_reported(verdicts, reports):
    verdicts.passed(TABLE, "")
    verdicts.passed(TABLE, "")
    assert reports == [("trades/iceberg", True, PASSED)]


def test_failed_lasting_failure_is_reported_again(verdicts, reports, clock):
    for _ in range(4):
        verdicts.failed(TABLE, "", BAD)
        clock.now += 300
    assert [passed for _, passed, _ in reports] == [False, False]


def test_route_names_each_failing_topic_until_all_recover(verdicts, reports):
    shop = ("shop", "iceberg")
    verdicts.failed(shop, "carts", BAD)
    verdicts.failed(shop, "orders", UnclearState("Topic 'orders' was recreated"))
    verdicts.passed(shop, "users")
    assert [description for _, _, description in reports] == [
        f"carts: {BAD}",
        f"carts: {BAD}; orders: Topic 'orders' was recreated",
    ]
    verdicts.passed(shop, "carts")
    assert reports[2:] == [("shop/iceberg", False, "orders: Topic 'orders' was recreated")]
    verdicts.passed(shop, "orders")
    assert reports[3:] == [("shop/iceberg", True, PASSED)]


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def instance(home):
    with dg.DagsterInstance.get() as instance:
        yield instance


@pytest.fixture
def config():
    topic = Topic.model_validate({"name": "trades", "key": "id", "continuous": True})
    return Config(namespace="shop", topics={"trades": topic}, environments=EMBEDDED_READERS)


def test_failures_last_until_stream_or_run_succeeds(instance, config):
    @dg.asset(key=list(TABLE))
    def table(): ...

    verdicts = Verdicts(instance.report_runless_asset_event)
    assert failing_checks(config, ["trades"]) == {}
    verdicts.failed(TABLE, "", BAD)
    assert failing_checks(config, ["trades"]) == {("trades/iceberg", CHECK): str(BAD)}
    # A late report of what the stream materialized earlier is no recovery.
    instance.report_runless_asset_event(dg.AssetMaterialization(list(TABLE)))
    assert failure(instance, TABLE) == str(BAD)
    verdicts.passed(TABLE, "")
    assert failing_checks(config, ["trades"]) == {}

    verdicts.failed(TABLE, "", BAD)
    assert failure(instance, TABLE) == str(BAD)
    dg.materialize([table], instance=instance)
    assert failing_checks(config, ["trades"]) == {}


def test_failures_of_routed_topic_are_those_that_may_be_its_own(instance):
    shop, matched = ("shop", "iceberg"), {("shop/iceberg", CHECK)}
    route = Route.model_validate({"name": "shop", "pattern": r"shop\..*", "continuous": True})
    config = Config(namespace="shop", topics={}, routes={"shop": route}, environments=EMBEDDED_READERS)
    verdicts = Verdicts(instance.report_runless_asset_event)
    verdicts.failed(shop, "shop.a", BAD)
    verdicts.failed(shop, "shop.c, merging small files", BAD)
    verdicts.failed(shop, "shop.long", BAD)
    for name in ("shop", "shop.a", "shop.c", "shop.long"):
        assert {*failing_checks(config, [name])} == matched
    assert (
        failing_checks(config, ["shop.b"])
        == failing_checks(config, ["shop.lo"])
        == failing_checks(config, ["other"])
        == {}
    )
    for number in range(5):
        verdicts.failed(shop, f"shop.a{number}", BAD)
    # The verdict names five topics only.
    assert {*failing_checks(config, ["shop.b"])} == matched


def test_failures_include_audit_of_stream_but_not_of_run(instance, config):
    def audit(passed):
        return dg.AssetCheckEvaluation(dg.AssetKey(TABLE), "key_not_null", passed, description="2 rows without a key")

    instance.report_runless_asset_event(audit(False))
    assert failing_checks(config, ["trades"]) == {("trades/iceberg", "key_not_null"): "2 rows without a key"}
    instance.report_runless_asset_event(audit(True))
    assert failing_checks(config, ["trades"]) == {}

    @dg.asset(key=list(TABLE), check_specs=[dg.AssetCheckSpec("key_not_null", asset=list(TABLE))])
    def table():
        yield dg.AssetCheckResult(passed=False)
        raise dg.Failure("the audit failed", allow_retries=False)

    assert not dg.materialize([table], instance=instance, raise_on_error=False).success
    assert failing_checks(config, ["trades"]) == {}


def test_streaming_check_run_manually_repeats_reason(instance, config):
    definitions = topic_definitions(config, config.topics["trades"])
    kinds = {key for check in definitions.asset_checks for key in check.check_keys if key.name == CHECK}
    assert {key.asset_key.path[1] for key in kinds} == {"iceberg", "glue", "snowflake"}

    @dg.asset(key=list(TABLE))
    def table(): ...

    @dg.asset_check(asset=table.key, name=CHECK)
    def check(context: dg.AssetCheckExecutionContext):
        return streaming_check(config.topics["trades"], "iceberg").run(context)

    Verdicts(instance.report_runless_asset_event).failed(TABLE, "", BAD)
    job = dg.define_asset_job("only_the_check", dg.AssetSelection.checks(check))
    check_only = dg.Definitions([table], asset_checks=[check], jobs=[job]).resolve_job_def("only_the_check")
    [evaluation] = check_only.execute_in_process(instance=instance).get_asset_check_evaluations()
    assert (evaluation.passed, plain(evaluation.description)) == (False, str(BAD))
    both = dg.materialize([table, check], instance=instance)
    [evaluation] = both.get_asset_check_evaluations()
    assert (evaluation.passed, plain(evaluation.description)) == (True, PASSED)
