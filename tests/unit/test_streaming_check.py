"""The check `streaming`: told at once where a person is needed, after a minute where not, and never red for good."""

import dagster as dg
import pytest

from assets.streaming.check import HOLDS, Verdicts, streaming_check
from assets.streaming.results import CHECK, failure, failures
from assets.topic import topic_definitions
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.errors import BadRecords, UnclearState, Unreachable
from lakehouse.core.markdown import plain

TABLE = ("iceberg", "trades")
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
def told():
    return []


@pytest.fixture
def verdicts(told, clock):
    return Verdicts(
        lambda one: told.append((one.asset_key.to_user_string(), one.passed, plain(one.description))), clock
    )


def test_what_needs_a_person_is_told_at_once_and_once_and_when_it_is_over(verdicts, told, clock):
    for _ in range(3):
        verdicts.failed(TABLE, "", BAD)
        clock.now += 10
    assert told == [("iceberg/trades", False, str(BAD))]
    verdicts.passed(TABLE, "")
    verdicts.passed(TABLE, "")
    assert told[1:] == [("iceberg/trades", True, HOLDS)]


def test_what_heals_by_itself_within_a_minute_is_not_told(verdicts, told, clock):
    verdicts.passed(TABLE, "")
    for _ in range(5):
        verdicts.failed(TABLE, "", SILENT)
        clock.now += 11
    verdicts.passed(TABLE, "")
    assert told == [("iceberg/trades", True, HOLDS)]

    for _ in range(7):
        verdicts.failed(TABLE, "", SILENT)
        clock.now += 11
    assert told[1:] == [("iceberg/trades", False, str(SILENT))]


def test_an_unforeseen_error_is_told_by_type_after_a_minute(verdicts, told, clock):
    verdicts.failed(TABLE, "", ValueError("row: alice@example.com"))
    assert told == []
    clock.now += 61
    verdicts.failed(TABLE, "", ValueError("row: alice@example.com"))
    assert told == [("iceberg/trades", False, "ValueError (unforeseen: see the log)")]


def test_the_first_success_is_told_for_a_stream_before_may_have_failed(verdicts, told):
    verdicts.passed(TABLE, "")
    verdicts.passed(TABLE, "")
    assert told == [("iceberg/trades", True, HOLDS)]


def test_a_failure_that_lasts_is_told_again_now_and_then(verdicts, told, clock):
    for _ in range(4):
        verdicts.failed(TABLE, "", BAD)
        clock.now += 300
    assert [passed for _, passed, _ in told] == [False, False]


def test_of_a_route_each_failing_topic_is_named_and_all_have_to_heal(verdicts, told):
    shop = ("iceberg", "shop")
    verdicts.failed(shop, "carts", BAD)
    verdicts.failed(shop, "orders", UnclearState("Topic 'orders' was recreated"))
    verdicts.passed(shop, "users")
    assert [said for _, _, said in told] == [
        f"carts: {BAD}",
        f"carts: {BAD}; orders: Topic 'orders' was recreated",
    ]
    verdicts.passed(shop, "carts")
    assert told[2:] == [("iceberg/shop", False, "orders: Topic 'orders' was recreated")]
    verdicts.passed(shop, "orders")
    assert told[3:] == [("iceberg/shop", True, HOLDS)]


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
    return Config(namespace="shop", topics={"trades": topic}, environments={})


def test_what_a_stream_reported_is_known_to_pipelines_until_it_or_a_run_says_otherwise(instance, config):
    @dg.asset(key=list(TABLE))
    def table(): ...

    verdicts = Verdicts(instance.report_runless_asset_event)
    assert failures(config, ["trades"]) == {}
    verdicts.failed(TABLE, "", BAD)
    assert failures(config, ["trades"]) == {("iceberg/trades", CHECK): str(BAD)}
    # What the stream itself materialized before, and is told late, is no recovery.
    instance.report_runless_asset_event(dg.AssetMaterialization(list(TABLE)))
    assert failure(instance, TABLE) == str(BAD)
    verdicts.passed(TABLE, "")
    assert failures(config, ["trades"]) == {}

    verdicts.failed(TABLE, "", BAD)
    assert failure(instance, TABLE) == str(BAD)
    dg.materialize([table], instance=instance)
    assert failures(config, ["trades"]) == {}


def test_an_audit_that_fails_in_a_stream_is_known_to_pipelines_and_one_of_a_run_is_the_runs_to_tell(instance, config):
    def audited(passed):
        return dg.AssetCheckEvaluation(dg.AssetKey(TABLE), "key_not_null", passed, description="2 rows without a key")

    instance.report_runless_asset_event(audited(False))
    assert failures(config, ["trades"]) == {("iceberg/trades", "key_not_null"): "2 rows without a key"}
    instance.report_runless_asset_event(audited(True))
    assert failures(config, ["trades"]) == {}

    @dg.asset(key=list(TABLE), check_specs=[dg.AssetCheckSpec("key_not_null", asset=list(TABLE))])
    def table():
        yield dg.AssetCheckResult(passed=False)
        raise dg.Failure("the audit failed", allow_retries=False)

    assert not dg.materialize([table], instance=instance, raise_on_error=False).success
    assert failures(config, ["trades"]) == {}


def test_run_by_a_person_the_check_repeats_the_reason_and_a_run_of_the_table_ends_it(instance, config):
    definitions = topic_definitions(config, config.topics["trades"])
    kinds = {key for check in definitions.asset_checks for key in check.check_keys if key.name == CHECK}
    assert {key.asset_key.path[0] for key in kinds} == {"iceberg", "glue", "snowflake"}

    @dg.asset(key=list(TABLE))
    def table(): ...

    @dg.asset_check(asset=table.key, name=CHECK)
    def check(context: dg.AssetCheckExecutionContext):
        return streaming_check(config.topics["trades"], "iceberg").run(context)

    Verdicts(instance.report_runless_asset_event).failed(TABLE, "", BAD)
    job = dg.define_asset_job("only_the_check", dg.AssetSelection.checks(check))
    only = dg.Definitions([table], asset_checks=[check], jobs=[job]).resolve_job_def("only_the_check")
    [found] = only.execute_in_process(instance=instance).get_asset_check_evaluations()
    assert (found.passed, plain(found.description)) == (False, str(BAD))
    both = dg.materialize([table, check], instance=instance)
    [found] = both.get_asset_check_evaluations()
    assert (found.passed, plain(found.description)) == (True, HOLDS)
