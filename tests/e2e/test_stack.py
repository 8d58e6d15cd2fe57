"""The life cycle of the embedded stack by its command line, and properties of the shared stack."""

import os
import signal
import socket
import subprocess
import sys
import time

import boto3
import psutil
import pytest
from botocore.config import Config
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

from lakehouse.cli.main import main
from lakehouse.local import stack as local_stack
from lakehouse.local.client_environment import environment
from lakehouse.local.home import Home
from lakehouse.local.processes import process
from lakehouse.local.stack import LOGS
from tests.conftest import SERVERS
from tests.support.topics import Stream
from tests.support.waiting import wait_until

QUICK_SERVERS = ("kafka", "s3")
"""The servers of most of these tests, which start quickly and keep their data."""

UNUSUAL_NAME = "Zoë's home"
"""Name of a state folder with characters that some formats of the servers escape."""

COMMAND = [sys.executable, "-m", "lakehouse.cli.main"]
ONLY = [f"--only={name}" for name in QUICK_SERVERS]


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    yield home
    local_stack.down(home)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Yield a stack of QUICK_SERVERS for several tests, and the output of the process that started it."""
    home = Home(tmp_path_factory.mktemp("shared") / UNUSUAL_NAME)
    try:
        env = {**os.environ, "LAKEHOUSE_HOME": str(home.path), "COLUMNS": "200"}
        result = subprocess.run([*COMMAND, "up", *ONLY], env=env, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stderr
        yield home, result.stdout
    finally:
        local_stack.down(home)


@pytest.fixture
def running_stack(shared):
    """Return a stack whose servers run, also if another test has stopped them."""
    home, _ = shared
    local_stack.up(home, QUICK_SERVERS)
    return home


def lakehouse(home, *arguments):
    """Run a command in this process."""
    return CliRunner(env={"LAKEHOUSE_HOME": str(home.path), "COLUMNS": "200"}).invoke(main, arguments)


def up(home):
    result = lakehouse(home, "up", *ONLY)
    assert result.exit_code == 0, result.output
    return result


def pids(home):
    return {name: running.leader.pid for name, running in process.running(home).items()}


def s3(home):
    variables = environment(home)
    return boto3.client(
        "s3",
        endpoint_url=variables["AWS_ENDPOINT_URL_S3"],
        region_name=variables["AWS_REGION"],
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        config=Config(s3={"addressing_style": "path"}),
    )


def kafka(home):
    return AdminClient({"bootstrap.servers": environment(home)["KAFKA_BOOTSTRAP_SERVERS"]})


def test_up_prints_duration_and_folder_of_logs(shared):
    home, output = shared
    assert "ready in" in output and str(home.path / "logs") in output


def test_up_twice_starts_only_stopped_servers(running_stack):
    before = pids(running_stack)
    assert set(before) == {*QUICK_SERVERS, LOGS}
    assert up(running_stack).stdout.count("was running") == 3
    assert pids(running_stack) == before

    os.kill(before["s3"], signal.SIGKILL)
    up(running_stack)
    after = pids(running_stack)
    assert after["kafka"] == before["kafka"] and after["s3"] != before["s3"]


def test_lost_ports_file_is_restored_from_servers(running_stack):
    before, variables = pids(running_stack), environment(running_stack)
    running_stack.endpoints.write_text('{"kafka": 90')
    up(running_stack)
    assert pids(running_stack) == before
    restored = environment(running_stack)
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "AWS_ENDPOINT_URL_S3"):
        assert restored[name] == variables[name]


def test_topics_and_objects_survive_restart_on_other_ports(running_stack):
    admin = kafka(running_stack)
    admin.create_topics([NewTopic("kept", 3)])["kept"].result()
    s3(running_stack).put_object(Bucket="lakehouse", Key="kept", Body=b"kept")
    port = int(environment(running_stack)["KAFKA_BOOTSTRAP_SERVERS"].rsplit(":")[-1])
    assert lakehouse(running_stack, "down").stdout.strip() == "Stopped: kafka, logs, s3"

    with socket.create_server(("127.0.0.1", port)):
        up(running_stack)
        assert not environment(running_stack)["KAFKA_BOOTSTRAP_SERVERS"].endswith(f":{port}")
        assert len(kafka(running_stack).list_topics(timeout=10).topics["kept"].partitions) == 3
        assert s3(running_stack).get_object(Bucket="lakehouse", Key="kept")["Body"].read() == b"kept"


def test_down_does_not_stop_foreign_processes(running_stack):
    foreign = {**os.environ, "LAKEHOUSE_HOME": str(running_stack.path) + "-other", "LAKEHOUSE_SERVER": "s3"}
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=foreign) as other:
        assert lakehouse(running_stack, "down").stdout.strip() == "Stopped: kafka, logs, s3"
        assert other.poll() is None
        other.kill()
    assert lakehouse(running_stack, "down").stdout.strip() == "Nothing was running"


@pytest.mark.parametrize("seconds", [0.7, 3])
def test_down_after_killed_up_leaves_no_process(home, seconds):
    env = {**os.environ, "LAKEHOUSE_HOME": str(home.path)}
    command = [*COMMAND, "up", *ONLY, "--only=aws"]
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as killed:
        time.sleep(seconds)
        killed.kill()
    survivors = [child for running in process.running(home).values() for child in running.processes]
    assert lakehouse(home, "down").exit_code == 0
    assert process.running(home) == {} and not any(map(process.is_alive, survivors))
    up(home)  # repairs what the killed command left


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_demo_terminated_during_start_stops_its_servers(home, number):
    env = {**os.environ, "LAKEHOUSE_HOME": str(home.path)}
    with subprocess.Popen([*COMMAND, "demo"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as demo:
        wait_until(lambda: process.running(home))
        demo.send_signal(number)
        output, _ = demo.communicate(timeout=120)
    assert (demo.returncode, process.running(home)) == (0, {}), output


def test_snowflake_starts_in_folder_with_unusual_name(tmp_path):
    home = Home(tmp_path / UNUSUAL_NAME)
    try:
        states = local_stack.up(home, ["snowflake"])
        assert {state.name: state.state for state in states}["snowflake"] == "ready"
    finally:
        local_stack.down(home)


def test_up_with_failing_server_names_it_and_stops_all(home):
    (home.folder("kafka/data") / "topic-0").mkdir()
    failed = lakehouse(home, "up", *ONLY)
    assert isinstance(failed.exception, SystemExit) and failed.exit_code == 1
    assert "meta.properties" in failed.stderr
    assert process.running(home) == {}


def test_concurrent_up_fails_without_waiting(home):
    with home.exclusive():
        refused = lakehouse(home, "up", "--only", "s3")
    assert isinstance(refused.exception, SystemExit) and refused.exit_code == 1
    assert f"process {os.getpid()}" in refused.stderr


def secrets_of(home):
    return [file.read_text() for file in home.folder("secrets").iterdir()]


def test_stack_listens_on_loopback_only(stack):
    running = process.running(stack)
    assert set(running) == {*SERVERS, LOGS}
    states = {state.name: state.state for state in local_stack.status(stack)}
    assert {states[name] for name in running} == {"ready"}
    for server in running.values():
        for member in server.processes:
            listening = (s for s in member.net_connections("inet") if s.status == psutil.CONN_LISTEN)
            assert {socket.laddr.ip.removeprefix("::ffff:") for socket in listening} <= {"127.0.0.1"}


def test_spark_request_without_token_is_refused(stack):
    env = {name: value for name, value in os.environ.items() if name != "SPARK_CONNECT_AUTHENTICATE_TOKEN"}
    attach = "from pyspark.sql import SparkSession; print(SparkSession.builder.getOrCreate().range(1).count())"
    refused = subprocess.run([sys.executable, "-c", attach], env=env, capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0 and "No authentication token provided" in refused.stderr
    allowed = subprocess.run([sys.executable, "-c", attach], capture_output=True, text=True, timeout=60)
    assert allowed.stdout.strip() == "1"


def test_logs_contain_no_secret(stack):
    running = process.running(stack)
    hidden = [*secrets_of(stack), running["snowflake"].env["SNOWFLAKE_ADMIN_PASSWORD"]]
    for name in running:
        logged = stack.log(name).read_text(errors="replace")
        assert not any(secret in logged for secret in hidden), name


def test_batch_writes_nothing_to_server_logs(stack, resources):
    stream = Stream(resources)
    stream.produce_trades(range(10))
    stream.ingest()

    spark, registry = (stack.log(name).read_text(errors="replace") for name in ("spark", "registry"))
    assert " INFO " not in spark and "kafka.group.id" not in spark
    assert f"/subjects/{stream.name}" not in registry
