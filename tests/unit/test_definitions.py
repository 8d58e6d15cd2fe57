"""The code location: completeness, fast loading without network, and errors of environments."""

import subprocess
import sys
from datetime import UTC, datetime

import dagster as dg
import pytest

from lakehouse.config import loader
from lakehouse.config.discovery import config_path
from lakehouse.config.model import Config, Route, Topic
from lakehouse.core.errors import ConfigError
from lakehouse.definitions import definitions_of, defs, shared_definitions
from resources.build import build_resources
from tools.repository import PROJECT


@pytest.fixture(scope="module")
def loaded():
    return defs()


def test_defs_declared_topic_has_assets_of_every_system(loaded):
    dg.Definitions.validate_loadable(loaded)
    topics = loader.load().topics
    keys = {key.to_user_string() for key in loaded.resolve_asset_graph().get_all_asset_keys()}
    systems = ("kafka", "iceberg", "glue", "snowflake", "ledger", "maintenance")
    assert keys == {f"{topic}/{system}" for topic in topics for system in systems}


def test_run_configuration_has_no_settings_of_systems(loaded):
    job = loaded.resolve_job_def("all_topics")
    elsewhere = {"resources": {"kafka": {"config": {"bootstrap_servers": "elsewhere:9092"}}}}
    with pytest.raises(
        dg.DagsterInvalidConfigError, match=r'Received unexpected config entry "bootstrap_servers" .* Expected: "{ }"'
    ):
        dg.validate_run_config(job, elsewhere)


def test_defs_ledger_and_maintenance_have_daily_schedules(loaded):
    def nodes(job):
        return {node.name for node in loaded.resolve_job_def(job).nodes}

    for job in ("ledger", "maintenance"):
        assert nodes(job) == {f"{topic}__{job}" for topic in loader.load().topics}
        assert not nodes("all_topics") & nodes(job)
    running = dg.DefaultScheduleStatus.RUNNING
    schedules = {(schedule.job_name, schedule.default_status) for schedule in loaded.schedules}
    assert schedules == {("ledger", running), ("maintenance", running), ("old_runs", running)}


def undescribed(definitions):
    """Return the sensors, schedules and jobs whose purpose the UI does not show."""
    repository = definitions.get_repository_def()
    parts = [*repository.sensor_defs, *repository.schedule_defs, *repository.get_all_jobs()]
    return {part.name for part in parts if not part.description} - {"__ASSET_JOB"}


def test_defs_sensors_schedules_and_jobs_have_descriptions(loaded):
    assert undescribed(loaded) == set()


def test_defs_outside_embedded_stack_keep_runs(loaded, monkeypatch):
    assert "disk_space" in {sensor.name for sensor in loaded.sensors}
    of_components = shared_definitions(loader.load())
    monkeypatch.setenv("LAKEHOUSE_ENV", "aws")
    for elsewhere in (of_components, defs()):
        assert "disk_space" not in {sensor.name for sensor in elsewhere.sensors}
        assert "old_runs" not in {schedule.job_name for schedule in elsewhere.schedules}


def test_defs_alert_sensors_run_by_default(loaded):
    sensors = {sensor.name: sensor.default_status for sensor in loaded.sensors}
    for name in ("freshness", "alert_failed_runs", "alert_failed_checks", "alert_failed_ticks", "heartbeat"):
        assert sensors[name] == dg.DefaultSensorStatus.RUNNING


def test_defs_topic_of_other_producer_is_external_asset(tmp_path, monkeypatch):
    text = config_path().read_text()
    for name in ("schemas", "lakehouse.yaml"):
        (tmp_path / name).symlink_to(PROJECT / name)
    (tmp_path / "with_theirs.yaml").write_text(text.replace("topics:", "topics:\n  theirs: {}", 1))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(tmp_path / "with_theirs.yaml"))

    loaded = defs()

    jobs = {job.name: job for job in loaded.get_repository_def().get_all_jobs()}
    steps = {node.name for node in jobs["all_topics"].nodes if "theirs" in node.name and "checks" not in node.name}
    assert steps == {"theirs__iceberg", "theirs__glue", "theirs__snowflake"}
    graph = loaded.resolve_asset_graph()
    assert graph.get(dg.AssetKey(["theirs", "kafka"])).is_external
    assert graph.get(dg.AssetKey(["theirs", "iceberg"])).parent_keys == {dg.AssetKey(["theirs", "kafka"])}


def test_defs_continuous_topic_is_left_to_running_stream(tmp_path, monkeypatch, loaded):
    text = config_path().read_text()
    for name in ("schemas", "lakehouse.yaml"):
        (tmp_path / name).symlink_to(PROJECT / name)
    (tmp_path / "with_stream.yaml").write_text(text.replace("topics:", "topics:\n  theirs: {continuous: true}", 1))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(tmp_path / "with_stream.yaml"))

    with_stream = defs()

    dg.Definitions.validate_loadable(with_stream)
    graph = with_stream.resolve_asset_graph()
    for stage in ("iceberg", "glue", "snowflake"):
        assert graph.get(dg.AssetKey(["theirs", stage])).automation_condition is None
        assert graph.get(dg.AssetKey(["users", stage])).automation_condition is not None
    streamed = {check.asset_key.to_user_string() for check in graph.asset_check_keys if check.name == "streaming"}
    assert streamed == {"theirs/iceberg", "theirs/glue", "theirs/snowflake", "stream/kafka_clients"}
    locations = {dg.DefaultSensorStatus.STOPPED: loaded, dg.DefaultSensorStatus.RUNNING: with_stream}
    for expected, location in locations.items():
        sensor = location.get_repository_def().get_sensor_def("stream_supervisor")
        assert (sensor.job_name, sensor.default_status) == ("stream", expected)


def test_stream_supervisor_starts_one_run_and_backs_off(loaded):
    supervisor = loaded.get_repository_def().get_sensor_def("stream_supervisor")
    with dg.instance_for_test() as instance, dg.build_sensor_context(instance=instance) as context:
        assert isinstance(supervisor(context), dg.RunRequest)
        run = instance.add_run(dg.DagsterRun("stream", status=dg.DagsterRunStatus.STARTED))
        assert run.run_id in supervisor(context).skip_message
        instance.report_run_failed(run)
        assert isinstance(supervisor(context), dg.RunRequest)
        # After repeated failures, not every tick starts a run.
        second_run = instance.add_run(dg.DagsterRun("stream", status=dg.DagsterRunStatus.STARTED))
        instance.report_run_failed(second_run)
        assert supervisor(context).skip_message.startswith("The last runs failed: the next run starts in ")
        instance.delete_run(second_run.run_id)
        assert isinstance(supervisor(context), dg.RunRequest)


def test_defs_route_has_partitioned_assets(tmp_path, monkeypatch):
    text = config_path().read_text()
    route = r"routes: {shop: {pattern: 'shop\.(?P<entity>\w+)', table: 'shop_{entity}', errors: log}}"
    for name in ("schemas", "lakehouse.yaml"):
        (tmp_path / name).symlink_to(PROJECT / name)
    (tmp_path / "with_route.yaml").write_text(f"{text}\n{route}\n")
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(tmp_path / "with_route.yaml"))

    loaded = defs()

    dg.Definitions.validate_loadable(loaded)
    assert undescribed(loaded) == set()
    graph = loaded.resolve_asset_graph()
    systems = {key.path[1] for key in graph.get_all_asset_keys() if key.path[0] == "shop"}
    assert systems == {"kafka", "iceberg", "glue", "snowflake", "dead_letters", "ledger", "maintenance"}
    for job, partitioned in [
        ("all_topics", False),
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


def test_defs_every_table_and_stage_has_checks(loaded):
    graph = loaded.resolve_asset_graph()
    checks = {(key.asset_key.to_user_string(), key.name): graph.get_check_spec(key) for key in graph.asset_check_keys}
    for topic in loader.load().topics:
        assert checks[f"{topic}/iceberg", "record_count"].blocking
        assert checks[f"{topic}/iceberg", "key_not_null"].blocking
        assert checks[f"{topic}/glue", "registration_current"].blocking
        assert {(f"{topic}/iceberg", "fresh"), (f"{topic}/iceberg", "ledger")} <= set(checks)
        assert {(f"{topic}/ledger", "reconciled"), (f"{topic}/snowflake", "matches_iceberg")} <= set(checks)


def test_defs_derived_topic_depends_on_its_source_table(loaded):
    totals = loaded.resolve_asset_graph().get(dg.AssetKey(["stock_trades_with_totals", "kafka"]))
    assert totals.parent_keys == {dg.AssetKey(["stock_trades", "iceberg"])}


def test_defs_each_table_has_one_pool(loaded):
    pools = {
        key: node.pools for key in loaded.resolve_asset_graph().get_all_asset_keys()
        if (node := loaded.resolve_asset_graph().get(key))
    }  # fmt: skip
    assert all(len(pool) == 1 for pool in pools.values())
    maintenance = {key: pool for key, pool in pools.items() if key.path[1] == "maintenance"}
    assert all(pool == pools[dg.AssetKey([key.path[0], "iceberg"])] for key, pool in maintenance.items())
    assert len(set().union(*pools.values())) == len(pools) - len(maintenance)


def test_defs_load_without_network():
    script = (
        "import socket\n"
        "def refuse(*_): raise AssertionError('loading definitions connects')\n"
        "socket.socket.connect = refuse\n"
        "from lakehouse.definitions import defs\n"
        "defs()\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_build_resources_builds_every_environment():
    config = loader.load()
    for environment in config.environments:
        assert set(build_resources(config, environment)) >= {"kafka", "spark", "catalog", "glue", "snowflake"}


@pytest.mark.parametrize(
    ("system", "settings"),
    [
        ("kafka", {"secret": "/lake/kafka", "api_secret": "hidden"}),
        ("kafka", {"secret": "/lake/kafka", "api_secret": {"env": "KAFKA_API_SECRET", "default": "hidden"}}),
        ("schema_registry", {"url": "https://reader:hidden@registry.example"}),
        ("catalog", {"type": "sql", "warehouse": "s3://lake", "uri": "postgresql://reader:hidden@db.example/lake"}),
        ("spark", {"remote": "sc://spark.example:15002/;token=hidden"}),
        ("open_lineage", {"api_key": "hidden"}),
        ("alerts", {"url": "https://hooks.example/hidden"}),
        ("alerts", {"url": {"env": "WEBHOOK", "default": "https://hooks.example/hidden"}}),
        ("alerts", {"heartbeat_url": "https://hc-ping.com/hidden"}),
    ],
)
def test_build_resources_refuses_a_secret_in_the_file(system, settings):
    environments = loader.load().model_dump()["environments"]["local"] | {system: settings}
    config = Config(namespace="n", topics={}, environments={"local": environments})
    with pytest.raises(ConfigError, match=r"environments\.local\.\w+\.\w+: the file contains a secret") as raised:
        build_resources(config, "local")
    assert "hidden" not in str(raised.value)


def test_build_resources_allows_a_user_in_an_address():
    systems = loader.load().model_dump()["environments"]["local"]
    systems["catalog"] = {"type": "sql", "warehouse": "s3://lake", "uri": "postgresql://reader@db.example/lake"}
    config = Config(namespace="n", topics={}, environments={"local": systems})
    assert build_resources(config, "local")["catalog"].uri == "postgresql://reader@db.example/lake"


@pytest.mark.parametrize(
    ("environment", "kafka", "message"),
    [
        ("moon", {}, "Environment 'moon' .* is not in lakehouse.yaml, which has local. Name one"),
        ("local", {"bootstrap_server": "x"}, "kafka.bootstrap_server: unknown key. Did you mean 'bootstrap_servers'"),
        ("local", {}, "environments.local.kafka: bootstrap_servers or secret missing"),
        ("local", None, "environments.local.kafka: missing. Add the system's settings"),
    ],
)
def test_build_resources_invalid_environment_is_explained(environment, kafka, message):
    systems = {} if kafka is None else {"kafka": kafka}
    config = Config(namespace="n", topics={}, environments={"local": systems})
    with pytest.raises(ConfigError, match=message):
        build_resources(config, environment)


def test_defs_running_sensor_evaluates_every_automation_condition():
    loaded = definitions_of(loader.load(PROJECT / "tools/reference/every_object.yaml"))
    sensors = loaded.get_repository_def().sensor_defs
    stopped = {sensor.name for sensor in sensors if sensor.default_status == dg.DefaultSensorStatus.STOPPED}
    # Dagster adds a stopped sensor for conditions that no other sensor evaluates.
    assert "default_automation_condition_sensor" not in stopped


def test_defs_of_similar_names_load_together():
    names = {"a.b": "one", "a-b": "two", "a_b": "three", "a": "four", "a_checks": "five"}
    topics = {name: Topic.model_validate({"name": name, "table": table}) for name, table in names.items()}
    routes = {
        name: Route.model_validate({"name": name, "pattern": f"{name}x"}) for name in ("b.c", "b-c", "B_C", "b_c")
    }
    config = Config(namespace="shop", topics=topics, routes=routes, environments=loader.load().environments)
    similar = definitions_of(config)
    dg.Definitions.validate_loadable(similar)
    keys = {key.to_user_string() for key in similar.resolve_asset_graph().get_all_asset_keys()}
    assert {f"{name}/iceberg" for name in (*topics, *routes)} <= keys
