"""The tier of each test file.

`make test` runs the first tier: each feature once, through a public interface. `make test-rest` runs `REST`, `make
long` runs `NIGHT`, and `make chaos` runs `CHAOS`. A file that no list names, such as a new one, is in the first tier,
which has at most `MOST` seconds, and `REST` has at most `MOST_OF_REST`: who adds a slow file moves another one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent
DURATIONS = FOLDER / "durations.json"
"""Seconds of each test file, with its fixtures, on a machine of two cores; `make durations` renews it."""

MOST = 1050
"""Seconds of the first tier on one core of the machine that durations.json was measured on.

With 983 s, `make test` took 8 min 52 s on its two cores without other load; it should take at most 12 minutes."""

MOST_OF_REST = 1800
"""Seconds of the tier `rest` on one core. With it, all commands for a change take less than an hour on two cores."""

STACK = (
    "tests/contract/",
    "tests/deploy/test_confluent_metadata.py",
    "tests/deploy/test_enforced_chain.py",
    "tests/deploy/test_rotation_",
    "tests/deploy/test_snowflake_",
    "tests/e2e/",
    "tests/faults/",
    "tests/integration/",
)
"""Tests that use the embedded stack, which needs 30 seconds and 3 GB in each process."""

APART = ("tests/fuzz/",)
"""Folders with a command of their own."""

CHAOS = ("tests/faults/test_chaos.py",)

REST = (
    # Interruptions at each change, lost and unknown responses, and external changes.
    "tests/deploy/test_aws_refusals.py",
    "tests/deploy/test_aws_steps.py",
    "tests/deploy/test_confluent_states.py",
    "tests/deploy/test_confluent_steps.py",
    "tests/deploy/test_confluent_flow.py",
    "tests/deploy/test_deploy.py",
    "tests/deploy/test_unknown_responses.py",
    "tests/faults/test_kafka_faults.py",
    "tests/faults/test_record_faults.py",
    "tests/faults/test_s3_and_registry.py",
    "tests/integration/test_exactly_once.py",
    "tests/integration/test_linked_database.py",
    "tests/integration/test_log_format.py",
    "tests/integration/test_rest_requests.py",
    "tests/integration/test_shared_cluster.py",
    "tests/integration/test_single_pass.py",
    # Stand-ins, the simulator and tools.
    "tests/contract/test_catalogs.py",
    "tests/contract/test_simulated_secrets.py",
    "tests/contract/test_simulated_systems.py",
    "tests/deploy/test_aws_proxy.py",
    "tests/deploy/test_confluent_contract.py",
    "tests/deploy/test_confluent_kinds.py",
    "tests/deploy/test_future_grants.py",
    "tests/deploy/test_iam.py",
    "tests/faults/test_oracle.py",
    "tests/integration/test_embedded_registry.py",
    "tests/integration/test_snowflake_access.py",
    "tests/unit/test_audit.py",
    "tests/unit/test_import_budgets.py",
    "tests/unit/test_java_archives.py",
    "tests/unit/test_lock.py",
    "tests/unit/test_security_rules.py",
    "tests/unit/test_snowflake_account.py",
    "tests/unit/test_snowflake_login.py",
    "tests/unit/test_snowflake_sessions.py",
    "tests/unit/test_snowflake_statements.py",
    "tests/unit/test_structure.py",
    "tests/unit/test_third_party_licences.py",
    "tests/unit/test_update_locks.py",
    # The documentation's commands, the stack's life cycle, and the UI in a browser.
    "tests/e2e/test_asset_metadata.py",
    "tests/e2e/test_browser.py",
    "tests/e2e/test_browser_requests.py",
    "tests/e2e/test_datagen_process.py",
    "tests/e2e/test_foreign_requests.py",
    "tests/e2e/test_gate.py",
    "tests/e2e/test_killed_runs.py",
    "tests/e2e/test_previous_version.py",
    "tests/e2e/test_processes.py",
    "tests/e2e/test_readme.py",
    "tests/e2e/test_stack.py",
    "tests/e2e/test_stream_job.py",
    "tests/e2e/test_topics_guide.py",
    # Further cases of features that the first tier has.
    "tests/integration/test_cluster.py",
    "tests/integration/test_dashboard.py",
    "tests/integration/test_engines.py",
    "tests/integration/test_executors_without_project.py",
    "tests/integration/test_kafka_logins.py",
    "tests/integration/test_ledger_views.py",
    "tests/integration/test_merge.py",
    "tests/integration/test_metrics.py",
    "tests/integration/test_mistaken_format.py",
    "tests/integration/test_published_tables.py",
    "tests/integration/test_query.py",
    "tests/integration/test_replay.py",
    "tests/integration/test_roll_over.py",
    "tests/integration/test_routed_topics.py",
    "tests/integration/test_stream.py",
    "tests/integration/test_stream_alerts.py",
    "tests/integration/test_tableflow_in_confluent_storage.py",
    "tests/integration/test_tableflow_table.py",
    "tests/integration/test_throughput.py",
    "tests/unit/test_daemon_alerts.py",
    "tests/unit/test_error_boundary.py",
    "tests/unit/test_msk_login.py",
    "tests/unit/test_stream_group.py",
)


NIGHT = (
    # Interruptions at each change, lost and unknown responses, and external changes.
    "tests/deploy/test_aws_repairs.py",
    "tests/deploy/test_aws_steps_killed.py",
    "tests/deploy/test_confluent_deletion.py",
    "tests/deploy/test_confluent_existing.py",
    "tests/deploy/test_confluent_keys.py",
    "tests/deploy/test_confluent_repairs.py",
    "tests/deploy/test_confluent_steps_killed.py",
    "tests/deploy/test_deploy_commands.py",
    "tests/deploy/test_enforced_chain.py",
    "tests/deploy/test_halted_resources.py",
    "tests/deploy/test_rotation_identities.py",
    "tests/deploy/test_rotation_of_snowflake_keys.py",
    "tests/deploy/test_snowflake_over_rest.py",
    "tests/deploy/test_snowflake_steps.py",
    "tests/deploy/test_snowflake_steps_interrupted.py",
    "tests/deploy/test_verify.py",
    "tests/e2e/test_edited_configuration.py",
    "tests/faults/test_dropped_branches.py",
    "tests/faults/test_full_disk.py",
    "tests/faults/test_glue_commits.py",
    "tests/faults/test_rest_commits.py",
    "tests/faults/test_table_changes.py",
    "tests/faults/test_unresponsive_systems.py",
    "tests/integration/test_broker_bytes.py",
    "tests/integration/test_change_events.py",
    "tests/integration/test_debezium_connector.py",
    "tests/integration/test_external_maintenance.py",
    "tests/integration/test_move_to_rest.py",
    "tests/integration/test_rest_signatures.py",
    "tests/integration/test_rest_vending.py",
    "tests/integration/test_stalled_spark.py",
    "tests/integration/test_two_writers.py",
    # Stand-ins, the simulator and tools.
    "tests/contract/test_engine_operations.py",
    "tests/contract/test_simulated_derivation.py",
    "tests/contract/test_simulated_engine.py",
    "tests/contract/test_simulated_kafka.py",
    "tests/contract/test_simulated_readers.py",
    "tests/simulation/test_simulator.py",
    # The documentation's guides.
    "tests/e2e/test_dagster_guide.py",
    "tests/e2e/test_network_access.py",
    "tests/e2e/test_plugins.py",
    "tests/e2e/test_readers.py",
    "tests/e2e/test_tutorial.py",
    # Further cases of features that the other tiers have.
    "tests/deploy/test_tableflow_in_snowflake.py",
    "tests/deploy/test_tableflow_modes.py",
    "tests/deploy/test_tableflow_storage.py",
    "tests/integration/test_bad_input.py",
    "tests/integration/test_commands_beside_stream.py",
    "tests/integration/test_conflicting_versions.py",
    "tests/integration/test_derived_from_tableflow.py",
    "tests/integration/test_edited_derivation.py",
    "tests/integration/test_edited_settings.py",
    "tests/integration/test_field_names.py",
    "tests/integration/test_foreign_schemas.py",
    "tests/integration/test_freshness_of_stages.py",
    "tests/integration/test_kafka_sasl.py",
    "tests/integration/test_ledger.py",
    "tests/integration/test_redriven_rows.py",
    "tests/integration/test_rest_catalog.py",
    "tests/integration/test_schema_id_headers.py",
    "tests/integration/test_sensitive_values.py",
    "tests/integration/test_serializers.py",
    "tests/integration/test_spark_session.py",
    "tests/integration/test_wide_schemas.py",
    "tests/unit/test_check_syntax.py",
    "tests/unit/test_dg_commands.py",
    "tests/unit/test_production_install.py",
    "tests/unit/test_production_instance.py",
    "tests/unit/test_progress.py",
)

TIERS = {"rest": REST, "night": NIGHT}
"""The tiers other than `first`, which has all files that no list names."""

SHARED = 0.12
"""Share of a tier's duration that no process has from the start: the one that ends first runs it, in `GROUPS`."""

GROUPS = 5


def files(tier: str) -> list[str]:
    """Return the files of the tier `first`, `rest` or `night`."""
    names = (path.relative_to(FOLDER.parent).as_posix() for path in FOLDER.rglob("test_*.py"))
    listed = {name: other for other, files in TIERS.items() for name in files}
    names = (name for name in names if not name.startswith(APART) and name not in CHAOS)
    return sorted(name for name in names if listed.get(name, "first") == tier)


def durations() -> dict[str, float]:
    """Return the seconds of each measured test file."""
    return json.loads(DURATIONS.read_text())


def share(names: Sequence[str]) -> tuple[list[list[str]], list[list[str]]]:
    """Divide files between two processes: those that each has from the start, and groups for the one that ends first.

    Both have half of the tests that use the stack, because a process with a stack runs a test for the price of the
    test. The second process runs them last: two stacks that start at the same time take twice as long, and the first
    one of a virtual environment records the classes of Spark, for which the other one would wait.
    """
    with_stack = [name for name in names if name.startswith(STACK)]
    without = [name for name in names if not name.startswith(STACK)]
    shared: list[str] = []
    while without and _seconds(shared) < SHARED * _seconds(names):
        shared.insert(0, without.pop())
    first, second = split(with_stack, 2), split(without, 2)
    return [first[0] + second[0], second[1] + first[1]], [group for group in split(shared, GROUPS) if group]


def split(names: Sequence[str], parts: int) -> list[list[str]]:
    """Divide files into consecutive parts of about equal durations."""
    divided: list[list[str]] = [[] for _ in range(parts)]
    total, before = _seconds(names), 0.0
    for name in names:
        seconds = _seconds([name])
        divided[min(int((before + seconds / 2) / total * parts), parts - 1)].append(name)
        before += seconds
    return divided


def _seconds(names: Sequence[str]) -> float:
    """Return the duration of files; one that was never measured has a second."""
    seconds = durations()
    return sum(seconds.get(name, 1) for name in names)
