"""An API key of one account for one API, and the secret that holds it.

Confluent shows a key's secret once. An interruption between creating and storing a key leaves a stray: a key that
nobody has. A key with the account as owner and the right name and description that is in no version of the secret is
deleted once it is older than any key that a command stores and uses. Without a secret, no key is a stray: a recent one
may be that of another command, which stores it next, and programs may still use an older one, whose secret was deleted.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from lakehouse.core.errors import CommitConflict, UnclearState
from lakehouse.core.polling import Clock
from lakehouse.deploy.confluent.confluent_resource import wait_until_accepted
from resources.aws.secrets_manager import CURRENT, PENDING, PREVIOUS, SecretJson, Secrets, Version
from resources.confluent.api_client import Key
from resources.confluent.organization import ApiKey, ApiKeys, KeyScope

KNOWN_SECONDS = 20 * 60
"""Until an API accepts a new key."""
RECENT = timedelta(hours=1)
"""The age up to which a key whose secret does not exist is one that another command creates, or an interrupted one
has created. A key that was stored at a greater age is not used."""
ABANDONED_AGE = timedelta(hours=3)
"""The age at which a key that is in no secret is deleted: more than `RECENT`, because clocks differ."""


@dataclass(frozen=True)
class Layout:
    """The fields of a secret that hold a key's id and secret, and the settings beside them."""

    id: str
    secret: str
    beside: Mapping[str, str]

    def write(self, key: Key) -> SecretJson:
        """Return the secret's content."""
        return SecretJson({self.id: key.id, self.secret: key.secret, **self.beside})

    def read(self, value: SecretJson) -> Key:
        """Read the key.

        Raises:
            KeyError: A field is missing or empty.
        """
        values = value.reveal()
        for name in (self.id, self.secret):
            if not values.get(name):
                raise KeyError(name)
        return Key(values[self.id], values[self.secret])


@dataclass(frozen=True)
class JoinedLayout(Layout):
    """A layout with id and secret in one field, as `id:secret`."""

    def write(self, key: Key) -> SecretJson:
        return SecretJson({self.id: f"{key.id}:{key.secret}", **self.beside})

    def read(self, value: SecretJson) -> Key:
        key_id, _, secret = value.reveal()[self.id].partition(":")
        if not (key_id and secret):
            raise KeyError(f"{self.id} of the form id:secret")
        return Key(key_id, secret)


@dataclass(frozen=True)
class AccountKey:
    """The description and the secret of an account's key for an API."""

    api_keys: ApiKeys
    secrets: Secrets
    name: str
    """Display name of its keys."""
    description: str
    """Description of its keys, which names the secret by its ARN."""
    secret: str
    """Name of the secret."""
    owner_id: str
    scope: KeyScope
    layout: Layout
    use: Callable[[Key], object] = field(repr=False)
    """Sends a request that the key must permit."""

    def find(self) -> Key | None:
        """Return the secret's key; None if there is none, or it was deleted or has another owner or scope."""
        version = self.version(CURRENT)
        return self.usable(version) if version else None

    def usable(self, version: Version) -> Key | None:
        """Return the key of a version; None if it was deleted or has another owner or scope, or if another command may
        delete it, since it was stored so late that it was a stray before."""
        key = self.key(version)
        listed = self.api_keys.find(key.id)
        if not listed or listed.owner_id != self.owner_id or not listed.is_for(self.scope):
            return None
        is_pending = not version.stages & {CURRENT, PREVIOUS}
        assert version.created_at is not None, "it was read"
        return None if is_pending and version.created_at - listed.created_at > RECENT else key

    def version(self, stage: str) -> Version | None:
        """Return the secret's version with the label."""
        return self.secrets.read(self.secret, stage)

    def key(self, version: Version) -> Key:
        """Return the key of a version.

        Raises:
            UnclearState: The version has another layout.
        """
        try:
            return self.layout.read(version.value)
        except KeyError as error:
            raise UnclearState(
                f"Version {version.version_id} of the secret '{self.secret}' has no field {error}, so its API key is "
                f"not known. The secret was left as it is. {self.secrets.remedy(self.secret, version)}"
            ) from None

    def ids(self, versions: Iterable[Version]) -> list[str]:
        """Return the ids of the keys of versions. One of another layout has no key, unless it is the current one."""
        ids = []
        for version in versions:
            try:
                ids.append(self.key(version).id)
            except UnclearState:
                if CURRENT in version.stages:
                    raise
        return ids

    def existing(self) -> list[ApiKey]:
        """List the account's keys for the API, the oldest first."""
        keys = self.api_keys.list(self.owner_id)
        return [key for key in keys if (key.name, key.description) == (self.name, self.description)]

    def strays(self, now: datetime | None = None) -> list[ApiKey]:
        """List the keys that were created and never stored.

        Args:
            now: The time by which ages are computed; None is the present.
        """
        now = now or datetime.now(UTC)
        labelled = [version for stage in (CURRENT, PENDING, PREVIOUS) if (version := self.version(stage))]
        stored = {*self.ids(labelled)}
        unknown = [key for key in self.existing() if key.id not in stored]
        if labelled and unknown:
            # It may have been in a version that has lost its labels.
            stored |= {*self.ids(self.secrets.versions(self.secret))}
            # Another command may have created a younger one, and store it next.
            return [key for key in unknown if key.id not in stored and now - key.created_at > ABANDONED_AGE]
        if old := [key.id for key in unknown if now - key.created_at > RECENT]:
            raise UnclearState(
                f"There is no secret '{self.secret}' in region {self.secrets.region}, but its API keys "
                f"{', '.join(old)} exist, and programs may use them. They were left unchanged. Restore the secret (aws "
                f"secretsmanager restore-secret --region {self.secrets.region} --secret-id {self.secret}), or delete "
                f"the keys if no program uses them (confluent api-key delete {old[0]})"
            )
        return []

    def delete_strays(self, now: datetime | None = None) -> None:
        """Delete the keys that were never stored."""
        for stray in self.strays(now):
            self.api_keys.delete(stray.id, self.owner_id)

    def create(self) -> Key:
        """Make a new key, or the one that an earlier attempt has left behind, the secret's current one."""
        since = datetime.now(UTC)
        # A restored secret has a current version already, over which an earlier attempt may have put its key.
        pending = self.version(PENDING)
        key = (self.usable(pending) if pending else None) or self._create()
        current, value = self.version(CURRENT), self.layout.write(key)
        if current is None:
            self.secrets.create(self.secret, value, description=f"API key '{self.name}' of Confluent Cloud")
        elif current.value != value:
            self.secrets.promote(self.secret, self._put_pending(key, since), over=current)
        return key

    def create_pending(self) -> Key:
        """Create a key and make it the secret's pending one."""
        since = datetime.now(UTC)
        key = self._create()
        self._put_pending(key, since)
        return key

    def _create(self) -> Key:
        """Create a key, which is a stray until it is stored."""
        return self.api_keys.create(self.name, self.description, self.owner_id, self.scope).key

    def _put_pending(self, key: Key, since: datetime) -> Version:
        version = self.secrets.put_pending(self.secret, self.layout.write(key))
        if datetime.now(UTC) - since > RECENT:
            raise CommitConflict(
                f"API key {key.id} ('{self.name}') was stored more than an hour after its creation, so another command "
                f"may delete it as one that nobody has. The current version of the secret was left unchanged. Run the "
                f"`lakehouse deploy` command again"
            )
        return version

    def make_current(self, key: Key, *, over: Version) -> None:
        """Make the pending key the secret's current one, unless it was deleted while this process was suspended.

        Args:
            key: The pending key, which the API accepts.
            over: The version that the caller knows as current.
        """

        def value() -> SecretJson:
            if not self.api_keys.find(key.id):
                raise CommitConflict(
                    f"API key {key.id} ('{self.name}') was deleted before it became the current one of the secret "
                    f"'{self.secret}'. The current version of the secret was left unchanged. Run the `lakehouse "
                    f"deploy` command again, which creates another key"
                )
            return self.layout.write(key)

        self.secrets.replace(self.secret, value, over=over)

    def rewrite(self) -> Key:
        """Rewrite the secret with its key and the current settings, and return the key."""
        version = self.version(CURRENT)
        key = self.usable(version) if version else None
        if version is None or key is None:
            raise CommitConflict(
                f"The secret '{self.secret}' or its API key was changed at the same time. The secret was left "
                f"unchanged. Run the `lakehouse deploy` command again"
            )
        if (value := self.layout.write(key)) != version.value:
            self.secrets.promote(self.secret, self.secrets.put_pending(self.secret, value), over=version)
        return key

    def wait_until_accepted(self, key: Key, clock: Clock) -> None:
        """Wait until the API accepts the key."""
        wait_until_accepted(
            f"API key {key.id} ('{self.name}')", lambda: self.use(key), deadline_seconds=KNOWN_SECONDS, clock=clock
        )
