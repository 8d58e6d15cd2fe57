"""plan, create and delete: the same steps, looked at, walked forward, and walked backward."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from lakehouse.core.errors import LakehouseError, OutcomeUnknownError, UnclearState
from lakehouse.deploy.step import Found, Step

Verb = Literal["create", "change", "keep", "delete", "absent", "unknown"]


@dataclass(frozen=True)
class Action:
    """What is, or would be, done about a step, and why. `seconds` is how long it took; None while nothing was done."""

    step: Step
    verb: Verb
    why: str
    seconds: float | None = None


Tell = Callable[[Action], None]
"""Called twice for each change: before it, and after it with its duration; once for what needs none."""


def plan(steps: Sequence[Step]) -> Iterator[Action]:
    """What `create` would do. Nothing is changed.

    Raises: what the steps' `find` and `differences` raise.
    """
    found: dict[str, Any] = {}
    for step in checked(steps):
        yield _intended(step, found)


def survey(steps: Sequence[Step]) -> Iterator[Action]:
    """As `plan`, but a cloud that cannot be asked hides no other: from its first step that fails on, its steps are
    `unknown`, with the reason, and so is what comes after one of them. It is not asked again: each answer may take as
    long as a time-out, and a refused sign-in that is repeated may lock an account.

    Raises: UnclearState when something is there that is not the deployment's.
    """
    found: dict[str, Any] = {}
    closed: dict[str, str] = {}
    unknown: set[str] = set()
    for step in checked(steps):
        cloud = step.name.partition("/")[0]
        before = [name for name in step.needs if name in unknown]
        if cloud in closed or before:
            action = Action(step, "unknown", closed.get(cloud) or f"comes after {', '.join(before)}")
        else:
            try:
                with naming_step(step):
                    action = _intended(step, found)
            except UnclearState:
                raise
            except LakehouseError as error:
                closed[cloud] = f"as {step.what}"
                action = Action(step, "unknown", str(error))
        if action.verb == "unknown":
            unknown.add(step.name)
        yield action


def create(steps: Sequence[Step], tell: Tell) -> Found:
    """Make what is missing and change what differs, in order; returns all that is there then.

    Killed anywhere, or failed, it goes on when it is called again.

    Raises: LakehouseError that names the step.
    """
    found: dict[str, Any] = {}
    for step in checked(steps):
        with naming_step(step):
            _ensure(step, found, tell)
    return found


def plan_deletion(steps: Sequence[Step], *, delete_data: bool) -> Iterator[Action]:
    """What `delete` would do, in its order. Nothing is changed.

    Parameters: `delete_data`, whether what holds data goes too.
    """
    found = all_found(steps)
    for step in reversed(steps):
        yield _fate(step, found, delete_data)


def delete(steps: Sequence[Step], tell: Tell, *, delete_data: bool) -> None:
    """Take away what is there, the last first. What is gone is passed over.

    Parameters: as `plan_deletion`.
    Raises: LakehouseError that names the step; what comes before it in the list is still there then.
    """
    found = all_found(steps)
    for step in reversed(steps):
        # Asked now and not before: what is in a thing may have gone with the steps after it.
        action = _fate(step, found, delete_data)
        tell(action)
        if action.verb == "delete":
            began = time.monotonic()
            with naming_step(step):
                step.delete(_needed(step, found), found[step.name])
            tell(Action(step, "delete", action.why, time.monotonic() - began))


def checked(steps: Sequence[Step]) -> Sequence[Step]:
    """The steps.

    Raises: ValueError when two have one name, or one comes before what it needs.
    """
    before: set[str] = set()
    for step in steps:
        if step.name in before or not before.issuperset(step.needs):
            raise ValueError(f"step {step.name} is there twice, or before one of {step.needs}")
        before.add(step.name)
    return steps


@contextmanager
def naming_step(step: Step) -> Iterator[None]:
    """Add the step to errors as a note."""
    try:
        yield
    except LakehouseError as error:
        error.add_note(f"Step: {step.name} ({step.what})")
        raise


def _ensure(step: Step, found: dict[str, Any], tell: Tell) -> None:
    began, action = time.monotonic(), _intended(step, found)
    tell(action)
    needed = _needed(step, found)
    if action.verb == "create":
        found[step.name] = _made(step, needed)
    elif action.verb == "change":
        found[step.name] = step.change(needed, found[step.name])
    found[step.name] = step.settle(needed, found[step.name])
    if action.verb != "keep":
        tell(Action(step, action.verb, action.why, time.monotonic() - began))


def _made(step: Step, needed: Found) -> Any:
    try:
        return step.create(needed)
    except OutcomeUnknownError:
        # The answer was lost: making it again, before looking, could make two.
        it = step.find(needed)
        if it is None:
            raise
        return it


def _intended(step: Step, found: dict[str, Any]) -> Action:
    """What is to be done about a step; what was found is put into `found`."""
    if missing := [name for name in step.needs if name not in found]:
        return Action(step, "create", f"comes after {', '.join(missing)}")
    needed = _needed(step, found)
    it = step.find(needed)
    if it is None:
        return Action(step, "create", "is not there")
    found[step.name] = it
    differences, remark = step.differences(needed, it), step.remark(needed, it)
    if differences:
        return Action(step, "change", "; ".join([*differences, *([remark] if remark else ())]))
    return Action(step, "keep", remark or "is as it should be")


def all_found(steps: Iterable[Step]) -> dict[str, Any]:
    """All that is there. What lives in something that is gone is gone with it."""
    found: dict[str, Any] = {}
    for step in steps:
        if all(name in found for name in step.lives_in):
            with naming_step(step):
                it = step.find(_needed(step, found))
            if it is not None:
                found[step.name] = it
    return found


def _fate(step: Step, found: Found, delete_data: bool) -> Action:
    if step.name not in found:
        return Action(step, "absent", "is not there")
    if step.holds_data and not delete_data:
        return Action(step, "keep", "holds data (--delete-data deletes it, too)")
    if why := step.kept(_needed(step, found), found[step.name]):
        return Action(step, "keep", why)
    return Action(step, "delete", "belongs to the deployment")


def _needed(step: Step, found: Found) -> Found:
    return {name: found[name] for name in step.needs if name in found}
