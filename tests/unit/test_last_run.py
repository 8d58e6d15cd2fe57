"""Failures of a table's last run in `lakehouse status`."""

import dagster as dg

from assets.failures import dagster_failures
from lakehouse.cli.last_run import failure, failures
from lakehouse.core.errors import BadRecords

BAD_RECORDS = BadRecords("payments", 1, [(2, 378, "The value is not in the Confluent wire format")])


class Outcome:
    """The error that the next run of the asset raises."""

    error: Exception | None = None


@dg.asset(key=["iceberg", "payments"])
def payments():
    if Outcome.error:
        with dagster_failures():
            raise Outcome.error


@dg.asset(key=["iceberg", "users"])
def users(): ...


def run(instance, error=None):
    Outcome.error = error
    dg.materialize([payments, users], instance=instance, raise_on_error=False)


def test_failure_of_last_run_is_shown_until_success(monkeypatch):
    with dg.instance_for_test() as instance:
        assert failure(instance, "payments") == ""
        run(instance, BAD_RECORDS)
        assert failure(instance, "payments") == str(BAD_RECORDS)
        assert failure(instance, "users") == ""
        run(instance, RuntimeError("rows that nobody should see"))
        assert failure(instance, "payments").startswith("an error, see run")
        run(instance)
        assert failure(instance, "payments") == ""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    assert failures(["payments"]) == {}


def test_run_that_ends_without_a_result_of_the_table_is_shown():
    """The process of a run that is killed reports no failure of a step."""
    with dg.instance_for_test() as instance:
        job = dg.Definitions(assets=[payments, users]).resolve_implicit_global_asset_job_def()
        killed = instance.create_run_for_job(job, asset_selection=frozenset({payments.key}))
        instance.report_run_failed(killed, "its process has ended")
        assert failure(instance, "payments").endswith(f"see run {killed.run_id}")
        assert failure(instance, "users") == ""


def test_failure_of_another_table_in_the_same_run_is_not_shown():
    with dg.instance_for_test() as instance:
        run(instance, BAD_RECORDS)
        assert failure(instance, "users") == ""
