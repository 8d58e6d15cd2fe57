"""Schedules of the cloud set-up (../README.md), and single defects that they found."""

from __future__ import annotations

import inspect
import sys
from copy import deepcopy

import pytest

from lakehouse.core.errors import CommitConflict, UnclearState
from lakehouse.core.polling import Clock
from lakehouse.deploy.planning.planner import apply
from lakehouse.deploy.rotation import Policy, rotate
from tests.simulation.choices import Choices
from tests.simulation.deployment.clouds import OURS, Clouds, CloudWorld, simulated_clouds
from tests.simulation.deployment.operators import Operators
from tests.simulation.deployment.oracle import Oracle
from tests.simulation.deployment.schedule import DeploymentSchedule, established, narrow
from tests.simulation.schedule import run


@pytest.mark.parametrize("seed", range(6))
def test_deployment_schedule_of_seed_keeps_all_promises(seed):
    outcome = run(Choices(seed), DeploymentSchedule)
    assert not outcome.violation, "\n".join(outcome.world.trace)


def test_recorded_choices_replay_the_deployment_schedule():
    outcome = run(Choices(7), DeploymentSchedule)
    assert run(Choices(None, outcome.drawn), DeploymentSchedule).world.trace == outcome.world.trace


def test_simulation_runs_the_functions_of_planner_and_rotation():
    from lakehouse.deploy import resource, rotation
    from lakehouse.deploy.confluent.keys import account_key, key_rotation, stored_api_keys
    from lakehouse.deploy.planning import planner
    from lakehouse.deploy.snowflake import key_pair, key_pair_rotation
    from resources.aws import secrets_manager
    from resources.confluent import api_client, waiting
    from resources.snowflake import snowflake_connection

    deployment = planner, resource, rotation, account_key, stored_api_keys, key_rotation, key_pair, key_pair_rotation
    modules = *deployment, secrets_manager, snowflake_connection, api_client, waiting
    classes = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    }
    before = {replaced: dict(vars(replaced)) for replaced in (*modules, *classes)}
    with simulated_clouds(CloudWorld(Choices(None)), Clouds()):
        for replaced, names in before.items():
            changed = {name for name, value in vars(replaced).items() if value is not names.get(name)}
            # Only the clock, which the modules import by this name.
            assert changed <= {"datetime"}
            for value in vars(replaced).values():
                if inspect.isfunction(value) and value.__module__ in sys.modules and "lakehouse" in value.__module__:
                    module = sys.modules[value.__module__]
                    assert inspect.unwrap(value).__code__.co_filename in (module.__file__, "<string>")


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
        in_process(world, lambda: list(rotate(narrow(clouds.resources(world)), Policy(), simulated(world))))
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
                list(rotate(narrow(clouds.resources(world)), policy, simulated(world)))

    def work() -> None:
        resources = narrow(clouds.resources(world))
        if command == "rotate":
            list(rotate(resources, policy, simulated(world)))
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


def simulated(world: CloudWorld) -> Clock:
    return Clock(now=lambda: world.true_now, sleep=world.sleep)


def in_process(world: CloudWorld, work) -> None:
    process = world.start("rotate", work)
    while process in world.processes:
        world.step(process)
    assert process.result is None
