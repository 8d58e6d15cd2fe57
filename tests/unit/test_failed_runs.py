"""Failures of a table's last run in `lakehouse status`."""

import dagster as dg

from assets.entry import partitions
from assets.factories import dagster_failures
from lakehouse.cli.status import failed_runs
from lakehouse.config.model import Config, Route, Topic
from lakehouse.core.errors import BadRecords

ROUTE = Route.model_validate({"name": "shop", "pattern": r"shop\..*"})
CONFIG = Config(
    namespace="n",
    topics={name: Topic(name=name) for name in ("payments", "users")},
    routes={"shop": ROUTE},
    environments={},
)
BAD_RECORDS = BadRecords("payments", 1, [(2, 378, "The value is not in the Confluent wire format")])


class Outcome:
    """The error that the next run of the asset raises."""

    error: Exception | None = None


@dg.asset(key=["payments", "iceberg"])
def payments():
    if Outcome.error:
        with dagster_failures():
            raise Outcome.error


@dg.asset(key=["users", "iceberg"])
def users(): ...


@dg.asset(key=["shop", "iceberg"], partitions_def=partitions(ROUTE))
def shop():
    if Outcome.error:
        with dagster_failures():
            raise Outcome.error


def run_routed(instance, topic, error=None):
    Outcome.error = error
    instance.add_dynamic_partitions("topics_shop", [topic])
    dg.materialize([shop], instance=instance, partition_key=topic, raise_on_error=False)


def failure(topic):
    return failed_runs(CONFIG, [topic]).get(topic, "")


def run(instance, error=None):
    Outcome.error = error
    dg.materialize([payments, users], instance=instance, raise_on_error=False)


def test_failure_of_last_run_is_shown_until_success(monkeypatch):
    with dg.instance_for_test() as instance:
        assert failure("payments") == ""
        run(instance, BAD_RECORDS)
        assert failure("payments") == str(BAD_RECORDS)
        assert failure("users") == ""
        run(instance, RuntimeError("rows that nobody should see"))
        assert failure("payments").startswith("an error, see run")
        run(instance)
        assert failure("payments") == ""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    assert failed_runs(CONFIG, ["payments"]) == {}


def test_run_that_ends_without_a_result_of_the_table_is_shown():
    """The process of a run that is killed reports no failure of a step."""
    with dg.instance_for_test() as instance:
        job = dg.Definitions(assets=[payments, users]).resolve_implicit_global_asset_job_def()
        killed = instance.create_run_for_job(job, asset_selection=frozenset({payments.key}))
        instance.report_run_failed(killed, "its process has ended")
        assert failure("payments").endswith(f"see run {killed.run_id}")
        assert failure("users") == ""


def test_failure_of_another_table_in_the_same_run_is_not_shown():
    with dg.instance_for_test() as instance:
        run(instance, BAD_RECORDS)
        assert failure("users") == ""


def test_failures_of_routed_topics_are_shown_until_their_success():
    """The last run of a route's asset is that of one of its topics only."""
    with dg.instance_for_test() as instance:
        for topic in ("shop.a", "shop.b", "shop.c"):
            run_routed(instance, topic, BAD_RECORDS)
        run_routed(instance, "shop.c")
        names = ["payments", "shop.a", "shop.b", "shop.c", "shop.never_ingested"]
        assert failed_runs(CONFIG, names) == {"shop.a": str(BAD_RECORDS), "shop.b": str(BAD_RECORDS)}
        assert failed_runs(CONFIG, ["shop.b"]) == {"shop.b": str(BAD_RECORDS)}
        run_routed(instance, "shop.b")
        assert failed_runs(CONFIG, names) == {"shop.a": str(BAD_RECORDS)}
