"""The stack in the UI: a run that a user starts in a browser writes a table, checks it and exposes it to a reader."""

import pytest

from tests.support.processes.dagster_stack import DAGSTER, dagster_of
from tests.support.processes.pages import CHECKS, keep, log_in, materialize, snowflake_rows, verdict
from tests.support.topics import Stream


@pytest.fixture
def stream(page, stack, resources, tmp_path):
    """Yield a topic with a blocking check, with its own Dagster on the shared stack."""
    stream = Stream(resources, partitions=1, settings={"checks": CHECKS})
    with dagster_of(stream, stack, tmp_path, DAGSTER):
        yield stream


def test_run_of_a_chain_in_ui_is_checked_and_in_snowflake(page, stream, token):
    log_in(page, token)
    stream.produce_trades(range(2))
    status = materialize(page, f"locations/lakehouse/asset-groups/{stream.topic.table}")
    keep(page, "run-of-a-chain")
    assert status == "Success"
    assert verdict(page, stream, "side_known") == "Passed"
    keep(page, "check-passed")
    assert snowflake_rows(stream) == [(2,)]
