"""Data of the stack's processes that other users of the machine might see: arguments, environments and files."""

import stat
import tempfile
from pathlib import Path

import psutil
import pytest

from lakehouse.local import jars
from lakehouse.local import stack as local_stack
from lakehouse.local.processes import process
from tests.conftest import CANARIES
from tests.e2e.test_stack import secrets_of
from tools.repository import PROJECT


@pytest.fixture(scope="module")
def members(stack):
    """Yield the processes of each server of a stack with a part of Dagster, which `up` started with canaries."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            **CANARIES,
            "LAKEHOUSE_ALERT_WEBHOOK": "canary-webhook",
            "LAKEHOUSE_PASS_ENV": "MINE",
        }.items():
            patch.setenv(name, value)
        patch.setenv("MINE", "canary-mine")
        try:
            local_stack.up(stack, ["dagster-code"])
            yield {name: running.processes for name, running in process.running(stack).items()}
        finally:
            process.stop(stack, "dagster-code")


def living(processes):
    """Return the processes that have not ended: Spark ends Python workers that are idle."""
    return [member for member in processes if member.is_running() and member.status() != psutil.STATUS_ZOMBIE]


def test_process_arguments_contain_no_secret(stack, members):
    running = process.running(stack)
    hidden = [*secrets_of(stack), running["snowflake"].env["SNOWFLAKE_ADMIN_PASSWORD"]]
    for name, processes in members.items():
        arguments = " ".join(argument for member in living(processes) for argument in member.cmdline())
        assert not [secret for secret in hidden if secret in arguments], name


def test_server_has_only_variables_that_it_needs(members):
    assert len(members["dagster-code"]) > 1, "children are looked at, too"
    for name, processes in members.items():
        for member in living(processes):
            values = {value for value in member.environ().values() if "canary" in value}
            assert values == ({"canary-webhook", "canary-mine"} if name == "dagster-code" else set()), name


def test_servers_use_no_files_in_shared_temporary_folder(stack, members):
    shared = Path(tempfile.gettempdir())
    own_folders = (PROJECT, stack.path, jars.cache())
    for name, processes in members.items():
        for member in living(processes):
            open_files = {Path(file.path) for file in [*member.memory_maps(), *member.open_files()]}
            shared_files = [file for file in open_files if file.is_relative_to(shared)]
            assert not [file for file in shared_files if not any(map(file.is_relative_to, own_folders))], name
            assert not list(shared.glob(f"hsperfdata_*/{member.pid}")), name


def test_files_are_accessible_to_owner_only(stack, members, resources):
    # Spark creates the folder of its own catalog when a session first looks for a table there.
    resources.spark.session({}).sql("SHOW TABLES IN spark_catalog.default").collect()
    assert (stack.path / "spark/warehouse").is_dir()
    # Tests write into Dagster's folder and a catalog of their own, too, with other modes.
    files = [file for file in stack.path.rglob("*") if not {"dagster", "tests-catalog"} & {*file.parts}]
    assert len(files) > 50
    open_to_others = {str(file): oct(mode) for file in files if (mode := stat.S_IMODE(file.lstat().st_mode)) & 0o077}
    assert not open_to_others
