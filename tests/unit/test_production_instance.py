"""containers/dagster.yaml with Dagster's daemon, a PostgreSQL server and a simulated S3."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import boto3
import dagster as dg
import pytest
import sqlalchemy
import yaml
from moto.server import ThreadedMotoServer

from assets.instance_diagnosis import examine_instance
from tests.support.processes import pooled_definitions
from tests.support.servers.postgresql import postgresql
from tests.support.waiting import wait_until
from tools.repository import PROJECT

SETTINGS = PROJECT / "containers/dagster.yaml"
BUCKET = "dagster-logs"
STEP = (dg.DagsterEventType.STEP_START, dg.DagsterEventType.STEP_SUCCESS)
FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    """The instance in a folder that has only its settings, with another folder instead of /tmp."""
    home = tmp_path_factory.mktemp("production")
    text = SETTINGS.read_text().replace("/tmp/", f"{tmp_path_factory.mktemp('temporary')}/")
    (home / SETTINGS.name).write_text(text)
    s3 = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    s3.start()
    with postgresql() as url, pytest.MonkeyPatch.context() as patch:
        database = sqlalchemy.make_url(url)
        for name, value in {
            "DAGSTER_HOME": str(home),
            "DAGSTER_GRPC_TIMEOUT_SECONDS": "180",
            "DAGSTER_POSTGRES_HOST": database.host,
            "DAGSTER_POSTGRES_PORT": str(database.port),
            "DAGSTER_POSTGRES_USER": database.username,
            "DAGSTER_POSTGRES_PASSWORD": database.password,
            "DAGSTER_POSTGRES_DB": database.database,
            "DAGSTER_LOGS_BUCKET": BUCKET,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": "http://{}:{}".format(*s3.get_host_and_port()),
        }.items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        with dg.DagsterInstance.from_config(str(home)) as instance:
            yield instance
    s3.stop()


@pytest.fixture(scope="module")
def runs(instance, tmp_path_factory):
    """Two runs for the same table, which a sensor requested at the same time, and which have ended."""
    folder = tmp_path_factory.mktemp("workspace")
    location = {"relative_path": str(Path(pooled_definitions.__file__)), "location_name": "lakehouse"}
    (folder / "workspace.yaml").write_text(yaml.safe_dump({"load_from": [{"python_file": location}]}))
    command = (str(Path(sys.executable).with_name("dagster-daemon")), "run", "-w", str(folder / "workspace.yaml"))
    with (
        (folder / "daemon.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True) as daemon,
    ):
        try:
            ended = dg.RunsFilter(statuses=FINISHED)
            return wait_until(lambda: len(runs := instance.get_runs(ended)) == 2 and runs, 300)
        finally:
            daemon.terminate()
            daemon.wait(60)
            with suppress(ProcessLookupError):  # its code server may outlive it
                os.killpg(daemon.pid, signal.SIGKILL)


def seconds(instance, run, kind) -> float:
    [record] = instance.get_records_for_run(run.run_id, of_type=kind).records
    return record.timestamp


def test_runs_of_a_table_succeed_one_after_the_other(instance, runs):
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS] * 2
    first, second = sorted([seconds(instance, run, kind) for kind in STEP] for run in runs)
    assert first[1] <= second[0]


def test_logs_are_in_the_bucket_and_home_has_no_other_file(instance, runs):
    keys = [entry["Key"] for entry in boto3.client("s3").list_objects_v2(Bucket=BUCKET)["Contents"]]
    assert all(any(run.run_id in key for key in keys) for run in runs), keys
    # The daemon creates two empty folders of telemetry, and continues if it cannot.
    assert [path.name for path in Path(os.environ["DAGSTER_HOME"]).rglob("*") if path.is_file()] == [SETTINGS.name]


def test_doctor_finds_no_difference(instance, runs):
    [diagnostic] = examine_instance(instance, [pooled_definitions.POOL])
    assert diagnostic.ok and "Postgres" in diagnostic.observation
