"""The key pair of a Snowflake service user, kept in AWS Secrets Manager, and its rotation through Snowflake's slots.

A rotation stores the new private key as the secret's pending version, sets its public key in the slot that is not in
use, logs in with it, and makes the pending version the current one. The old key logs in until `retire` unsets its slot.

An interruption anywhere is safe: the secret holds a private key before its public key is set in Snowflake, the slot of
the current key is never written, and a single call moves the label. The next call uses a pending key that was left
behind, so the other slot never holds a key whose private key is lost. The slot in use is read from Snowflake every
time. Of two rotations at once, one stops with a conflict, or both finish the same one: only the process that moves
AWSPENDING from the version that it read first may write a slot. A slot is read again immediately before it is written,
because Snowflake compares nothing: a key that somebody else has set meanwhile stays. Do not run `retire` beside a
rotation: it could unset the slot that was just written.

No call spans the two systems, so an operator may make an old version of the secret current again just before its key is
overwritten or unset. Afterwards the secret is read again, and such a key is set again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakehouse.core.errors import CommitConflict, LakehouseError, OutcomeUnknownError, UnclearState
from lakehouse.deploy.snowflake.key_pair import KeyPair
from resources.aws.secrets_manager import CURRENT, PENDING, PREVIOUS, Secrets, Version
from resources.snowflake import sql
from resources.snowflake.session import (
    Row,
    SnowflakeSession,
    UnknownForm,
    connect,
    fetched,
    location,
    parsed,
    properties,
    session_errors,
    text_of,
    unreachable,
)
from resources.snowflake.sql import KeySlot

if TYPE_CHECKING:
    from snowflake.connector.errors import Error


@dataclass(frozen=True)
class ServiceUser:
    """A Snowflake user with TYPE = SERVICE, the secret that holds its key, and the clients for both."""

    account: str
    """Account identifier, as `organization-account`."""
    name: str
    role: str
    secret: str
    """Name of the secret."""
    secrets: Secrets
    session: SnowflakeSession = field(repr=False)
    """An open session of a role that owns the user (docs: sql-reference/sql/alter-user)."""
    address: Mapping[str, Any] = field(default_factory=dict)
    """Host, port and protocol, as far as they are not the account's own."""

    def new_key(self, slot: KeySlot) -> KeyPair:
        """Return a new pair for this user."""
        return KeyPair.generate(account=self.account, user=self.name, role=self.role, slot=slot)


@dataclass(frozen=True)
class Keys:
    """The state of a user's keys."""

    active: KeySlot
    """The slot of the key that the secret holds."""
    fingerprint: str
    """Of the active key."""
    old_key_until: datetime | None
    """When `retire` may unset the other slot; None if it is empty."""


def install(user: ServiceUser) -> Keys:
    """Set the first key of a user without keys; a user that has the secret's key is unchanged."""
    if keys := installed(user):
        return keys
    user.secrets.create(
        user.secret,
        user.new_key(KeySlot.FIRST).written(user.secret),
        description=f"Key pair of Snowflake user {user.name} in {user.account}",
    )
    # The secret's, which may be from an interrupted call.
    _, key = _current(user)
    _require_unchanged(user, key.slot, None, key.fingerprint)
    _change(user, sql.set_public_key(user.name, key.public_key, key.slot))
    _log_in(user, key, f"The key is in {key.slot} of user {user.name}, and the secret '{user.secret}' names it")
    return _state(user, timedelta())


def installed(user: ServiceUser) -> Keys | None:
    """Return a user's keys; None if no slot has one."""
    return _state(user, timedelta()) if any(_slots(user).values()) else None


def rotate(user: ServiceUser, grace_days: float, day_count: float = 0) -> Keys:
    """Replace the key, or finish an interrupted rotation. Within the grace period of the last rotation, do nothing.

    Args:
        user: The user and its secret.
        grace_days: How many days a replaced key keeps logging in.
        day_count: The age in days at which a key is replaced.
    """
    grace = timedelta(days=grace_days)
    # Read before all else: as long as the label stays, no rotation has begun since.
    pending = user.secrets.read(user.secret, PENDING)
    current, key = _current(user)
    slots = _slots(user)
    target = _active(user, key, slots).other
    left_behind = _left_behind(user, pending, key)
    if not left_behind and _now() < key.created_at + timedelta(days=day_count):
        return _state(user, grace)
    if slots[target] and _label(user, target, slots[target]) == PREVIOUS and _now() < _replaced_at(user, key) + grace:
        return _state(user, grace)
    new = replace(left_behind or user.new_key(target), slot=target)
    user.secrets.claim_pending(user.secret, new.written(user.secret), over=pending)
    _require_unchanged(user, target, slots[target], new.fingerprint)
    _change(user, sql.set_public_key(user.name, new.public_key, target))
    _log_in(
        user,
        new,
        f"The new key is in {target} of user {user.name} and not in use; the key that the secret '{user.secret}' names "
        f"and its slot were left unchanged",
    )
    # The grace period counts from now, whenever a pending key was created.
    try:
        user.secrets.replace(user.secret, lambda: replace(new, created_at=_now()).written(user.secret), over=current)
    except CommitConflict:
        _set_current(user, target)
        raise
    return _state(user, grace)


def retire(user: ServiceUser, grace_days: float) -> Keys:
    """Unset the slot of the replaced key after its grace period. The key in use must log in first.

    Args:
        user: The user and its secret.
        grace_days: How many days after its replacement a key keeps logging in.
    """
    grace = timedelta(days=grace_days)
    _, key = _current(user)
    slots = _slots(user)
    old = _active(user, key, slots).other
    if slots[old] and _label(user, old, slots[old]) == PENDING:
        raise UnclearState(
            f"{old} of Snowflake user {user.name} has the pending key of the secret '{user.secret}': a rotation was "
            f"not finished. Both slots were left as they are. Run `lakehouse deploy rotate`, which finishes it"
        )
    if slots[old] and _now() >= _replaced_at(user, key) + grace:
        _log_in(user, key, f"Both slots of user {user.name} and the secret '{user.secret}' were left as they are")
        _require_unchanged(user, old, slots[old], None)
        _change(user, sql.unset_public_key(user.name, old))
        _set_current(user, old)
    return _state(user, grace)


def _require_unchanged(user: ServiceUser, slot: KeySlot, *fingerprints: str | None) -> None:
    """Stop if a slot has another key than the expected ones, immediately before it is written."""
    if _slots(user)[slot] not in fingerprints:
        raise CommitConflict(
            f"{slot} of Snowflake user {user.name} was changed meanwhile. The user's slots and the current version of "
            f"the secret '{user.secret}' were left as they are. Run the `lakehouse deploy` command again"
        )


def _set_current(user: ServiceUser, slot: KeySlot) -> None:
    """Set the key of the secret in a slot that was just overwritten or unset, unless a slot has the key."""
    _, key = _current(user)
    if key.fingerprint not in _slots(user).values():
        _change(user, sql.set_public_key(user.name, key.public_key, slot))


def _now() -> datetime:
    return datetime.now(UTC)


def _replaced_at(user: ServiceUser, key: KeyPair) -> datetime:
    """Return when a key replaced the one before, or later: a process may have been suspended before that."""
    return max(key.created_at, user.secrets.changed_at(user.secret))


def _state(user: ServiceUser, grace: timedelta) -> Keys:
    _, key = _current(user)
    slots = _slots(user)
    active = _active(user, key, slots)
    return Keys(active, key.fingerprint, _replaced_at(user, key) + grace if slots[active.other] else None)


def _current(user: ServiceUser) -> tuple[Version, KeyPair]:
    version = user.secrets.read(user.secret, CURRENT)
    if version is None:
        raise UnclearState(
            f"There is no secret '{user.secret}' in region {user.secrets.region}, so the private key of "
            f"Snowflake user {user.name} is lost. The user's slots were left as they are. If it was deleted, restore "
            f"it: aws secretsmanager restore-secret "
            f"--region {user.secrets.region} --secret-id {user.secret}; for a new key, empty both slots as an "
            f"administrator and install the first key again: {sql.unset_public_key(user.name, KeySlot.FIRST)}; "
            f"{sql.unset_public_key(user.name, KeySlot.SECOND)}"
        )
    return version, _key(user, version)


def _left_behind(user: ServiceUser, pending: Version | None, current: KeyPair) -> KeyPair | None:
    """Return the key of an unfinished rotation."""
    # The label stays on a version that was promoted, or is on another version of its key after two rotations at once.
    if pending is None or pending.stages & {CURRENT, PREVIOUS}:
        return None
    key = _key(user, pending)
    return None if key.fingerprint == current.fingerprint else key


def _key(user: ServiceUser, version: Version) -> KeyPair:
    try:
        key = KeyPair.read(version.value)
    except ValueError as error:
        raise UnclearState(
            f"Version {version.version_id} of the secret '{user.secret}' cannot be used: {error}. It was left as it "
            f"is. {user.secrets.remedy(user.secret, version)}"
        ) from None
    if (key.account, key.user) != (user.account, user.name):
        raise UnclearState(
            f"Version {version.version_id} of the secret '{user.secret}' is of user {key.user} in account "
            f"{key.account}, not of {user.name} in {user.account}. It was left as it is. "
            f"{user.secrets.remedy(user.secret, version)}"
        )
    return key


def _slots(user: ServiceUser) -> dict[KeySlot, str | None]:
    """Return the fingerprint of each slot's key, as Snowflake shows it."""
    statement = sql.describe_user(user.name)
    with session_errors(_where(user), _refusal(user, statement)):
        rows = _executed(user, statement)
    return parsed(_where(user), statement, rows, _fingerprints)


def _fingerprints(rows: list[Row]) -> dict[KeySlot, str | None]:
    shown = properties(rows, "value")
    return {slot: _fingerprint(shown, f"{slot}_FP") for slot in KeySlot}


def _fingerprint(shown: Mapping[str, Any], name: str) -> str | None:
    value = text_of(shown, name)
    # DESC USER writes `null` for a slot that is empty.
    if value == "null":
        return None
    if not value.startswith("SHA256:"):
        raise UnknownForm(f"has a {name} that is neither null nor a hash by SHA256")
    return value


def _active(user: ServiceUser, key: KeyPair, slots: Mapping[KeySlot, str | None]) -> KeySlot:
    for slot, fingerprint in slots.items():
        if fingerprint == key.fingerprint:
            return slot
    listed = ", ".join(f"{slot} has {fingerprint or 'none'}" for slot, fingerprint in slots.items())
    left_behind = _left_behind(user, user.secrets.read(user.secret, PENDING), key)
    unused = {None, left_behind.fingerprint if left_behind else None}
    spare = next((slot for slot in KeySlot if slots[slot] in unused), KeySlot.SECOND)
    raise UnclearState(
        f"No slot of Snowflake user {user.name} has the key of the secret '{user.secret}' ({key.fingerprint}): "
        f"{listed}. Slots and secret were left as they are. If the secret is right, set its key as an administrator, "
        f"in an unused slot: {sql.set_public_key(user.name, key.public_key, spare)}"
    )


def _label(user: ServiceUser, slot: KeySlot, fingerprint: str | None) -> str:
    """Return the label of the version whose key is in the slot that is not in use: AWSPREVIOUS or AWSPENDING."""
    for label in (PREVIOUS, PENDING):
        version = user.secrets.read(user.secret, label)
        if version and _key(user, version).fingerprint == fingerprint:
            return label
    raise UnclearState(
        f"{slot} of Snowflake user {user.name} has a key ({fingerprint}) that is neither the previous nor the pending "
        f"one of the secret '{user.secret}': another program may use it. It was left unchanged. If none does, unset it "
        f"as an administrator: {sql.unset_public_key(user.name, slot)}"
    )


def _log_in(user: ServiceUser, key: KeyPair, effect: str) -> None:
    """Open a session with the key and its role.

    Args:
        user: The user.
        key: One of its keys.
        effect: What was changed before and what was not, for errors.
    """
    again = "run `lakehouse deploy rotate`, which finishes the rotation"

    def refused(error: Error) -> LakehouseError:
        return LakehouseError(
            f"Snowflake refused user {user.name} with role {user.role} and the key {key.fingerprint} in {key.slot}: "
            f"{error.msg} {effect}. Check that the role is granted to the user, that the user is not disabled, and "
            f"this machine's clock; then {again}"
        )

    def lost(error: Error) -> LakehouseError:
        return unreachable(_where(user), error, effect, again)

    connect(
        account=user.account,
        user=user.name,
        address=user.address,
        refused=refused,
        lost=lost,
        private_key=key.private_key,
        role=user.role,
    ).close()


def _change(user: ServiceUser, statement: str) -> None:
    """Change a user."""

    def lost(error: Error) -> LakehouseError:
        return OutcomeUnknownError(
            f"Snowflake at {_where(user)} did not answer ({error.msg}), so a key of user {user.name} may have been "
            f"changed or not: {statement}. Run the `lakehouse deploy` command again: it reads the current state first"
        )

    with session_errors(_where(user), _refusal(user, statement), lost):
        _executed(user, statement)


def _refusal(user: ServiceUser, statement: str) -> Callable[[Error], LakehouseError]:
    def refused(error: Error) -> LakehouseError:
        return LakehouseError(
            f"Snowflake refused a statement on user {user.name}: {error.msg} The statement changed nothing; "
            f"the session's role must own the user: {statement}"
        )

    return refused


def _executed(user: ServiceUser, statement: str) -> list[Row]:
    with user.session.cursor() as cursor:
        cursor.execute(statement)
        return fetched(cursor)


def _where(user: ServiceUser) -> str:
    return location(user.account, user.address)
