"""An API key of one account for one plane, and the secret it is kept in.

A key's secret is shown once, so what was killed between the making and the storing has made a key that nobody has: a
key of ours that is in no version of the secret is deleted. Keys are ours by owner and display name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakehouse.core.errors import UnclearState
from lakehouse.core.polling import Clock
from resources.confluent.api_keys import ApiKey, ApiKeys, Scope
from resources.confluent.plane import Key
from resources.confluent.waiting import wait_accepted
from resources.secrets_manager import CURRENT, PENDING, PREVIOUS, RECOVERY_DAYS, SecretJson, Secrets, Version

KNOWN_SECONDS = 20 * 60
"""Until a plane knows a new key."""


@dataclass(frozen=True)
class Layout:
    """How a key is written in a secret: the fields of its id and its secret, and what stands beside them."""

    id: str
    secret: str
    beside: Mapping[str, str]

    def write(self, key: Key) -> SecretJson:
        """The secret's content."""
        return SecretJson({self.id: key.id, self.secret: key.secret, **self.beside})

    def read(self, value: SecretJson) -> Key:
        """Raises: KeyError when a field is missing."""
        values = value.reveal()
        return Key(values[self.id], values[self.secret])


@dataclass(frozen=True)
class JoinedLayout(Layout):
    """A layout with id and secret in one field, as `id:secret`."""

    def write(self, key: Key) -> SecretJson:
        """The secret's content."""
        return SecretJson({self.id: f"{key.id}:{key.secret}", **self.beside})

    def read(self, value: SecretJson) -> Key:
        """Raises: KeyError when the field is missing."""
        key_id, _, secret = value.reveal()[self.id].partition(":")
        return Key(key_id, secret)


@dataclass(frozen=True)
class AccountKey:
    """Where an account's key for a plane is, and how it is made."""

    api_keys: ApiKeys
    secrets: Secrets
    name: str
    """Display name of its keys."""
    secret: str
    """Name of the secret."""
    owner_id: str
    scope: Scope
    layout: Layout
    ask: Callable[[Key], Any] = field(repr=False)
    """What the key is for, asked on its plane."""

    def find(self) -> Key | None:
        """The secret's key; None when there is none, or when it was deleted or is of another owner or thing.

        Raises: UnclearState when the secret is of another layout; LakehouseError; Unreachable.
        """
        version = self.version(CURRENT)
        return self.usable(version) if version else None

    def usable(self, version: Version) -> Key | None:
        """The key of a version, unless it was deleted or is of another owner or thing."""
        key = self.key(version)
        there = self.api_keys.find(key.id)
        return key if there and there.owner_id == self.owner_id and there.is_for(self.scope) else None

    def version(self, stage: str) -> Version | None:
        """The secret's version with the label."""
        return self.secrets.read(self.secret, stage)

    def key(self, version: Version) -> Key:
        """Raises: UnclearState when the version is of another layout."""
        try:
            return self.layout.read(version.value)
        except KeyError as error:
            raise UnclearState(
                f"Version {version.version_id} of the secret '{self.secret}' has no field {error}, so its API key is "
                f"not known. Nothing was changed. If nobody needs it, delete it: aws secretsmanager delete-secret "
                f"--region {self.secrets.region} --secret-id {self.secret} --recovery-window-in-days {RECOVERY_DAYS}"
            ) from None

    def ours(self) -> list[ApiKey]:
        """The account's keys for the plane, the oldest first."""
        return [each for each in self.api_keys.list(self.owner_id) if each.name == self.name]

    def strays(self) -> list[ApiKey]:
        """Those that nobody has: they were made, and never stored."""
        labelled = [version for stage in (CURRENT, PENDING, PREVIOUS) if (version := self.version(stage))]
        stored = {self.key(version).id for version in labelled}
        unknown = [each for each in self.ours() if each.id not in stored]
        if unknown and labelled:
            # It may have been in a version that has lost its labels.
            stored |= {self.key(version).id for version in self.secrets.versions(self.secret)}
        return [each for each in unknown if each.id not in stored]

    def delete_strays(self) -> None:
        """Delete the keys that nobody has."""
        for stray in self.strays():
            self.api_keys.delete(stray.id)

    def make(self) -> Key:
        """Make a key. Nobody has it until it is stored."""
        return self.api_keys.create(self.name, f"Kept in the secret {self.secret}", self.owner_id, self.scope).key

    def store(self, key: Key) -> None:
        """Make it the secret's current version."""
        current, value = self.version(CURRENT), self.layout.write(key)
        if current is None:
            self.secrets.create(self.secret, value, description=f"API key '{self.name}' of Confluent Cloud")
        elif current.value != value:
            self.secrets.promote(self.secret, self.secrets.put_pending(self.secret, value), over=current)

    def prove(self, key: Key, clock: Clock) -> None:
        """Wait until the plane takes the key.

        Raises: TimedOut with the last refusal.
        """
        wait_accepted(
            f"API key {key.id} ('{self.name}')", lambda: self.ask(key), deadline_seconds=KNOWN_SECONDS, clock=clock
        )
