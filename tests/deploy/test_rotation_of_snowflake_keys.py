"""Rotation of a service user's key pair with boto3 and the real connector, killed at every change."""

from __future__ import annotations

import itertools
import json
import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakehouse.core.errors import CommitConflict, LakehouseError, UnclearState
from lakehouse.deploy.snowflake.key_pair_rotation import ServiceUser
from resources.aws.secrets_manager import SecretJson, Secrets
from resources.snowflake.sql import KeySlot
from tests.support.clouds.snowflake.deployments import change
from tests.support.clouds.snowflake.rotated_users import Case, Killed, Wire, secrets_manager
from tests.support.clouds.snowflake.server import key_pair

pytestmark = pytest.mark.stack


@pytest.fixture
def case(new_case: Callable[[], Case]) -> Case:
    """A user with its first key pair."""
    case = new_case()
    case.user.install()
    return case


def test_install_first_key(new_case: Callable[[], Case]):
    case = new_case()
    keys = case.user.install()
    [(label, values)] = case.versions().items()
    assert label == "AWSCURRENT"
    assert {name: values[name] for name in ("account", "user", "role", "slot")} == {
        "account": "LOCAL",
        "user": case.user.name,
        "role": "LOADER_ROLE",
        "slot": "RSA_PUBLIC_KEY",
    }
    assert (keys.active, keys.old_key_until) == (KeySlot.FIRST, None)
    assert case.slots() == {"RSA_PUBLIC_KEY": "AWSCURRENT", "RSA_PUBLIC_KEY_2": None}
    assert case.logs_in(case.key())
    assert case.user.install() == keys, "again it does nothing"


def test_rotate_uses_other_slot_and_keeps_old_key(case: Case):
    old = case.key()
    keys = case.user.rotate(grace_days=7)
    assert keys.active == KeySlot.SECOND
    assert case.slots() == {"RSA_PUBLIC_KEY": "AWSPREVIOUS", "RSA_PUBLIC_KEY_2": "AWSCURRENT"}
    assert case.key("AWSPREVIOUS") == old != case.key()
    assert case.logs_in(case.key())
    assert case.logs_in(old)


def test_rotate_and_retire_within_grace_change_nothing(case: Case):
    keys = case.user.rotate(grace_days=7)
    before = case.versions()
    assert case.user.rotate(grace_days=7) == keys
    assert case.user.retire(grace_days=7) == keys
    assert case.versions() == before
    assert case.slots() == {"RSA_PUBLIC_KEY": "AWSPREVIOUS", "RSA_PUBLIC_KEY_2": "AWSCURRENT"}


def test_rotate_twice_returns_to_first_slot(case: Case):
    first = case.key()
    case.user.rotate(grace_days=0)
    second = case.key()
    assert case.user.retire(grace_days=0).old_key_until is None
    assert case.slots() == {"RSA_PUBLIC_KEY": None, "RSA_PUBLIC_KEY_2": "AWSCURRENT"}
    assert case.user.rotate(grace_days=0).active == KeySlot.FIRST
    assert case.slots() == {"RSA_PUBLIC_KEY": "AWSCURRENT", "RSA_PUBLIC_KEY_2": "AWSPREVIOUS"}
    assert len({first, second, case.key()}) == 3
    assert [case.logs_in(key) for key in (first, second, case.key())] == [False, True, True]


def test_rotate_after_grace_reuses_slot_of_expired_key(case: Case):
    first = case.key()
    case.user.rotate(grace_days=0)
    case.user.rotate(grace_days=0)
    assert case.slots() == {"RSA_PUBLIC_KEY": "AWSCURRENT", "RSA_PUBLIC_KEY_2": "AWSPREVIOUS"}
    assert not case.logs_in(first)


def test_session_with_old_key_works_until_retirement(case: Case):
    old = case.key()
    session = case.log_in(old)
    case.user.rotate(grace_days=7)
    assert session.cursor().execute("select current_user()").fetchone() == (case.user.name,)
    assert case.logs_in(old)
    case.user.retire(grace_days=0)
    assert not case.logs_in(old)
    assert case.logs_in(case.key())


ARRIVES = pytest.mark.parametrize("arrives", [False, True], ids=["before it arrives", "after it is carried out"])


def killed_at_each_change(
    new: Callable[[], Case], wire: Wire, command: Callable[[Case], None], *, arrives: bool
) -> Iterator[Case]:
    """Yield a case for each change of a command, which was killed twice at this change."""
    # A process that ends at another request has the same effect as one that ends before the next change.
    wire.counts = change
    for at in itertools.count(1):
        case = new()
        survived = True
        for _ in range(2):
            try:
                with wire.fault(at, arrives=arrives):
                    command(case)
            except Killed:
                survived = False
        if survived:
            assert at > 1, "the wire sees the changes"
            return
        yield case


@ARRIVES
def test_install_killed_at_each_change_resumes(new_case: Callable[[], Case], wire: Wire, arrives: bool):
    for case in killed_at_each_change(new_case, wire, lambda case: case.user.install(), arrives=arrives):
        assert case.user.install().active == KeySlot.FIRST
        assert case.slots() == {"RSA_PUBLIC_KEY": "AWSCURRENT", "RSA_PUBLIC_KEY_2": None}
        assert case.logs_in(case.key())


@ARRIVES
def test_rotate_killed_at_each_change_resumes(new_case: Callable[[], Case], wire: Wire, arrives: bool):
    def installed() -> Case:
        case = new_case()
        case.user.install()
        firsts[case.user.name] = case.key()
        return case

    firsts: dict[str, str] = {}
    for case in killed_at_each_change(installed, wire, lambda case: case.user.rotate(7), arrives=arrives):
        first = firsts[case.user.name]
        assert case.logs_in(case.key()), "whatever the secret says now"
        assert case.logs_in(first)
        assert case.user.rotate(7).active == KeySlot.SECOND
        assert case.slots() == {"RSA_PUBLIC_KEY": "AWSPREVIOUS", "RSA_PUBLIC_KEY_2": "AWSCURRENT"}
        assert case.key("AWSPREVIOUS") == first != case.key()
        assert case.logs_in(case.key())
        assert case.logs_in(first)


@ARRIVES
def test_retire_killed_at_each_change_resumes(new_case: Callable[[], Case], wire: Wire, arrives: bool):
    def rotated() -> Case:
        case = new_case()
        case.user.install()
        case.user.rotate(7)
        return case

    for case in killed_at_each_change(rotated, wire, lambda case: case.user.retire(0), arrives=arrives):
        assert case.logs_in(case.key())
        assert case.user.retire(0).old_key_until is None
        assert case.slots() == {"RSA_PUBLIC_KEY": None, "RSA_PUBLIC_KEY_2": "AWSCURRENT"}
        assert case.logs_in(case.key())


def test_rotate_lost_response_is_repeated(new_case: Callable[[], Case], wire: Wire):
    for at in itertools.count(1):
        case = new_case()
        case.user.install()
        first = case.key()
        with wire.fault(at, kills=False):
            assert case.user.rotate(7).active == KeySlot.SECOND
        nothing_was_lost = wire.sent < at
        assert case.slots() == {"RSA_PUBLIC_KEY": "AWSPREVIOUS", "RSA_PUBLIC_KEY_2": "AWSCURRENT"}
        assert case.key("AWSPREVIOUS") == first
        assert case.logs_in(case.key())
        if nothing_was_lost:
            break
    assert at > 5, "the wire sees the requests"


def test_rotate_key_that_cannot_log_in_is_not_promoted(case: Case):
    before = case.key()
    name = case.user.name
    case.server.admin(f"create role ROLE_{name}")
    user = replace(case.user, role=f"ROLE_{name}")
    with pytest.raises(LakehouseError, match="refused user .* were left unchanged"):
        user.rotate(grace_days=7)
    assert case.key() == before
    assert case.logs_in(before)
    with pytest.raises(UnclearState, match="a rotation was not finished.*`lakehouse deploy rotate`"):
        case.user.retire(grace_days=0)
    case.server.admin(f"grant role ROLE_{name} to user {name}")
    pending = case.key("AWSPENDING")
    assert user.rotate(grace_days=7).active == KeySlot.SECOND
    assert case.key() == pending


def test_rotate_grace_begins_at_end_of_rotation(new_case: Callable[[], Case], wire: Wire):
    case = new_case()
    case.user.install()
    with pytest.raises(Killed), wire.fault(5):
        case.user.rotate(grace_days=7)
    pending = case.versions()["AWSPENDING"] | {"created_at": "2020-01-01T00:00:00+00:00"}
    secrets_manager().put_secret_value(
        SecretId=case.user.secret, SecretString=json.dumps(pending), VersionStages=["AWSPENDING"]
    )
    until = case.user.rotate(grace_days=7).old_key_until
    assert timedelta(days=6.9) < until - datetime.now(UTC) <= timedelta(days=7)
    assert case.key() == pending["private_key"]
    assert case.user.retire(grace_days=7).old_key_until == until


def test_rotate_foreign_key_in_slot_stops(case: Case, tmp_path: Path):
    _, foreign = key_pair(tmp_path, "foreign.p8")
    name = case.user.name
    case.server.admin(f"alter user {name} set rsa_public_key_2 = '{foreign}'")
    for command in (ServiceUser.rotate, ServiceUser.retire):
        with pytest.raises(UnclearState, match=f'RSA_PUBLIC_KEY_2 .* ALTER USER "{name}" UNSET RSA_PUBLIC_KEY_2'):
            command(case.user, grace_days=0)
    case.server.admin(f"alter user {name} set rsa_public_key = '{foreign}'")
    for command in (lambda: case.user.rotate(0), lambda: case.user.retire(0), case.user.install):
        with pytest.raises(UnclearState, match="No slot of Snowflake user") as refused:
            command()
    assert list(case.versions()) == ["AWSCURRENT"], "nothing was written"
    case.server.admin(str(refused.value).rpartition(": ")[2])
    case.server.admin(f"alter user {name} unset rsa_public_key")
    assert case.logs_in(case.key()), "the statement that the error names brought it back"
    assert case.user.rotate(0).active == KeySlot.FIRST


@pytest.mark.parametrize(("slot", "finished"), [("rsa_public_key_2", 0), ("rsa_public_key", 1)], ids=["free", "old"])
def test_rotate_keeps_key_that_was_set_meanwhile(case: Case, tmp_path: Path, slot: str, finished: int):
    for _ in range(finished):
        case.user.rotate(grace_days=0)
    current, (_, foreign) = case.key(), key_pair(tmp_path, "foreign.p8")

    class Interrupted(Secrets):
        """A client beside which another program sets a key, just before the rotation would."""

        def claim_pending(self, *arguments: Any, **named: Any) -> None:
            super().claim_pending(*arguments, **named)
            case.server.admin(f"alter user {case.user.name} set {slot} = '{foreign}'")

    with pytest.raises(CommitConflict, match=f"{slot.upper()} .* was changed meanwhile"):
        replace(case.user, secrets=Interrupted(case.user.secrets.region)).rotate(grace_days=0)
    keys = {row[0].lower(): row[1] for row in case.server.admin(f"desc user {case.user.name}")}
    assert keys[slot] == foreign
    assert case.key() == current
    assert case.logs_in(current)
    with pytest.raises(UnclearState, match="another program may use it"):
        case.user.rotate(grace_days=0)


def test_install_keeps_key_that_was_set_meanwhile(new_case: Callable[[], Case], tmp_path: Path):
    case = new_case()
    _, foreign = key_pair(tmp_path, "foreign.p8")

    class Interrupted(Secrets):
        """A client that is used after the slots were read; another program sets a key then."""

        def create(self, name: str, value: SecretJson, *, description: str) -> None:
            case.server.admin(f"alter user {case.user.name} set rsa_public_key = '{foreign}'")
            super().create(name, value, description=description)

    with pytest.raises(CommitConflict, match="RSA_PUBLIC_KEY .* was changed meanwhile"):
        replace(case.user, secrets=Interrupted(case.user.secrets.region)).install()
    keys = {row[0].lower(): row[1] for row in case.server.admin(f"desc user {case.user.name}")}
    assert keys["rsa_public_key"] == foreign


def test_retire_keeps_key_that_was_set_meanwhile(case: Case, tmp_path: Path):
    case.user.rotate(grace_days=0)
    _, foreign = key_pair(tmp_path, "foreign.p8")

    class Interrupted(Secrets):
        """A client that is used after the slots were read; another program sets a key then."""

        def changed_at(self, name: str) -> datetime:
            case.server.admin(f"alter user {case.user.name} set rsa_public_key = '{foreign}'")
            return super().changed_at(name)

    with pytest.raises(CommitConflict, match="RSA_PUBLIC_KEY .* was changed meanwhile"):
        replace(case.user, secrets=Interrupted(case.user.secrets.region)).retire(grace_days=0)
    keys = {row[0].lower(): row[1] for row in case.server.admin(f"desc user {case.user.name}")}
    assert keys["rsa_public_key"] == foreign
    assert case.logs_in(case.key())


def test_rotate_missing_or_foreign_secret_stops(case: Case, new_case: Callable[[], Case]):
    with pytest.raises(UnclearState, match="There is no secret '/nowhere'"):
        replace(case.user, secret="/nowhere").rotate(grace_days=0)
    other = new_case()
    with pytest.raises(UnclearState, match=f"is of user {case.user.name} .*not of {other.user.name}"):
        replace(other.user, secret=case.user.secret).rotate(grace_days=0)


def test_rotate_output_contains_no_private_key(
    new_case: Callable[[], Case],
    wire: Wire,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
):
    case = new_case()
    outputs: list[str] = []
    lines: set[str] = set()

    def attempt(command: Callable[[], Any], dies_at: int = 1000) -> None:
        try:
            with caplog.at_level(logging.DEBUG), wire.fault(dies_at):
                outputs.append(repr(command()))
        except (Killed, LakehouseError) as error:
            outputs.extend(traceback.format_exception(error))
        for version in case.versions().values():
            lines.update(version["private_key"].splitlines()[1:-2])

    attempt(case.user.install)
    for request in range(1, 20):
        attempt(lambda: case.user.rotate(0), dies_at=request)
    attempt(lambda: replace(case.user, role="NOBODYS").rotate(0))
    attempt(lambda: case.user.secrets.read(case.user.secret))
    outputs += [repr(case.user), caplog.text, *capfd.readouterr()]
    text = "\n".join(outputs)
    for what in ("SecretJson", "Killed", "NOBODYS", "Making request for OperationModel(name=GetSecretValue)"):
        assert what in text
    assert len(lines) > 50
    assert [line for line in lines if line in text] == []
