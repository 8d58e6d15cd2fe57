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

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakehouse.core.errors import CommitConflict, LakehouseError, OutcomeUnknownError, UnclearState
from lakehouse.deploy.snowflake.key_pair import KeyPair
from resources.aws.secrets_manager import CURRENT, PENDING, PREVIOUS, Secrets, Version
from resources.snowflake import sql
from resources.snowflake.session import (
    FailedStatement,
    Row,
    SnowflakeSession,
    StatementRunner,
    UnknownForm,
    connect,
    location,
    properties,
    text_of,
    unreachable,
)
from resources.snowflake.sql import KeySlot

if TYPE_CHECKING:
    from snowflake.connector.errors import Error


@dataclass(frozen=True)
class Keys:
    """The state of a user's keys."""

    active: KeySlot
    """The slot of the key that the secret holds."""
    fingerprint: str
    """Of the active key."""
    old_key_until: datetime | None
    """When `retire` may unset the other slot; None if it is empty."""


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

    def install(self) -> Keys:
        """Set the first key of a user without keys; a user that has the secret's key is unchanged."""
        if keys := self.installed():
            return keys
        self.secrets.create(
            self.secret,
            self.new_key(KeySlot.FIRST).written(self.secret),
            description=f"Key pair of Snowflake user {self.name} in {self.account}",
        )
        # The secret's, which may be from an interrupted call.
        _, key = self._current()
        self._require_unchanged(key.slot, None, key.fingerprint)
        self._statements.change(sql.set_public_key(self.name, key.public_key, key.slot))
        self._log_in(key, f"The key is in {key.slot} of user {self.name}, and the secret '{self.secret}' names it")
        return self._state(timedelta())

    def installed(self) -> Keys | None:
        """Return a user's keys; None if no slot has one."""
        return self._state(timedelta()) if any(self._slots().values()) else None

    def rotate(self, grace_days: float, day_count: float = 0) -> Keys:
        """Replace the key, or finish an interrupted rotation. Within the grace period of the last rotation, do nothing.

        Args:
            grace_days: How many days a replaced key keeps logging in.
            day_count: The age in days at which a key is replaced.
        """
        grace = timedelta(days=grace_days)
        # Read before all else: as long as the label stays, no rotation has begun since.
        pending = self.secrets.read(self.secret, PENDING)
        current, key = self._current()
        slots = self._slots()
        target = self._active(key, slots).other
        left_behind = self._left_behind(pending, key)
        if not left_behind and _now() < key.created_at + timedelta(days=day_count):
            return self._state(grace)
        if slots[target] and self._label(target, slots[target]) == PREVIOUS and _now() < self._replaced_at(key) + grace:
            return self._state(grace)
        new = replace(left_behind or self.new_key(target), slot=target)
        self.secrets.claim_pending(self.secret, new.written(self.secret), over=pending)
        self._require_unchanged(target, slots[target], new.fingerprint)
        self._statements.change(sql.set_public_key(self.name, new.public_key, target))
        self._log_in(
            new,
            f"The new key is in {target} of user {self.name} and not in use; the key that the secret '{self.secret}' "
            f"names and its slot were left unchanged",
        )
        # The grace period counts from now, whenever a pending key was created.
        try:
            self.secrets.replace(
                self.secret, lambda: replace(new, created_at=_now()).written(self.secret), over=current
            )
        except CommitConflict:
            self._set_current(target)
            raise
        return self._state(grace)

    def retire(self, grace_days: float) -> Keys:
        """Unset the slot of the replaced key after its grace period. The key in use must log in first.

        Args:
            grace_days: How many days after its replacement a key keeps logging in.
        """
        grace = timedelta(days=grace_days)
        _, key = self._current()
        slots = self._slots()
        old = self._active(key, slots).other
        if slots[old] and self._label(old, slots[old]) == PENDING:
            raise UnclearState(
                f"{old} of Snowflake user {self.name} has the pending key of the secret '{self.secret}': a rotation "
                f"was not finished. Both slots were left as they are. Run `lakehouse deploy rotate`, which finishes it"
            )
        if slots[old] and _now() >= self._replaced_at(key) + grace:
            self._log_in(key, f"Both slots of user {self.name} and the secret '{self.secret}' were left as they are")
            self._require_unchanged(old, slots[old], None)
            self._statements.change(sql.unset_public_key(self.name, old))
            self._set_current(old)
        return self._state(grace)

    def _require_unchanged(self, slot: KeySlot, *fingerprints: str | None) -> None:
        """Stop if a slot has another key than the expected ones, immediately before it is written."""
        if self._slots()[slot] not in fingerprints:
            raise CommitConflict(
                f"{slot} of Snowflake user {self.name} was changed meanwhile. The user's slots and the current version "
                f"of the secret '{self.secret}' were left as they are. Run the `lakehouse deploy` command again"
            )

    def _set_current(self, slot: KeySlot) -> None:
        """Set the key of the secret in a slot that was just overwritten or unset, unless a slot has the key."""
        _, key = self._current()
        if key.fingerprint not in self._slots().values():
            self._statements.change(sql.set_public_key(self.name, key.public_key, slot))

    def _replaced_at(self, key: KeyPair) -> datetime:
        """Return when a key replaced the one before, or later: a process may have been suspended before that."""
        return max(key.created_at, self.secrets.changed_at(self.secret))

    def _state(self, grace: timedelta) -> Keys:
        _, key = self._current()
        slots = self._slots()
        active = self._active(key, slots)
        return Keys(active, key.fingerprint, self._replaced_at(key) + grace if slots[active.other] else None)

    def _current(self) -> tuple[Version, KeyPair]:
        version = self.secrets.read(self.secret, CURRENT)
        if version is None:
            raise UnclearState(
                f"There is no secret '{self.secret}' in region {self.secrets.region}, so the private key of "
                f"Snowflake user {self.name} is lost. The user's slots were left as they are. If it was deleted, "
                f"restore it: aws secretsmanager restore-secret "
                f"--region {self.secrets.region} --secret-id {self.secret}; for a new key, empty both slots as an "
                f"administrator and install the first key again: {sql.unset_public_key(self.name, KeySlot.FIRST)}; "
                f"{sql.unset_public_key(self.name, KeySlot.SECOND)}"
            )
        return version, self._key(version)

    def _left_behind(self, pending: Version | None, current: KeyPair) -> KeyPair | None:
        """Return the key of an unfinished rotation."""
        # The label stays on a version that was promoted, or is on another version of its key after two rotations at
        # once.
        if pending is None or pending.stages & {CURRENT, PREVIOUS}:
            return None
        key = self._key(pending)
        return None if key.fingerprint == current.fingerprint else key

    def _key(self, version: Version) -> KeyPair:
        try:
            key = KeyPair.read(version.value)
        except ValueError as error:
            raise UnclearState(
                f"Version {version.version_id} of the secret '{self.secret}' cannot be used: {error}. It was left as "
                f"it is. {self.secrets.remedy(self.secret, version)}"
            ) from None
        if (key.account, key.user) != (self.account, self.name):
            raise UnclearState(
                f"Version {version.version_id} of the secret '{self.secret}' is of user {key.user} in account "
                f"{key.account}, not of {self.name} in {self.account}. It was left as it is. "
                f"{self.secrets.remedy(self.secret, version)}"
            )
        return key

    def _slots(self) -> dict[KeySlot, str | None]:
        """Return the fingerprint of each slot's key, as Snowflake shows it."""
        return self._statements.read(sql.describe_user(self.name), _fingerprints)

    def _active(self, key: KeyPair, slots: Mapping[KeySlot, str | None]) -> KeySlot:
        for slot, fingerprint in slots.items():
            if fingerprint == key.fingerprint:
                return slot
        listed = ", ".join(f"{slot} has {fingerprint or 'none'}" for slot, fingerprint in slots.items())
        left_behind = self._left_behind(self.secrets.read(self.secret, PENDING), key)
        unused = {None, left_behind.fingerprint if left_behind else None}
        spare = next((slot for slot in KeySlot if slots[slot] in unused), KeySlot.SECOND)
        raise UnclearState(
            f"No slot of Snowflake user {self.name} has the key of the secret '{self.secret}' ({key.fingerprint}): "
            f"{listed}. Slots and secret were left as they are. If the secret is right, set its key as an "
            f"administrator, in an unused slot: {sql.set_public_key(self.name, key.public_key, spare)}"
        )

    def _label(self, slot: KeySlot, fingerprint: str | None) -> str:
        """Return the label of the version whose key is in the slot that is not in use: AWSPREVIOUS or AWSPENDING."""
        for label in (PREVIOUS, PENDING):
            version = self.secrets.read(self.secret, label)
            if version and self._key(version).fingerprint == fingerprint:
                return label
        raise UnclearState(
            f"{slot} of Snowflake user {self.name} has a key ({fingerprint}) that is neither the previous nor the "
            f"pending one of the secret '{self.secret}': another program may use it. It was left unchanged. If none "
            f"does, unset it as an administrator: {sql.unset_public_key(self.name, slot)}"
        )

    def _log_in(self, key: KeyPair, effect: str) -> None:
        """Open a session with the key and its role.

        Args:
            key: One of its keys.
            effect: What was changed before and what was not, for errors.
        """
        again = "run `lakehouse deploy rotate`, which finishes the rotation"

        def refused(error: Error) -> LakehouseError:
            return LakehouseError(
                f"Snowflake refused user {self.name} with role {self.role} and the key {key.fingerprint} in "
                f"{key.slot}: {error.msg} {effect}. Check that the role is granted to the user, that the user is not "
                f"disabled, and this machine's clock; then {again}"
            )

        def lost(error: Error) -> LakehouseError:
            return unreachable(self._where, error, effect, again)

        connect(
            account=self.account,
            user=self.name,
            address=self.address,
            refused=refused,
            lost=lost,
            private_key=key.private_key,
            role=self.role,
        ).close()

    @property
    def _statements(self) -> StatementRunner:
        where = self._where

        def refused(failed: FailedStatement) -> LakehouseError:
            return LakehouseError(
                f"Snowflake refused a statement on user {self.name}: {failed.msg} The statement changed nothing; "
                f"the session's role must own the user: {failed.text}"
            )

        def lost(failed: FailedStatement) -> LakehouseError:
            return OutcomeUnknownError(
                f"Snowflake at {where} did not answer ({failed.msg}), so a key of user {self.name} may have been "
                f"changed or not: {failed.text}. Run the `lakehouse deploy` command again: it reads the current state "
                f"first"
            )

        return StatementRunner(self.session, where, refused, lost)

    @property
    def _where(self) -> str:
        return location(self.account, self.address)

    def new_key(self, slot: KeySlot) -> KeyPair:
        """Return a new pair for this user."""
        return KeyPair.generate(account=self.account, user=self.name, role=self.role, slot=slot)


def _now() -> datetime:
    return datetime.now(UTC)


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
