"""`lakehouse doctor --env` compares Dagster's instance with the settings that runs need."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner

from assets.instance_diagnosis import SUBJECT, examine_instance, pools_of
from assets.streaming.job import JOB
from lakehouse.cli.main import main
from lakehouse.config import loader
from lakehouse.definitions import definitions_of
from lakehouse.local.dagster import dagster_servers
from tests.support.declared import declare

SETTINGS = Path(dagster_servers.__file__).with_name("dagster.yaml")
POOLS = {"iceberg_orders", "glue_orders", "kafka_orders"}


@pytest.fixture
def open_instance(tmp_path):
    """A function that opens an instance with the settings of the embedded stack and these instead."""

    def open_instance(**settings):
        declared = yaml.safe_load(SETTINGS.read_text()) | settings
        (tmp_path / "dagster.yaml").write_text(yaml.safe_dump({k: v for k, v in declared.items() if v is not None}))
        return dg.DagsterInstance.from_config(str(tmp_path))

    return open_instance


def differences(instance):
    """Return the observations about the instance that have a remedy."""
    diagnostics = [*examine_instance(instance, POOLS)]
    assert {diagnostic.subject for diagnostic in diagnostics} == {SUBJECT}
    assert all(diagnostic.remedy for diagnostic in diagnostics if not diagnostic.ok)
    return [diagnostic.observation for diagnostic in diagnostics if not diagnostic.ok]


def test_examine_embedded_settings_finds_no_difference(open_instance):
    with open_instance() as instance:
        assert differences(instance) == []


def test_examine_default_settings_names_each_difference(open_instance):
    settings = dict.fromkeys(("concurrency", "run_monitoring", "run_retries"))
    with open_instance(**settings) as instance:
        keys = [text.partition(": ")[0] for text in differences(instance)]
    assert keys == [
        "concurrency.pools.default_limit is not set",
        "concurrency.pools.granularity is not set",
        "run_monitoring.enabled is false",
        "run_monitoring.max_runtime_seconds is 0",
        "run_monitoring.free_slots_after_run_end_seconds is not set",
        "run_retries.enabled is false",
        "run_retries.max_retries is 0",
        "run_retries.retry_on_asset_or_op_failure is true",
    ]


@pytest.mark.parametrize(
    ("section", "settings", "difference"),
    [
        ("concurrency", {"pools": {"granularity": "run", "default_limit": 1}}, "pools.granularity is run"),
        ("concurrency", {"pools": {"granularity": "op", "default_limit": 2}}, "pools.default_limit is 2"),
        ("run_monitoring", {"start_timeout_seconds": 0}, "start_timeout_seconds is 0"),
        ("run_monitoring", {"cancel_timeout_seconds": 0}, "cancel_timeout_seconds is 0"),
        ("run_monitoring", {"free_slots_after_run_end_seconds": 0}, "free_slots_after_run_end_seconds is 0"),
        ("run_retries", {"max_retries": 0}, "max_retries is 0"),
    ],
)
def test_examine_changed_setting_names_it(open_instance, section, settings, difference):
    declared = yaml.safe_load(SETTINGS.read_text())[section]
    with open_instance(**{section: declared | settings}) as instance:
        [observation] = differences(instance)
    assert observation.startswith(f"{section}.{difference}: ")


def test_examine_pool_limit_of_the_ui_names_the_pool(open_instance):
    with open_instance() as instance:
        for pool, limit in {"iceberg_orders": 2, "glue_orders": 0, "kafka_orders": 1, "of_others": 5}.items():
            instance.event_log_storage.set_concurrency_slots(pool, limit)
        assert sorted(differences(instance)) == [
            "pool glue_orders has 0 slots: no step of it starts",
            "pool iceberg_orders has 2 slots: runs of its table would compete",
        ]


def test_examine_stream_run_without_watched_worker_names_the_run(open_instance):
    @dg.job(name=JOB)
    def stream():
        """Do nothing; only the record of its run matters."""

    with open_instance(run_launcher=None) as instance:
        assert differences(instance) == []
        run = instance.create_run_for_job(stream, status=dg.DagsterRunStatus.STARTED)
        [observation] = differences(instance)
    assert "DefaultRunLauncher" in observation and run.run_id in observation


def test_pools_of_definitions_has_each_table_and_reader(monkeypatch, tmp_path):
    declare(monkeypatch, tmp_path, namespace="shop", topics={"orders": {}})
    pools = pools_of(definitions_of(loader.load()))
    assert {"iceberg_orders", "ledger_orders", "glue_orders", "snowflake_orders"} <= pools


@pytest.fixture
def doctor(monkeypatch, tmp_path):
    """A function that runs `lakehouse doctor` in an environment without servers, and returns what concerns Dagster."""
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr("resources.kafka.kafka.TIMEOUT_SECONDS", 1)
    declare(monkeypatch, tmp_path, namespace="shop", topics={"orders": {}})
    home = tmp_path / "dagster"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))

    def doctor(settings: str | None):
        if settings is None:
            monkeypatch.delenv("DAGSTER_HOME")
        else:
            (home / "dagster.yaml").write_text(settings)
        result = CliRunner().invoke(main, ["doctor", "--env", "here", "--json"])
        return [entry for entry in json.loads(result.stdout) if entry["subject"] == SUBJECT]

    return doctor


def test_doctor_reports_difference_of_the_instance(doctor):
    reports = doctor(SETTINGS.read_text().replace("granularity: op", "granularity: run"))
    assert [(report["ok"], report["observation"].partition(" is ")[0]) for report in reports] == [
        (False, "concurrency.pools.granularity")
    ]


def test_doctor_without_dagster_home_reports_that_nothing_was_compared(doctor):
    [report] = doctor(None)
    assert report["ok"] and report["observation"].startswith("not compared: DAGSTER_HOME")


def test_doctor_with_unreachable_database_reports_the_failure(doctor, monkeypatch):
    database = {"hostname": "127.0.0.1", "port": 1, "username": "me", "password": "canary-4711", "db_name": "dagster"}
    storage = {"postgres": {"postgres_db": {"scheme": "postgresql+psycopg2", **database}}}
    [report] = doctor(yaml.safe_dump({"storage": storage}))
    assert not report["ok"] and report["remedy"] and "canary" not in json.dumps(report)
