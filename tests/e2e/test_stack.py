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
from confluent_kafka.admin import AdminClient, NewTopic

from lakehouse.local import stack as local_stack
from lakehouse.local.client_environment import environment
from lakehouse.local.home import Home
from lakehouse.local.processes import process
from lakehouse.local.stack import LOGS
from tests.conftest import SERVERS
from tests.support.topics import Stream

QUICK_SERVERS = ("kafka", "s3")
"""The servers of most of these tests, which start quickly and keep their data."""


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    yield home
    local_stack.down(home)


def lakehouse(home, *arguments, **options):
    """Run the command line in its own process."""
    command = [sys.executable, "-m", "lakehouse.cli.main", *arguments]
    env = {**os.environ, "LAKEHOUSE_HOME": str(home.path), "COLUMNS": "200"}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, **options)


def up(home, servers=QUICK_SERVERS):
    result = lakehouse(home, "up", *(part for name in servers for part in ("--only", name)))
    assert result.returncode == 0, result.stderr
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


def test_up_twice_starts_only_stopped_servers(home):
    first = up(home)
    assert "ready in" in first.stdout and str(home.path / "logs") in first.stdout
    before = pids(home)
    assert set(before) == {*QUICK_SERVERS, LOGS}
    assert up(home).stdout.count("was running") == 3
    assert pids(home) == before

    os.kill(before["s3"], signal.SIGKILL)
    up(home)
    after = pids(home)
    assert after["kafka"] == before["kafka"] and after["s3"] != before["s3"]


def test_topics_and_objects_survive_restart_on_other_ports(home):
    up(home)
    admin = kafka(home)
    admin.create_topics([NewTopic("kept", 3)])["kept"].result()
    s3(home).put_object(Bucket="lakehouse", Key="kept", Body=b"kept")
    port = int(environment(home)["KAFKA_BOOTSTRAP_SERVERS"].rsplit(":")[-1])
    assert lakehouse(home, "down").stdout.strip() == "Stopped: kafka, logs, s3"

    with socket.create_server(("127.0.0.1", port)):
        up(home)
        assert not environment(home)["KAFKA_BOOTSTRAP_SERVERS"].endswith(f":{port}")
        assert len(kafka(home).list_topics(timeout=10).topics["kept"].partitions) == 3
        assert s3(home).get_object(Bucket="lakehouse", Key="kept")["Body"].read() == b"kept"


@pytest.mark.parametrize("seconds", [0.7, 1.5, 3])
def test_down_after_killed_up_leaves_no_process(home, seconds):
    env = {**os.environ, "LAKEHOUSE_HOME": str(home.path)}
    command = [
        sys.executable,
        "-m",
        "lakehouse.cli.main",
        "up",
        *(f"--only={name}" for name in (*QUICK_SERVERS, "aws")),
    ]
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as killed:
        time.sleep(seconds)
        killed.kill()
    survivors = [child for running in process.running(home).values() for child in running.processes]
    assert lakehouse(home, "down").returncode == 0
    assert process.running(home) == {} and not any(map(process.is_alive, survivors))
    up(home)  # repairs what the killed command left


def test_down_does_not_stop_foreign_processes(home):
    up(home, ["s3"])
    foreign = {**os.environ, "LAKEHOUSE_HOME": str(home.path) + "-other", "LAKEHOUSE_SERVER": "s3"}
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=foreign) as other:
        assert lakehouse(home, "down").stdout.strip() == "Stopped: logs, s3"
        assert other.poll() is None
        other.kill()
    assert lakehouse(home, "down").stdout.strip() == "Nothing was running"


def test_lost_ports_file_is_restored_from_servers(home):
    up(home)
    before, variables = pids(home), environment(home)
    home.endpoints.write_text('{"kafka": 90')
    up(home)
    assert pids(home) == before
    restored = environment(home)
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "AWS_ENDPOINT_URL_S3"):
        assert restored[name] == variables[name]


def test_up_with_failing_server_names_it_and_stops_all(home):
    (home.folder("kafka/data") / "topic-0").mkdir()
    failed = lakehouse(home, "up", "--only", "kafka", "--only", "s3")
    assert failed.returncode == 1
    assert "meta.properties" in failed.stderr and "Traceback" not in failed.stderr
    assert process.running(home) == {}


def test_concurrent_up_fails_without_waiting(home):
    with home.exclusive():
        refused = lakehouse(home, "up", "--only", "s3")
    assert refused.returncode == 1
    assert f"process {os.getpid()}" in refused.stderr and "Traceback" not in refused.stderr


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
