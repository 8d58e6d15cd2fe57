"""Schedules of the cloud set-up (../README.md), and single defects that they found."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from lakehouse.core.errors import CommitConflict, UnclearState
from lakehouse.deploy.planner import apply
from lakehouse.deploy.resource import Resource
from lakehouse.deploy.rotation import Policy, rotate
from lakehouse.deploy.waiting import TimedOut
from tests.simulation.choices import Choices
from tests.simulation.deployment.clouds import OURS, Clouds, CloudWorld, simulated_clouds
from tests.simulation.deployment.operators import Operators
from tests.simulation.deployment.oracle import Credential, Oracle
from tests.simulation.deployment.schedule import DeploymentSchedule, established, narrow
from tests.simulation.schedules.schedule import run
from tests.simulation.world import Killed


@pytest.mark.parametrize("seed", range(6))
def test_deployment_schedule_of_seed_keeps_all_promises(seed):
    outcome = run(Choices(seed), DeploymentSchedule)
    assert not outcome.violation, "\n".join(outcome.world.trace)


def test_recorded_choices_replay_the_deployment_schedule():
    outcome = run(Choices(7), DeploymentSchedule)
    assert run(Choices(None, outcome.drawn), DeploymentSchedule).world.trace == outcome.world.trace


def test_rotate_suspended_before_promotion_begins_grace_afterwards():
    world, clouds, resumed = CloudWorld(Choices(None)), deepcopy(established(True)), []

    def suspend(operation: str) -> None:
        if operation == "snowflake login" and not resumed:
            resumed.append(operation)
            world.advance(26 * 3600)

    with simulated_clouds(world, clouds):
        oracle = Oracle(world, clouds, grace_days=1)
        with oracle.operator_acts():
            pass
        world.advance(31 * 86_400)
        judge = world.observe
        world.observe = lambda operation: (judge(operation), suspend(operation))[0]
        in_process(world, lambda: list(rotate(narrow(clouds.resources(world)), Policy())))
    assert resumed and not oracle.violations


@pytest.mark.parametrize("retained", [1, 2])
@pytest.mark.parametrize("command", ["rotate", "create"])
def test_command_suspended_anywhere_beside_rotations_ends_no_key(command: str, retained: int):
    at, call_count, outcomes = 0, 1, set()
    while at < call_count:
        at += 1
        call_count, outcome, violations = suspended_beside_rotations(command, Policy(retained=retained), at)
        outcomes.add(outcome)
        assert not violations, f"suspended after call {at}"
    assert at > 20 and outcomes <= {type(None), CommitConflict, UnclearState}


def suspended_beside_rotations(command: str, policy: Policy, at: int) -> tuple[int, type, list[str]]:
    """Run a command and, after one of its calls, two rotations; return its number of calls, outcome and violations."""
    world, clouds = CloudWorld(Choices(None)), deepcopy(established(True))
    calls: list[str] = []

    def observe(operation: str) -> None:
        judge(operation)
        calls.append(operation)
        if len(calls) == at:
            for _ in range(2):
                list(rotate(narrow(clouds.resources(world)), policy))

    def work() -> None:
        resources = narrow(clouds.resources(world))
        if command == "rotate":
            list(rotate(resources, policy))
        else:
            apply(resources, lambda change: None)

    with simulated_clouds(world, clouds):
        oracle = Oracle(world, clouds, grace_days=1)
        with oracle.operator_acts():
            pass
        world.advance(31 * 86_400)
        judge, world.observe = world.observe, observe
        process = world.start(command, work)
        while process in world.processes:
            world.step(process)
    return len(calls), type(process.result), oracle.violations


def test_rotate_key_stored_after_hours_is_not_used_and_deleted():
    at, call_count = 0, 1
    while at < call_count:
        at += 1
        call_count, outcomes, violations = stored_after_hours(at)
        assert not violations and outcomes[0] is CommitConflict, f"suspended after call {at}"
        assert {*outcomes} <= {type(None), CommitConflict}
    assert at > 20


def stored_after_hours(at: int) -> tuple[int, list[type], list[str]]:
    """Suspend a rotation for hours before it stores a key, end it after a call of a second one, and run a third one.

    Returns:
        The number of calls of the second rotation, the outcomes, and the violations.
    """
    calls: list[str] = []

    class SuspendingWorld(CloudWorld):
        def call(self, operation, effect, error):
            if self.current is first and operation == "secretsmanager put_secret_value":
                self.wait(lambda: len(calls) >= at)
            return super().call(operation, effect, error)

    world, clouds = SuspendingWorld(Choices(None)), deepcopy(established(True))

    def observe(operation: str) -> None:
        judge(operation)
        if world.current is second:
            calls.append(operation)
            if len(calls) == at:
                world.wait(lambda: third not in world.processes)

    def work() -> None:
        if world.current is third:
            world.wait(lambda: first not in world.processes)
        list(rotate(narrow(clouds.resources(world)), Policy()))

    with simulated_clouds(world, clouds):
        oracle = Oracle(world, clouds, grace_days=1)
        with oracle.operator_acts():
            pass
        judge, world.observe = world.observe, observe
        world.advance(31 * 86_400)
        first, second, third = processes = [world.start("rotate", work) for _ in range(3)]
        for process in (third, first):
            world.step(process)
        world.advance(4 * 3600)
        while world.processes:
            world.step(world.ready()[-1])
    return len(calls), [type(process.result) for process in processes], oracle.violations


@pytest.mark.parametrize("secret", ["kafka_cluster/spark/python_client", "/snowflake_resource/lake"])
@pytest.mark.parametrize(("day_count", "is_killed"), [(30, False), (30, True), (90, False)])
def test_rotate_beside_rollback_of_secret_ends_with_working_keys(secret: str, day_count: float, is_killed: bool):
    world, clouds = CloudWorld(Choices(None)), deepcopy(established(True))
    [name] = [name for name in clouds.secrets[OURS].secrets if name.endswith(secret)]
    with simulated_clouds(world, clouds):
        world.advance(31 * 86_400)
        list(rotate(narrow(clouds.resources(world)), Policy(retained=1)))
    at, call_count, outcomes = 0, 1, set()
    while at < call_count:
        at += 1
        rollback = RollbackBesideRotation(deepcopy(clouds), name, at, is_killed)
        outcomes.add(rollback.run(Policy(day_count, retained=1)))
        call_count = rollback.call_count
        assert rollback.is_harmless(), f"rolled back after call {at}"
    assert at > 20 and (Killed in outcomes) is is_killed
    assert outcomes <= {type(None), CommitConflict, UnclearState, Killed}


class RollbackBesideRotation:
    """An operator who makes the previous version of a secret current again, after one of the calls of a rotation.

    Args:
        clouds: A deployment after a rotation.
        name: Name of the secret.
        at: The number of the call.
        is_killed: Kill the rotation after it has ended the key, and run what `create` names.
    """

    def __init__(self, clouds: Clouds, name: str, at: int, is_killed: bool):
        self.call_count = 0
        self._clouds, self._name, self._at, self._is_killed = clouds, name, at, is_killed
        self._world = CloudWorld(Choices(None))
        self._oracle = Oracle(self._world, clouds, grace_days=1)
        self._replaced: Credential | None = None
        self._worked = False
        self._world.observe = self._observe

    def run(self, policy: Policy) -> type:
        """Run the rotation after the grace period of the previous version, and repair the keys; return the outcome."""
        world = self._world
        with simulated_clouds(world, self._clouds):
            world.advance(62 * 86_400)
            process = world.start("rotate", lambda: list(rotate(self._resources(), policy)))
            while process in world.processes:
                world.step(process)
            if isinstance(process.result, Killed):
                self._repair()
        return type(process.result)

    def is_harmless(self) -> bool:
        """Return whether both keys work, unless the operator chose a key that did not."""
        assert self._replaced
        return self._oracle.works(self._replaced) and (self._is_working() or not self._worked)

    def _observe(self, operation: str) -> None:
        self.call_count += 1
        if self.call_count == self._at:
            self._replaced = self._oracle.credential(self._name)
            secret = self._clouds.secrets[OURS].secrets[self._name]
            secret.move("AWSCURRENT", secret.labels["AWSPREVIOUS"], self._world.true_now)
            self._worked = self._is_working()
        for process in self._world.processes:
            process.machine.is_killed |= self._is_killed and self._worked and not self._is_working()

    def _repair(self) -> None:
        operators = Operators(self._world, self._clouds, self._oracle)
        for _ in range(5):
            try:
                apply(self._resources(), lambda change: None)
                return
            except UnclearState as blocked:
                assert operators.follow(blocked)

    def _resources(self) -> list[Resource[Any]]:
        return narrow(self._clouds.resources(self._world))

    def _is_working(self) -> bool:
        key = self._oracle.credential(self._name)
        return key is not None and self._oracle.works(key)


@pytest.mark.parametrize("hours", [0, 3])
def test_rotate_beside_deletion_of_new_key_is_repaired_by_next_command(hours: float):
    at, call_count, outcomes = 0, 0, set()
    while call_count >= at:
        at += 1
        deletion = DeletionBesideRotation(at, hours)
        outcomes.add(deletion.run())
        call_count = deletion.call_count
        # No rotation can find out that a key is deleted immediately before it becomes the current one.
        assert not hours or not deletion.violations, f"deleted after call {at}"
        assert deletion.is_repaired(), f"deleted after call {at}"
    assert at > 20 and outcomes == {type(None), CommitConflict, TimedOut}


class DeletionBesideRotation:
    """An operator who deletes the key that a rotation has stored and not made current yet, after one of its calls.

    Args:
        at: The number of the call.
        hours: For how long the rotation is suspended there.
    """

    def __init__(self, at: int, hours: float):
        self.call_count = 0
        self._at, self._hours = at, hours
        self._world, self._clouds = CloudWorld(Choices(None)), deepcopy(established(True))
        self._oracle = Oracle(self._world, self._clouds, grace_days=1)
        self._judge = self._world.observe
        self._world.observe = self._observe

    @property
    def violations(self) -> list[str]:
        return self._oracle.violations

    def run(self) -> type:
        """Run the rotation, and return its outcome."""
        with simulated_clouds(self._world, self._clouds), self._oracle.operator_acts():
            self._world.advance(31 * 86_400)
        with simulated_clouds(self._world, self._clouds):
            process = self._world.start("rotate", self._rotate)
            while process in self._world.processes:
                self._world.step(process)
        return type(process.result)

    def is_repaired(self) -> bool:
        """Return whether all keys of secrets work after the next commands."""
        self._at = 0
        with simulated_clouds(self._world, self._clouds):
            apply(narrow(self._clouds.resources(self._world)), lambda change: None)
            self._rotate()
        names = [name for name in self._clouds.secrets[OURS].secrets if name.endswith("python_client")]
        return all((key := self._oracle.credential(name)) and self._oracle.works(key) for name in names)

    def _rotate(self) -> None:
        list(rotate(narrow(self._clouds.resources(self._world)), Policy()))

    def _observe(self, operation: str) -> None:
        self._judge(operation)
        self.call_count += 1
        if self.call_count == self._at:
            self._world.advance(self._hours * 3600)
            state, secrets = self._clouds.confluent.state, self._clouds.secrets[OURS]
            for name in secrets.secrets:
                pending = (secrets.value(name, "AWSPENDING") or {}).get("sasl.username")
                if pending in state.keys and pending != (secrets.value(name) or {}).get("sasl.username"):
                    with self._oracle.operator_acts(pending):
                        del state.keys[pending], state.secrets[pending]


def test_create_overwritten_secret_names_command_that_restores_key():
    world, clouds = CloudWorld(Choices(None)), deepcopy(established(True))
    store, names = clouds.secrets[OURS], clouds.names()
    for name in (f"{names.confluent_secrets}/kafka_cluster/spark/python_client", names.snowflake_secret):
        with simulated_clouds(world, clouds):
            oracle = Oracle(world, clouds, grace_days=1)
            key = oracle.credential(name)
            store.put(name, '{"note": "mine"}', ("AWSCURRENT",), world.true_now)
            with pytest.raises(UnclearState) as blocked:
                apply(narrow(clouds.resources(world)), lambda change: None)
            assert Operators(world, clouds, oracle).follow(blocked.value)
            apply(narrow(clouds.resources(world)), lambda change: None)
        assert oracle.credential(name) == key


def in_process(world: CloudWorld, work) -> None:
    process = world.start("rotate", work)
    while process in world.processes:
        world.step(process)
    assert process.result is None
