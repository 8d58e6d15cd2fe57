"""A reader of another distribution, found by its entry points: two lines of lakehouse.yaml are all it takes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import Stream

from lakehouse.config.loader import PROJECT

PLUGIN = Path(__file__).parent / "plugged_reader"
MATERIALIZE = """
import json, sys
import dagster as dg
from lakehouse.definitions import defs
key = dg.AssetKey(["shelf", sys.argv[1]])
selected = dg.AssetSelection.assets(key) | dg.AssetSelection.checks_for_assets(key)
found = dg.Definitions.merge(defs(), dg.Definitions(jobs=[dg.define_asset_job("one", selected)]))
with dg.DagsterInstance.ephemeral() as instance:
    done = found.resolve_job_def("one").execute_in_process(instance=instance, raise_on_error=False)
    print(json.dumps({e.check_name: [e.passed, e.description] for e in done.get_asset_check_evaluations()}))
"""


@pytest.fixture
def stream(resources):
    stream = Stream(resources)
    stream.produce_trades(range(20))
    stream.ingest()
    return stream


@pytest.fixture
def run(stream, tmp_path):
    """Run a Python program, or a module, where the distribution is installed and the environment names its system."""
    declared = stream.declare(tmp_path)
    content = yaml.safe_load(declared.read_text())
    content["environments"]["local"]["shelf"] = {"folder": str(tmp_path)}
    declared.write_text(yaml.safe_dump(content))
    path = os.pathsep.join([str(PLUGIN), str(PROJECT)])
    environment = {**os.environ, "LAKEHOUSE_CONFIG": str(declared), "PYTHONPATH": path, "COLUMNS": "200"}

    def run(*arguments):
        program = [sys.executable, *arguments]
        done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_validate_materialize_check_and_status_of_a_reader_that_is_plugged_in(stream, run, tmp_path):
    run("-m", "lakehouse.cli.main", "validate")

    checks = json.loads(run("-c", MATERIALIZE, stream.name).splitlines()[-1])

    location, _ = json.loads((tmp_path / f"{stream.namespace}.{stream.topic.table}.json").read_text())
    assert location == stream.table().metadata_location
    assert checks.keys() == {"fresh", "points_at_published_snapshot"}
    assert all(passed and "newest published snapshot" in description for passed, description in checks.values()), checks
    assert "Iceberg → Shelf" in run("-m", "lakehouse.cli.main", "status")

    stream.produce_trades(range(20, 30))
    stream.ingest()
    assert "1 snapshot behind" in run("-m", "lakehouse.cli.main", "status").replace("\n", " ")


def test_a_system_of_no_distribution_is_a_clear_error(run, monkeypatch, tmp_path):
    file = tmp_path / "lakehouse.yaml"
    file.write_text(file.read_text().replace("shelf:", "shelv:"))
    with pytest.raises(AssertionError, match="or 'shelf' \\(found 'shelv'\\)"):
        run("-m", "lakehouse.cli.main", "validate")
