"""GitHub workflows: all commands of `.ci/run`, pinned actions, minimal permissions, and secrets in a single step."""

import re
import tomllib

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from tools.repository import PROJECT

FOLDER = PROJECT / ".github" / "workflows"
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in FOLDER.iterdir()}
JOBS = [(name, job) for workflow in WORKFLOWS.values() for name, job in workflow["jobs"].items()]
STEPS = [(name, step) for name, job in JOBS for step in job["steps"]]


def test_workflows_run_every_command_of_ci():
    commands = re.findall(r"^make .*", (PROJECT / ".ci" / "run").read_text(), re.MULTILINE)
    assert {"make lint", "make test"} <= set(commands)
    assert set(commands) <= {step.get("run") for _, step in STEPS}


@pytest.mark.parametrize("path", list(FOLDER.iterdir()), ids=lambda path: path.name)
def test_action_is_pinned_by_commit_with_version(path):
    uses = [line for line in path.read_text().splitlines() if re.match(r"\s*(- )?uses:", line)]
    assert uses
    assert [
        line for line in uses if not re.search(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$", line)
    ] == []


def test_action_has_one_commit_in_all_workflows():
    commits = {tuple(step["uses"].split("@")) for _, step in STEPS if "uses" in step}
    assert len({action for action, _ in commits}) == len(commits)


def test_workflow_has_no_permissions_but_those_of_jobs():
    assert [name for name, workflow in WORKFLOWS.items() if workflow["permissions"] != {}] == []
    rights = {name: job["permissions"] for name, job in JOBS}
    assert rights.pop("deployed") == {"contents": "read", "id-token": "write"}
    assert all(right == {"contents": "read"} for right in rights.values())


def test_secrets_are_only_in_step_without_actions():
    with_secrets = [(name, step) for name, step in STEPS if re.search(r"secrets\.|outputs\.aws-", str(step))]
    assert [(name, step.get("run")) for name, step in with_secrets] == [("deployed", ".github/deployed")]
    outside = [{key: value for key, value in job.items() if key != "steps"} for _, job in JOBS]
    assert "secrets" not in str([outside, [{**workflow, "jobs": None} for workflow in WORKFLOWS.values()]])


def test_aws_credentials_are_limited_to_deployment_step():
    steps = WORKFLOWS["pipeline.yml"]["jobs"]["deployed"]["steps"]
    (aws,) = [step for step in steps if "configure-aws-credentials" in step.get("uses", "")]
    assert steps.index(aws) > [step.get("run") for step in steps].index("make venv")
    assert aws["with"]["output-env-credentials"] is False


def test_environment_is_used_on_main_only():
    deployed = WORKFLOWS["pipeline.yml"]["jobs"]["deployed"]
    assert "github.event_name != 'pull_request'" in deployed["if"]
    assert "github.ref == 'refs/heads/main'" in deployed["if"]
    assert deployed["environment"] == "${{ vars.LAKEHOUSE_ENV }}"
    triggers = {trigger for workflow in WORKFLOWS.values() for trigger in workflow[True]}  # YAML 1.1: `on` is true
    assert triggers == {"pull_request", "push", "workflow_dispatch", "schedule"}
    assert all(workflow[True]["push"] == {"branches": ["main"]} for workflow in WORKFLOWS.values())


def test_long_tests_faults_and_fuzzing_run_each_night():
    workflow = WORKFLOWS["tests.yml"]
    assert workflow[True]["schedule"]
    nightly = [job for job in workflow["jobs"].values() if "'schedule'" in job.get("if", "")]
    commands = {job["steps"][-1]["run"] for job in nightly}
    assert commands == {"make long", "make chaos", "make native-fuzz NIGHTLY=nightly-2026-05-20"}


def test_unit_tests_run_with_each_allowed_version_of_python():
    allowed = SpecifierSet(tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["requires-python"])
    versions = WORKFLOWS["tests.yml"]["jobs"]["versions"]["strategy"]["matrix"]["python"]
    assert versions == [f"3.{minor}" for minor in range(30) if f"3.{minor}" in allowed]


def test_checkout_persists_no_credentials():
    checkouts = [step for _, step in STEPS if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts and all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_online_audit_is_scheduled():
    workflow = WORKFLOWS["audit.yml"]
    assert workflow[True]["schedule"]
    assert "'schedule'" in workflow["jobs"]["audit"]["env"]["ONLINE"]
    assert "make audit" in [step.get("run") for step in workflow["jobs"]["audit"]["steps"]]
