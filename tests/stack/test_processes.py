"""What other users of the machine could see of the stack's processes: arguments, environments, files."""

import stat
import tempfile
from pathlib import Path

import pytest
from conftest import CANARIES
from test_stack import secrets_of

from lakehouse.local import jars, process
from lakehouse.local import stack as local_stack


@pytest.fixture(scope="module")
def members(stack):
    """Every process of a stack that also has a part of Dagster, started with canaries in the environment."""
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
            process.stop("dagster-code", stack)


def test_no_secret_is_in_an_argument(stack, members):
    running = process.running(stack)
    hidden = [*secrets_of(stack), running["snowflake"].env["SNOWFLAKE_ADMIN_PASSWORD"]]
    for name, processes in members.items():
        arguments = " ".join(argument for each in processes for argument in each.cmdline())
        assert not [secret for secret in hidden if secret in arguments], name


def test_a_server_has_only_variables_that_it_needs(members):
    assert len(members["dagster-code"]) > 1, "children are looked at, too"
    for name, processes in members.items():
        for each in processes:
            values = {value for value in each.environ().values() if "canary" in value}
            assert values == ({"canary-webhook", "canary-mine"} if name == "dagster-code" else set()), name


def test_no_server_uses_files_in_the_folder_that_users_share(stack, members):
    shared = Path(tempfile.gettempdir())
    own = (stack.path, jars.cache())
    for name, processes in members.items():
        for each in processes:
            used = {Path(file.path) for file in [*each.memory_maps(), *each.open_files()]}
            strangers = [file for file in used if file.is_relative_to(shared)]
            assert not [file for file in strangers if not any(map(file.is_relative_to, own))], name
            assert not list(shared.glob(f"hsperfdata_*/{each.pid}")), name


def test_every_file_is_its_owners_only(stack, members):
    # Tests write into Dagster's folder as well, as a user who looks into it could.
    files = [file for file in stack.path.rglob("*") if file.parent.name and "dagster" not in file.parts]
    assert len(files) > 50
    open_to_others = {str(file): oct(mode) for file in files if (mode := stat.S_IMODE(file.lstat().st_mode)) & 0o077}
    assert not open_to_others
