"""The alert rules, evaluated by promtool for recorded series of one sample a minute, and the example of scraping."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tools.reference.runbook import ALERT_RULES
from tools.repository import PROJECT

PROMTOOL = shutil.which("promtool")
METRICS, STREAM = 'job="metrics",instance="10.0.0.1:9465"', 'job="streams",instance="10.0.0.2:9464",topic="orders"'
ELSEWHERE = 'job="metrics",instance="10.0.0.7:9465"', 'job="streams",instance="10.0.0.8:9464",topic="orders"'
SUCCEEDED, MEASURED = "lakehouse_measurement_succeeded", "lakehouse_measured_timestamp_seconds"
MEASURED_UNTIL_DEATH = {f"{SUCCEEDED}{{{METRICS}}}": "1+0x10 stale", f"{MEASURED}{{{METRICS}}}": "0+60x10 stale"}
SERVED_UNTIL_DEATH = {f"lakehouse_assigned{{{STREAM}}}": "1+0x10 stale"}
LETTERS = f'lakehouse_records_total{{{STREAM},outcome="dead_letters"}}'
PUBLICATIONS = f'lakehouse_consecutive_publication_failures{{{STREAM},reader="glue"}}'


pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="Prometheus is not installed (Debian: apt install prometheus)")


def promtool(folder: Path, command: str, content: str) -> None:
    """Run a command of promtool with a file, and require that it succeeds."""
    (folder / "file.yaml").write_text(content)
    result = subprocess.run([PROMTOOL, *command.split(), "file.yaml"], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("series", "minutes", "alerts"),
    [
        pytest.param(MEASURED_UNTIL_DEATH, 10, set(), id="measured"),
        pytest.param(MEASURED_UNTIL_DEATH, 30, {"LakehouseMeasurementFailed"}, id="metrics process dead"),
        pytest.param(
            MEASURED_UNTIL_DEATH
            | {f"{SUCCEEDED}{{{ELSEWHERE[0]}}}": "_x12 1+0x60", f"{MEASURED}{{{ELSEWHERE[0]}}}": "_x12 720+60x60"},
            60,
            set(),
            id="metrics process moved",
        ),
        pytest.param(
            {f"{SUCCEEDED}{{{METRICS}}}": "0+0x10 stale"},
            60,
            {"LakehouseMeasurementFailed"},
            id="metrics process dead before its first success",
        ),
        pytest.param(
            {f"{SUCCEEDED}{{{METRICS}}}": "1+0x60", f"{MEASURED}{{{METRICS}}}": "0+60x10 600+0x50"},
            30,
            {"LakehouseMeasurementFailed"},
            id="measurement hangs",
        ),
        pytest.param(SERVED_UNTIL_DEATH, 10, set(), id="served"),
        pytest.param(SERVED_UNTIL_DEATH, 30, {"LakehouseStreamDown"}, id="stream dead"),
        pytest.param(
            SERVED_UNTIL_DEATH | {f"lakehouse_assigned{{{ELSEWHERE[1]}}}": "_x12 1+0x60"}, 60, set(), id="stream moved"
        ),
        pytest.param({LETTERS: "0+0x5 11+0x60"}, 7, {"LakehouseDeadLetters"}, id="dead letters"),
        pytest.param({LETTERS: "_x5 11+0x60"}, 7, {"LakehouseDeadLetters"}, id="dead letters in the first scrape"),
        pytest.param({LETTERS: "_x5 11+0x60"}, 40, set(), id="dead letters of an hour ago"),
        pytest.param({LETTERS: "_x5 0+0x60"}, 7, set(), id="no dead letters"),
        pytest.param({PUBLICATIONS: "3+0x2 0+0x60"}, 10, set(), id="publication recovered"),
        pytest.param({PUBLICATIONS: "3+0x9 4+0x9 5+0x40"}, 60, {"LakehousePublicationFailing"}, id="publication fails"),
    ],
)
def test_rules_fire_for_series_that_begin_and_end(tmp_path, series, minutes, alerts):
    firing = {
        "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{minutes}m",
        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in alerts],
    }
    recorded = [{"series": name, "values": values} for name, values in series.items()]
    content = {
        "rule_files": [str(ALERT_RULES)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": recorded, "promql_expr_test": [firing]}],
    }
    promtool(tmp_path, "test rules", yaml.safe_dump(content))


def test_example_of_scraping_is_accepted_by_prometheus(tmp_path):
    page = (PROJECT / "docs/monitoring.md").read_text()
    [example] = re.findall(r"```yaml\n(scrape_configs:.*?)```", page, re.DOTALL)
    promtool(tmp_path, "check config", example)
