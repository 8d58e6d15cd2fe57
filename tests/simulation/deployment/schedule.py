"""The events of a deployment's schedule: commands of operators, mistakes, time; then recovery, and the judgement."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

from lakehouse.core.errors import UnclearState
from lakehouse.deploy.planner import Change, apply, destroy, plan
from lakehouse.deploy.resource import Resource
from lakehouse.deploy.rotation import Policy, rotate
from tests.simulation.choices import Choices
from tests.simulation.deployment.clouds import OURS, THEIRS, Clouds, CloudWorld, simulated_clouds
from tests.simulation.deployment.operators import HOURS, Operators
from tests.simulation.deployment.oracle import Oracle
from tests.simulation.oracles.oracle import Violation
from tests.simulation.world import Process

EVENTS = 12
"""Maximum number of events of a schedule."""
ATTEMPTS = 25
"""Maximum number of commands until a deployment has recovered."""
NARROW = ("confluent/key/spark/kafka", "confluent/key/app_manager/kafka", "snowflake/key")
"""With what they depend on, a part of a deployment that has everything about keys, and takes a quarter of the time."""


class DeploymentSchedule:
    """One schedule, whose choices decide everything."""

    def __init__(self, choices: Choices):
        self.world = CloudWorld(choices)
        is_established, self._is_narrow = not choices.happens(20), not choices.happens(15)
        self._clouds = deepcopy(established(self._is_narrow)) if is_established else Clouds()
        retained, grace_days = choices.of((2, 1, 3)), choices.of((1.0, 0.25))
        self._policy = Policy(day_count=30, retained=retained, grace_days=grace_days)
        self.oracle = Oracle(self.world, self._clouds, grace_days)
        self._operators = Operators(self.world, self._clouds, self.oracle)
        self._is_established, self._attempts = is_established, ATTEMPTS

    def run(self) -> None:
        """Run all events and the recovery.

        Raises:
            Violation: A promise was broken.
        """
        world, choices, state = self.world, self.world.choices, self._clouds.confluent.state
        with simulated_clouds(world, self._clouds):
            state.list_lag, state.key_lag, state.role_lag = (choices.below(4) for _ in range(3))
            if choices.happens(50):
                self._operators.add_foreign_objects()
            with self.oracle.operator_acts():
                pass
            world.fault_percent, world.switch_percent = choices.of((0, 1, 4, 12)), choices.of((0, 3, 15))
            for _ in range(choices.below(EVENTS)):
                self._event()
                if self.oracle.violations:
                    break
            else:
                self._recover()
            self._end_processes()
        if self.oracle.violations:
            raise Violation("; ".join(dict.fromkeys(self.oracle.violations)))

    # Events

    def _event(self) -> None:
        world, choices = self.world, self.world.choices
        match choices.below(12):
            case 0 | 1:
                self._pass_time(choices.of((600.0, 2 * HOURS, 26 * HOURS)))
            case 2 | 3:
                self._pass_time(31 * 24 * HOURS)
                self._start("rotate")
            case 4 | 5:
                self._start("rotate")
            case 6:
                self._start("create")
            case 7:
                self._operators.err()
            case 8:
                self._operators.add_manual_key()
            case 9:
                others = ("other create", "other rotate", "other delete")
                self._start(choices.of(("plan", *others) if self._is_established else ("plan",)))
            case 10:
                if choices.happens(15):
                    self._start("delete")
            case _:
                for process in list(world.processes):
                    if process.name == "rotate" and choices.happens(30):
                        process.machine.is_killed = True
        for _ in range(choices.below(3) + 1):
            self._step()

    def _start(self, name: str) -> None:
        self.world.record(f"start {name}")
        kind = name.rpartition(" ")[2]
        command = getattr(self, f"_{kind}")
        process = self.world.start(name, lambda: command(THEIRS if name.startswith("other") else OURS))
        process.machine.skew = self.world.choices.of((0.0, 0.0, -20.0, 20.0, -3600.0, 3600.0))

    def _step(self) -> None:
        if processes := self.world.processes:
            self._step_one(self.world.choices.of(processes))

    def _step_one(self, process: Process) -> None:
        self.world.step(process)
        if process not in self.world.processes and isinstance(process.result, Exception):
            self.oracle.read_error(process, "".join(traceback.format_exception(process.result)))

    def _pass_time(self, seconds: float) -> None:
        # A request does not stay in the network for longer, and no command is suspended between two calls for longer.
        for process in list(self.world.processes):
            if not process.name.startswith("late") and seconds > HOURS:
                process.machine.is_killed = self.world.choices.happens(50)
            while process in self.world.processes and (seconds > HOURS or process.name.startswith("late")):
                self._step_one(process)
        self.world.record(f"{seconds / HOURS:g} hours pass")
        self.world.advance(seconds)
        if seconds > HOURS:
            # Lists show by now what was created before.
            self._clouds.confluent.state.list_everything()
        self.oracle.observe("time")

    # Commands

    def _resources(self, region: str) -> list[Resource[Any]]:
        resources = self._clouds.resources(self.world, region)
        return narrow(resources) if self._is_narrow else resources

    def _report(self, change: Change) -> None:
        if change.action != "no-op":
            self.world.record(f"  {change.action} {change.resource.address}: {change.reason}")
        self.oracle.read_output(f"{change.resource.label}: {change.reason}")

    def _create(self, region: str) -> None:
        apply(self._resources(region), self._report)

    def _plan(self, region: str) -> None:
        for change in plan(self._resources(region)):
            self._report(change)

    def _rotate(self, region: str) -> None:
        for line in rotate(self._resources(region), self._policy):
            self.world.record(f"  {line}")
            self.oracle.read_output(line)

    def _delete(self, region: str) -> None:
        if region == OURS:
            self._begin_deletion()
        destroy(self._resources(region), self._report, delete_data=True)

    def _begin_deletion(self) -> None:
        state = self._clouds.confluent.state
        self.oracle.is_deleting, self._is_established = True, False
        self.oracle.expect_nothing_of_programs()
        self.oracle.release_in_deployment(state.keys)
        for slots in self._clouds.snowflake.slots.values():
            self.oracle.release(slots)

    # Recovery

    def _recover(self) -> None:
        """End all faults and run the commands that errors name, until the deployment is as declared, then delete it."""
        world = self.world
        world.record("faults end")
        world.fault_percent = world.switch_percent = 0
        self._end_processes()
        self._pass_time(4 * HOURS)
        if not self._until_done("create", self._create):
            return
        self.oracle.is_deleting = False
        with self.oracle.operator_acts():
            pass
        if world.choices.below(2):
            self._until_done("rotate", self._rotate)
        self._pass_time(40 * 24 * HOURS)
        self._until_done("rotate", self._rotate)
        self._require_working_keys()
        if world.choices.below(2):
            self._require_empty_plan()
        if not self.oracle.violations and world.choices.happens(25):
            self._until_done("delete", self._delete)
            self._require_nothing_left()

    def _until_done(self, name: str, command: Callable[[str], None]) -> bool:
        """Run a command, and after an error what it names and `create`, until it succeeds."""
        while self._attempts:
            self._attempts -= 1
            error = self._run(name, command)
            if error is None or self.oracle.violations:
                return error is None
            if f" {THEIRS}', not" in str(error):
                # The other deployment created an object of this name after a deletion. Only another name of this
                # deployment resolves it.
                return False
            if not self._operators.follow(error):
                self.oracle.violations.append(f"{name} is blocked, and its error names no command: {error}")
                return False
            if name == "rotate" and isinstance(error, UnclearState):
                self._until_done("create", self._create)
        self.oracle.violations.append(f"{name} still fails after {ATTEMPTS} commands")
        return False

    def _run(self, name: str, command: Callable[[str], None]) -> BaseException | None:
        self.world.record(f"run {name}")
        process = self.world.start(name, lambda: command(OURS))
        while process in self.world.processes:
            self._step_one(process)
        return process.result

    def _require_empty_plan(self) -> None:
        if self.oracle.violations:
            return
        changes: list[Change] = []
        error = self._run("plan", lambda region: changes.extend(plan(self._resources(region))))
        if error:
            self.oracle.violations.append(f"plan fails after recovery: {error}")
        for change in changes:
            if change.action != "no-op":
                self.oracle.violations.append(
                    f"the plan is not empty: {change.action} {change.resource.address}: {change.reason}"
                )

    def _require_working_keys(self) -> None:
        for resource in self._resources(OURS):
            name = getattr(resource, "secret", None)
            if name is None and resource.address == "snowflake/key":
                name = self._clouds.names().snowflake_secret
            if name and not ((credential := self.oracle.credential(name)) and self.oracle.works(credential)):
                self.oracle.violations.append(f"after recovery, {name} names no key that works")

    def _require_nothing_left(self) -> None:
        state, left = self._clouds.confluent.state, []
        kinds = ("environments", "clusters", "accounts", "bindings", "keys", "topics", "acls")
        for kind in kinds:
            objects = getattr(state, kind)
            left += [f"{kind} {name}" for name in objects if not self.oracle.is_foreign(objects, name)]
        secrets = self._clouds.secrets[OURS].secrets
        left += [
            name for name in secrets if secrets[name].deleted is None and not self.oracle.is_foreign(secrets, name)
        ]
        users = self._clouds.snowflake.users
        left += [name for name in users if not self.oracle.is_foreign(users, name)]
        if left and not self.oracle.violations:
            self.oracle.violations.append(f"delete left {', '.join(left)}")

    def _end_processes(self) -> None:
        for process in list(self.world.processes):
            while process in self.world.processes:
                if self.oracle.violations:
                    process.machine.is_killed = True
                self._step_one(process)


def narrow(resources: Sequence[Resource[Any]]) -> list[Resource[Any]]:
    """Return the resources of `NARROW` with all that they depend on."""
    wanted = {"aws/secrets", *NARROW}
    for resource in reversed(resources):
        if resource.address in wanted:
            wanted |= {dependency.address for dependency in resource.depends_on}
    return [resource for resource in resources if resource.address in wanted]


@cache
def established(is_narrow: bool) -> Clouds:
    """Return clouds with a deployment that was created without faults."""
    world, clouds = CloudWorld(Choices(None)), Clouds()
    with simulated_clouds(world, clouds):
        resources = clouds.resources(world)
        apply(narrow(resources) if is_narrow else resources, lambda change: None)
    return clouds
