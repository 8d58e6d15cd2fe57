"""A distribution that implements each extension point; lakehouse.yaml alone selects its entry points."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pyiceberg.catalog import load_catalog

from tests.support.topics import Stream
from tools.repository import PROJECT

PLUGIN = PROJECT / "tests/support/plugins"
MATERIALIZE = """
import json, sys
import dagster as dg
from lakehouse.definitions import defs
keys = [dg.AssetKey([sys.argv[1], stage]) for stage in sys.argv[2:]]
selected = dg.AssetSelection.assets(*keys) | dg.AssetSelection.checks_for_assets(*keys)
job = dg.Definitions.merge(defs(), dg.Definitions(jobs=[dg.define_asset_job("one", selected)])).resolve_job_def("one")
with dg.DagsterInstance.ephemeral() as instance:
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    if failures := [str(event.event_specific_data.error) for event in result.all_events if event.is_step_failure]:
        sys.exit("\\n".join(failures))
    evaluations = {"/".join([e.asset_key.path[1], e.check_name]): e for e in result.get_asset_check_evaluations()}
    print(json.dumps({name: [e.passed, e.description] for name, e in evaluations.items()}))
"""


@pytest.fixture
def stream(resources):
    return Stream(resources)


def run_with_plugin(declared, *arguments):
    """Run Python with the distribution installed and a lakehouse.yaml."""
    path = os.pathsep.join([str(PLUGIN), str(PROJECT)])
    environment = {**os.environ, "LAKEHOUSE_CONFIG": str(declared), "PYTHONPATH": path, "COLUMNS": "200"}
    program = [sys.executable, *arguments]
    return subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def run(stream, tmp_path):
    """Return a function that runs Python with the distribution installed and its system in the environment."""
    declared = stream.declare(tmp_path)
    content = yaml.safe_load(declared.read_text())
    content["environments"]["local"]["shelf"] = {"folder": str(tmp_path)}
    declared.write_text(yaml.safe_dump(content))

    def run(*arguments):
        result = run_with_plugin(declared, *arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


def test_plugin_reader_is_published_checked_and_shown(stream, run, tmp_path):
    stream.produce_trades(range(20))
    stream.ingest()

    reported = json.loads(run("-c", MATERIALIZE, stream.name, "shelf").splitlines()[-1])
    checks = {name.removeprefix("shelf/"): outcome for name, outcome in reported.items()}

    location, _ = json.loads((tmp_path / f"{stream.namespace}.{stream.topic.table}.json").read_text())
    assert location == stream.table().metadata_location
    assert checks.keys() == {"fresh", "registration_current"}
    assert all(passed and "up to date" in description for passed, description in checks.values()), checks
    assert "Iceberg → Shelf" in run("-m", "lakehouse.cli.main", "status")

    stream.produce_trades(range(20, 30))
    stream.ingest()
    assert "1 snapshot behind" in run("-m", "lakehouse.cli.main", "status").replace("\n", " ")


def test_plugins_of_all_other_kinds_are_used(stream, run, tmp_path):
    file = tmp_path / "lakehouse.yaml"
    content = yaml.safe_load(file.read_text())
    name = f"{stream.name}_lines"
    content["topics"] = {
        name: {
            "source": {"type": "lines", "lines": ["2;two", "4;four; or more", "5;five"]},
            "partitions": 1,
            "value_format": "pair",
            "metadata": {"columns": ["size"]},
            "checks": {"even": {"type": "multiple_of", "column": "left", "number": 2, "severity": "warn"}},
        }
    }
    # The file is in the stack's folder, because Spark's server keeps it open; all files there are private.
    database = Path(os.environ["LAKEHOUSE_HOME"]) / "plugged.db"
    database.touch(mode=0o600)
    content["environments"]["local"]["catalog"] |= {"type": "sqlite_file", "uri": str(database)}
    address = tmp_path / "spark_address"
    address.write_text(os.environ["SPARK_REMOTE"])
    content["environments"]["local"]["spark"] = {"type": "file", "path": str(address)}
    file.write_text(yaml.safe_dump(content))
    run("-m", "lakehouse.cli.main", "validate")

    checks = json.loads(run("-c", MATERIALIZE, name, "kafka", "iceberg", "shelf").splitlines()[-1])

    assert checks.pop("iceberg/even") == [False, "1 of 3 rows fail"]
    assert all(passed for passed, _ in checks.values()) and {"iceberg/fresh", "shelf/fresh"} <= checks.keys(), checks
    s3 = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"], "s3.region": os.environ["AWS_REGION"]}
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{database}", **s3)
    [table] = catalog.list_tables(stream.namespace)
    rows = catalog.load_table(table).scan().to_arrow().sort_by("kafka_offset").to_pylist()
    assert [(row["left"], row["right"], row["kafka_size"]) for row in rows] == [
        ("2", "two", 5), ("4", "four; or more", 15), ("5", "five", 6),
    ]  # fmt: skip


UNKNOWN_NAMES = {
    "format": ({"value_format": "pear"}, "value_format: must be 'avro', .* or 'pair', but is 'pear'"),
    "source": ({"source": {"type": "line"}}, "source.type: unknown type 'line'. Did you mean 'lines'\\?"),
    "check": (
        {"checks": {"even": {"type": "multiple"}}},
        "checks.even.type: unknown type 'multiple'. Did you mean 'multiple_of'\\?",
    ),
    "column": ({"metadata": {"columns": ["sise"]}}, "metadata.columns.0: must be 'topic', .* or 'size', but is 'sise'"),
}
"""Settings of a topic with a name that resembles the plugin's, and the problem of each."""


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    """Return the output of `validate` for a lakehouse.yaml with a topic for each of UNKNOWN_NAMES and a system."""
    declared = yaml.safe_load((PROJECT / "lakehouse.yaml").read_text())
    declared["topics"] = {kind: setting for kind, (setting, _) in UNKNOWN_NAMES.items()}
    declared["environments"]["local"]["shelv"] = {"folder": "somewhere"}
    file = tmp_path_factory.mktemp("unknown") / "lakehouse.yaml"
    file.write_text(yaml.safe_dump(declared))
    result = run_with_plugin(file, "-m", "lakehouse.cli.main", "validate")
    assert result.returncode == 1
    return result.stderr


@pytest.mark.parametrize("kind", UNKNOWN_NAMES)
def test_unknown_plugin_name_is_a_configuration_error(problems, kind):
    _, problem = UNKNOWN_NAMES[kind]
    assert re.search(f"topics.{kind}.{problem}", problems), problems


def test_unknown_system_is_a_configuration_error(problems):
    assert re.search("environments.local.shelv: unknown system. Did you mean 'shelf'", problems), problems
