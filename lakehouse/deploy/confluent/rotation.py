"""Rotation of API keys of Confluent Cloud: several keys of one account and plane, of different ages, overlap.

A rotation: a new key is made and becomes the secret's pending version at once; its plane takes it; the pending version
becomes the current one. The key before goes on working, for runs that hold it. A key older than those retained is
deleted when it has been out of the secret for a grace.

Why it may be killed anywhere: a key is used only when it is in the secret. One that is in no version of it was made
and not stored, and is deleted; a pending one is taken up by the next call; one call moves the label. One rotation of a
deployment at a time: two at once could delete each other's key before it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakehouse.core.errors import UnclearState
from lakehouse.core.polling import REAL, Clock
from lakehouse.deploy.confluent.account_key import AccountKey
from lakehouse.deploy.confluent.keys import KeyStep
from lakehouse.deploy.planner import all_found, naming_step
from lakehouse.deploy.step import Step
from resources.confluent.plane import Key
from resources.secrets_manager import CURRENT, PENDING, PREVIOUS


@dataclass(frozen=True)
class Rotated:
    """What a rotation did about one key."""

    step: str
    """Name of the key's step."""
    key_id: str
    """Of the key that the secret has now."""
    is_new: bool
    deleted: tuple[str, ...]
    """Ids of keys that work no longer."""


def rotate(
    steps: Sequence[Step],
    *,
    day_count: float = 30,
    retained: int = 2,
    grace_days: float = 1,
    clock: Clock = REAL,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> list[Rotated]:
    """Replace every key that is old enough, or finish a rotation that was killed; delete keys beyond those retained.

    Parameters: a deployment's steps; how many days old the newest key becomes; how many keys of an account and plane
    go on working, besides one in its grace; how many days a key works after the secret has had it last.
    Raises: UnclearState when a key is not there; CommitConflict when somebody else changed a secret; LakehouseError;
    Unreachable.
    """
    if retained < 1:
        raise ValueError("the key in use is always retained")
    rule = _Rule(timedelta(days=day_count), retained, timedelta(days=grace_days), clock, now)
    found = all_found(steps)
    rotated = []
    for step in steps:
        if isinstance(step, KeyStep):
            if step.name not in found:
                raise UnclearState(
                    f"{step.what} is not there, or was deleted. It was left as it is. Run `lakehouse deploy create`, "
                    f"which makes it anew"
                )
            kept = step.account_key(found)
            with naming_step(step):
                rotated.append(rule.apply(step.name, kept))
    return rotated


@dataclass(frozen=True)
class _Rule:
    day_count: timedelta
    retained: int
    grace: timedelta
    clock: Clock
    now: Callable[[], datetime]

    def apply(self, step: str, kept: AccountKey) -> Rotated:
        kept.delete_strays()
        current = kept.version(CURRENT)
        assert current is not None and current.created_at is not None, "the step that was found reads this version"
        expendable = self._expendable(kept)
        deleted = expendable if self.now() >= current.created_at + self.grace else []
        for key_id in deleted:
            kept.api_keys.delete(key_id)
        key, pending = kept.key(current), _pending(kept)
        # A key in its grace is waited for: there are never more than one beyond those retained.
        is_due = pending or self._is_old(kept, key) and deleted == expendable
        if is_due:
            key = pending or _made(kept)
            kept.prove(key, self.clock)
            # Written once more, so that the version is as old as its being current.
            kept.secrets.promote(
                kept.secret, kept.secrets.put_pending(kept.secret, kept.layout.write(key)), over=current
            )
        return Rotated(step, key.id, bool(is_due), tuple(deleted))

    def _is_old(self, kept: AccountKey, key: Key) -> bool:
        there = kept.api_keys.find(key.id)
        return there is not None and self.now() >= there.created_at + self.day_count

    def _expendable(self, kept: AccountKey) -> list[str]:
        """Ids of the keys beyond those retained: first of all the current and the previous one are."""
        labelled = [version for stage in (CURRENT, PREVIOUS) if (version := kept.version(stage))]
        newest_first = [each.id for each in reversed(kept.ours())]
        ranked = list(dict.fromkeys([*(kept.key(version).id for version in labelled), *newest_first]))
        pending = _pending(kept)
        beyond = ranked[self.retained :]
        return [each for each in beyond if each in newest_first and not (pending and pending.id == each)]


def _made(kept: AccountKey) -> Key:
    key = kept.make()
    kept.secrets.put_pending(kept.secret, kept.layout.write(key))
    return key


def _pending(kept: AccountKey) -> Key | None:
    """The key of a rotation that was not finished."""
    version = kept.version(PENDING)
    # The label stays on a version that was promoted.
    return None if version is None or version.stages & {CURRENT, PREVIOUS} else kept.usable(version)
