"""Rotation of API keys of Confluent Cloud: several keys of one account and API, of different ages, overlap.

A rotation creates a key, stores it as the secret's pending version at once, waits until its API accepts it, and
makes the pending version the current one. The previous key keeps working for runs that hold it. A key beyond those
retained is deleted when it has been out of the secret for a grace period.

An interruption anywhere is safe: a key is used only once the secret holds it. A key in no version was created and not
stored, and is deleted; the next call continues with a pending one; a single call moves the label. Of two rotations at
once, one stops with a conflict: each deletes only keys that are older than the version that it knows as current, so
never the other's. A key that somebody deletes between two calls is looked up again before it becomes the current one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from lakehouse.core.errors import UnclearState
from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.confluent.account_key import AccountKey
from lakehouse.deploy.confluent.api_keys import ApiKeyResource
from lakehouse.deploy.planner import naming_resource, needed_by, read_all
from lakehouse.deploy.resource import Outputs, Resource
from resources.aws.secrets_manager import CURRENT, PENDING, PREVIOUS, Version
from resources.confluent.api_client import Key


@dataclass(frozen=True)
class Rotated:
    """The result of the rotation of one key."""

    address: str
    """Of the key's resource."""
    key_id: str
    """Of the key that the secret holds now."""
    is_new: bool
    deleted: tuple[str, ...]
    """Ids of the keys that no longer work."""


def rotate(
    resources: Sequence[Resource[Any]],
    *,
    day_count: float = 30,
    retained: int = 2,
    grace_days: float = 1,
    known: Outputs | None = None,
    clock: Clock = SYSTEM_CLOCK,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Iterator[Rotated]:
    """Replace every key that is old enough, or finish an interrupted rotation; delete keys beyond those retained.

    Args:
        resources: A deployment.
        day_count: The age in days at which the newest key is replaced.
        retained: Number of keys that stay valid for each account and API, besides one in its grace period.
        grace_days: How many days a key keeps working after the secret held it last.
        known: Outputs of resources that the caller's account may not read.
        clock: Measures how long a new key is waited for.
        now: Returns the time by which ages are computed.

    Yields:
        The result for each key, before the next one is rotated.
    """
    if retained < 1:
        raise ValueError("the key in use is always retained")
    rule = _Rule(timedelta(days=day_count), retained, timedelta(days=grace_days), clock, now)
    outputs = read_all(needed_by(resources, ApiKeyResource), known)
    keys = [resource for resource in resources if isinstance(resource, ApiKeyResource)]
    for key in keys:
        if key not in outputs:
            raise UnclearState(
                f"{key.label} does not exist. Nothing was rotated. Run `lakehouse deploy create`, which creates it"
            )
    for key in keys:
        with naming_resource(key):
            rotated = rule.apply(key.address, key.account_key(outputs))
        yield rotated


@dataclass(frozen=True)
class _Rule:
    day_count: timedelta
    retained: int
    grace: timedelta
    clock: Clock
    now: Callable[[], datetime]

    def apply(self, address: str, key_store: AccountKey) -> Rotated:
        key_store.delete_strays(self.now())
        current = key_store.version(CURRENT)
        if current is None:
            raise UnclearState(
                f"The secret '{key_store.secret}' was deleted during the rotation. Its key was not replaced. Restore "
                f"it or run `lakehouse deploy create`, which names what can be done about its keys"
            )
        assert current.created_at is not None, "it was read"
        expendable = self._expendable(key_store, current)
        # A process may have been suspended before it made the version current.
        changed_at = max(current.created_at, key_store.secrets.changed_at(key_store.secret))
        deleted = expendable if self.now() >= changed_at + self.grace else []
        for key_id in deleted:
            key_store.api_keys.delete(key_id, key_store.owner_id)
        if deleted:
            # An operator may have made the version of a deleted key current meanwhile: that key is replaced.
            current = key_store.version(CURRENT) or current
        key, pending = key_store.key(current), _pending(key_store)
        # A key in its grace period delays the rotation: never more than one key works beyond those retained.
        is_due = pending or self._is_old(key_store, key) and deleted == expendable
        if is_due:
            key = pending or key_store.create_pending()
            key_store.wait_until_accepted(key, self.clock)
            # Written again, so that the version's age is the time since it became current.
            key_store.make_current(key, over=current)
        return Rotated(address, key.id, bool(is_due), tuple(deleted))

    def _is_old(self, key_store: AccountKey, key: Key) -> bool:
        listed = key_store.api_keys.find(key.id)
        return listed is None or self.now() >= listed.created_at + self.day_count

    def _expendable(self, key_store: AccountKey, current: Version) -> list[str]:
        """List the ids of the keys beyond those retained. The current and the previous key are retained first."""
        previous = key_store.version(PREVIOUS)
        newest_first = {key.id: key.created_at for key in reversed(key_store.existing())}
        labelled = key_store.ids([current, *([previous] if previous else [])])
        ranked = list(dict.fromkeys([*labelled, *newest_first]))
        pending = _pending(key_store)
        assert current.created_at is not None, "it was read"
        older = {key_id for key_id, created_at in newest_first.items() if created_at < current.created_at}
        return [
            key_id for key_id in ranked[self.retained :] if key_id in older and not (pending and pending.id == key_id)
        ]


def _pending(key_store: AccountKey) -> Key | None:
    """Return the key of an unfinished rotation."""
    version = key_store.version(PENDING)
    # The label stays on a version that was promoted.
    return None if version is None or version.stages & {CURRENT, PREVIOUS} else key_store.usable(version)
