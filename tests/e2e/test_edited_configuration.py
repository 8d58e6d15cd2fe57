"""A lakehouse.yaml that is saved half-edited under a running Dagster: the runs of its topics continue."""

import os
from pathlib import Path

import dagster as dg

from lakehouse.core import polling
from lakehouse.local.dagster import dagster_servers
from tests.support.processes.dagster_stack import dagster_of
from tests.support.topics import Stream

SECONDS = 300


def test_first_run_succeeds_while_the_configuration_is_edited(stack, resources, tmp_path):
    stream = Stream(resources)
    with dagster_of(stream, stack, tmp_path):
        file = Path(os.environ["LAKEHOUSE_CONFIG"])
        file.write_text(f"{file.read_text()}\nroutes: {{half: {{pattern: ")
        stream.produce_trades(range(10))

        def is_ingested():
            return stream.table() is not None and len(stream.rows()) == len(stream.expected_rows())

        assert polling.poll(is_ingested, pause=0.5, deadline_seconds=SECONDS)
        with dg.DagsterInstance.from_config(str(dagster_servers.home_folder(stack))) as instance:

            def has_no_empty_page():
                return all(
                    instance.get_latest_materialization_event(dg.AssetKey([stream.name, system]))
                    for system in ("kafka", "iceberg", "glue", "snowflake", "ledger", "maintenance")
                )

            assert polling.poll(has_no_empty_page, pause=0.5, deadline_seconds=SECONDS)
            times = {
                system: instance.get_latest_materialization_event(dg.AssetKey([stream.name, system])).timestamp
                for system in ("snowflake", "ledger", "maintenance")
            }
            assert times["snowflake"] < min(times["ledger"], times["maintenance"])
            # Other tests have runs in the same instance.
            runs = [run for run in instance.get_runs() if dg.AssetKey([stream.name, "iceberg"]) in selected(run)]
        assert runs and all(run.status != dg.DagsterRunStatus.FAILURE for run in runs)


def selected(run):
    return run.asset_selection or ()
