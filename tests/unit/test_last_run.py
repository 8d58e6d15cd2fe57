"""What `lakehouse status` says of a table whose last run failed."""

import dagster as dg

from assets.failures import explained
from lakehouse.cli.last_run import failure, failures
from lakehouse.core.errors import BadRecords

GARBAGE = BadRecords("payments", 1, [(2, 378, "The value is not in the Confluent wire format")])


class Ends:
    """How the next run ends."""

    error: Exception | None = None


@dg.asset(key=["iceberg", "payments"])
def payments():
    if Ends.error:
        with explained():
            raise Ends.error


@dg.asset(key=["iceberg", "users"])
def users(): ...


def run(instance, error=None):
    Ends.error = error
    dg.materialize([payments, users], instance=instance, raise_on_error=False)


def test_the_reason_is_told_until_a_run_succeeds_and_of_no_other_table(monkeypatch):
    with dg.instance_for_test() as instance:
        assert failure(instance, "payments") == ""
        run(instance, GARBAGE)
        assert failure(instance, "payments") == str(GARBAGE)
        assert failure(instance, "users") == ""
        run(instance, RuntimeError("rows that nobody should see"))
        assert failure(instance, "payments").startswith("an error, see run")
        run(instance)
        assert failure(instance, "payments") == ""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    assert failures(["payments"]) == {}
