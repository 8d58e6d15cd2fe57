"""The key pair of a Snowflake service user, kept in AWS Secrets Manager, and its rotation through Snowflake's slots.

A rotation: the new private key becomes the secret's pending version; its public key goes into the slot that is not in
use; it logs in; the pending version becomes the current one. The old key logs in until `retire` unsets its slot.

Why it may be killed anywhere: a private key is in the secret before Snowflake knows its public key, the slot of the
current key is never written, and one call moves the label. A pending key that was left behind is used by the next
call, so the other slot never holds a key that nobody has. Which slot is in use is read from Snowflake every time. One
rotation of a user at a time: two at once could overwrite each other's slot between the login and the move of the label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from lakehouse.core.errors import LakehouseError, UnclearState, Unreachable
from lakehouse.deploy.snowflake.key_pair import KeyPair
from lakehouse.deploy.snowflake.session import Session
from resources import snowflake_sql as sql
from resources.secrets_manager import CURRENT, PENDING, PREVIOUS, Secrets, Version
from resources.snowflake_sql import KeySlot

LOGIN_TIMEOUT_SECONDS = 10
NETWORK_TIMEOUT_SECONDS = 60
"""Without these two the connector repeats a request for minutes."""


@dataclass(frozen=True)
class ServiceUser:
    """A Snowflake user with TYPE = SERVICE, where its key is kept, and the way to both."""

    account: str
    """Account identifier, as `organization-account`."""
    name: str
    role: str
    secret: str
    """Name of the secret."""
    secrets: Secrets
    administrator: Session = field(repr=False)
    """An open session of a role that owns the user (docs: sql-reference/sql/alter-user)."""
    address: Mapping[str, Any] = field(default_factory=dict)
    """The connector's host, port and protocol, if they are not the account's own."""

    def new_key(self, slot: KeySlot) -> KeyPair:
        """A pair for this user, known to nobody yet."""
        return KeyPair.generate(account=self.account, user=self.name, role=self.role, slot=slot)


@dataclass(frozen=True)
class Keys:
    """A user's keys as they are now."""

    active: KeySlot
    """The slot of the key that the secret has."""
    fingerprint: str
    """Of the active key."""
    old_key_until: datetime | None
    """When `retire` may unset the other slot; None when that is empty."""


def install(user: ServiceUser) -> Keys:
    """Give a user without keys its first one; a user whose key is the secret's stays as it is.

    Raises: UnclearState when the user has keys and none of them is the secret's; LakehouseError when a system refuses;
    Unreachable.
    """
    if keys := installed(user):
        return keys
    user.secrets.create(
        user.secret,
        user.new_key(KeySlot.FIRST).written(),
        description=f"Key pair of Snowflake user {user.name} in {user.account}",
    )
    # The secret's, which may be from a call that was killed.
    _, key = _current(user)
    _run(user, sql.set_public_key(user.name, key.public_key, key.slot))
    _log_in(user, key)
    return _state(user, timedelta())


def installed(user: ServiceUser) -> Keys | None:
    """A user's keys; None when no slot has one.

    Raises: as `install`.
    """
    return _state(user, timedelta()) if any(_slots(user).values()) else None


def rotate(user: ServiceUser, grace_days: float, day_count: float = 0) -> Keys:
    """Replace the key, or finish a rotation that was killed. Within the grace of the last rotation it does nothing.

    Parameters: how many days a replaced key must go on logging in; how many days old a key is before it is replaced.
    Raises: UnclearState when it cannot be told which slot is in use, or the other slot holds a key that is not the
    secret's previous or pending one; LakehouseError when a system refuses; Unreachable.
    """
    grace = timedelta(days=grace_days)
    current, key = _current(user)
    slots = _slots(user)
    target = _active(user, key, slots).other
    left_behind = _pending(user)
    if not left_behind and _now() < key.created_at + timedelta(days=day_count):
        return _state(user, grace)
    if slots[target] and _label(user, target, slots[target]) == PREVIOUS and _now() < key.created_at + grace:
        return _state(user, grace)
    # The grace counts from now, whenever a pending key was made.
    new = replace(left_behind or user.new_key(target), slot=target, created_at=_now())
    pending = user.secrets.put_pending(user.secret, new.written())
    _run(user, sql.set_public_key(user.name, new.public_key, target))
    _log_in(user, new)
    user.secrets.promote(user.secret, pending, over=current)
    return _state(user, grace)


def retire(user: ServiceUser, grace_days: float) -> Keys:
    """Unset the slot of the replaced key, if its grace is over. The key in use is proved to log in first.

    Parameters: how many days after its replacement a key goes on logging in.
    Raises: UnclearState also when a rotation was not finished; otherwise as `rotate`.
    """
    grace = timedelta(days=grace_days)
    _, key = _current(user)
    slots = _slots(user)
    old = _active(user, key, slots).other
    if slots[old] and _label(user, old, slots[old]) == PENDING:
        raise UnclearState(
            f"{old} of Snowflake user {user.name} has the pending key of the secret '{user.secret}': a rotation was "
            f"not finished. Nothing was changed. Rotate again, which finishes it"
        )
    if slots[old] and _now() >= key.created_at + grace:
        _log_in(user, key)
        _run(user, sql.unset_public_key(user.name, old))
    return _state(user, grace)


def _now() -> datetime:
    return datetime.now(UTC)


def _state(user: ServiceUser, grace: timedelta) -> Keys:
    _, key = _current(user)
    slots = _slots(user)
    active = _active(user, key, slots)
    return Keys(active, key.fingerprint, key.created_at + grace if slots[active.other] else None)


def _current(user: ServiceUser) -> tuple[Version, KeyPair]:
    version = user.secrets.read(user.secret, CURRENT)
    if version is None:
        raise UnclearState(
            f"There is no secret '{user.secret}' in region {user.secrets.region}, so nobody has the key of Snowflake "
            f"user {user.name}. Nothing was changed. If it was deleted, restore it: aws secretsmanager restore-secret "
            f"--region {user.secrets.region} --secret-id {user.secret}; for a new key, empty both slots as an "
            f"administrator and install the first key again: {sql.unset_public_key(user.name, KeySlot.FIRST)}; "
            f"{sql.unset_public_key(user.name, KeySlot.SECOND)}"
        )
    return version, _key(user, version)


def _pending(user: ServiceUser) -> KeyPair | None:
    """The key of a rotation that was not finished."""
    version = user.secrets.read(user.secret, PENDING)
    # The label stays on a version that was promoted.
    return None if version is None or version.stages & {CURRENT, PREVIOUS} else _key(user, version)


def _key(user: ServiceUser, version: Version) -> KeyPair:
    try:
        key = KeyPair.read(version.value)
    except ValueError as error:
        raise UnclearState(
            f"Version {version.version_id} of the secret '{user.secret}' cannot be used: {error}. Nothing was changed. "
            f"Put a version of that layout, or choose another name"
        ) from None
    if (key.account, key.user) != (user.account, user.name):
        raise UnclearState(
            f"Version {version.version_id} of the secret '{user.secret}' is of user {key.user} in account "
            f"{key.account}, not of {user.name} in {user.account}. Nothing was changed. Choose that user's own secret"
        )
    return key


def _slots(user: ServiceUser) -> dict[KeySlot, str | None]:
    """The fingerprint of each slot's key, as Snowflake has it."""
    shown = {str(row[0]).upper(): str(row[1]) for row in _run(user, sql.describe_user(user.name))}
    found = {slot: shown.get(f"{slot}_FP", "") for slot in KeySlot}
    # DESC USER writes `null` for a slot that is empty.
    return {slot: fingerprint if fingerprint.startswith("SHA256:") else None for slot, fingerprint in found.items()}


def _active(user: ServiceUser, key: KeyPair, slots: Mapping[KeySlot, str | None]) -> KeySlot:
    for slot, fingerprint in slots.items():
        if fingerprint == key.fingerprint:
            return slot
    found = ", ".join(f"{slot} has {fingerprint or 'none'}" for slot, fingerprint in slots.items())
    spare = next((slot for slot in KeySlot if slots[slot] is None), KeySlot.SECOND)
    raise UnclearState(
        f"No slot of Snowflake user {user.name} has the key of the secret '{user.secret}' ({key.fingerprint}): "
        f"{found}. Nothing was changed. If the secret is right, set its key as an administrator, in a slot that nobody "
        f"needs: "
        f"{sql.set_public_key(user.name, key.public_key, spare)}"
    )


def _label(user: ServiceUser, slot: KeySlot, fingerprint: str | None) -> str:
    """AWSPREVIOUS or AWSPENDING: the label of the version whose key is in the slot that is not in use."""
    for label in (PREVIOUS, PENDING):
        version = user.secrets.read(user.secret, label)
        if version and _key(user, version).fingerprint == fingerprint:
            return label
    raise UnclearState(
        f"{slot} of Snowflake user {user.name} has a key ({fingerprint}) that is neither the previous nor the pending "
        f"one of the secret '{user.secret}': somebody else may use it. Nothing was changed. If nobody does, unset it "
        f"as an administrator: {sql.unset_public_key(user.name, slot)}"
    )


def _log_in(user: ServiceUser, key: KeyPair) -> None:
    """Prove that the key opens a session, with its role."""
    import snowflake.connector
    from snowflake.connector.errors import DatabaseError, OperationalError

    try:
        snowflake.connector.connect(
            account=user.account,
            user=user.name,
            role=user.role,
            private_key=key.der,
            login_timeout=LOGIN_TIMEOUT_SECONDS,
            network_timeout=NETWORK_TIMEOUT_SECONDS,
            # Otherwise the connector asks the metadata services of three clouds where it runs.
            platform_detection_timeout_seconds=0,
            **user.address,
        ).close()
    except OperationalError as error:
        raise Unreachable("Snowflake", user.account, "account, host, port and network", error.msg) from error
    except DatabaseError as error:
        raise LakehouseError(
            f"Snowflake refused user {user.name} with role {user.role} and the key {key.fingerprint} in {key.slot}: "
            f"{error.msg} The secret and the key in use stayed as they were. Check that the role is granted to the "
            f"user, that the user is not disabled, and this machine's clock; then run it again"
        ) from error


def _run(user: ServiceUser, statement: str) -> list[tuple[Any, ...]]:
    from snowflake.connector.errors import Error, OperationalError

    try:
        with user.administrator.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()
    except OperationalError as error:
        raise Unreachable("Snowflake", user.account, "host, port and network", error.msg) from error
    except Error as error:
        raise LakehouseError(
            f"Snowflake refused a statement of the administrator's session: {error.msg} The statement changed nothing; "
            f"its role must own user {user.name}: {statement}"
        ) from error
