"""Judges the clouds after every call that may change them.

- A program that reads a secret can log in with its key, until a grace period after the secret has named another one.
  No call spans two clouds, so this includes no key whose grace period had ended when an operator made it current again,
  as long as commands run that began before. `test_rotate_beside_rollback_…` shows that they let it work afterwards.
- No object of others is changed or deleted.
- No output contains a secret.
- A command whose error says that nothing was changed has changed nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, NamedTuple

from resources.aws.secrets_manager import CURRENT
from tests.simulation.deployment.clouds import OURS, Clouds, CloudWorld
from tests.simulation.deployment.key_pairs import fingerprint_of_private, load_pem_private_key
from tests.simulation.world import Process

SECRET = re.compile("secret-[0-9a-f]{32}|PRIVATE KEY|LS0tLS1CRUdJ|MIIC")
"""A secret of Confluent's stand-in, a PEM, or the base64 of either."""
UNCHANGED = re.compile("nothing was [a-z]+", re.IGNORECASE)
"""The statement of an error that its command had no effect."""
CLOCK_ERROR = 2 * 3600.0
"""Seconds by which clocks of machines differ at most from those of the clouds."""


class Credential(NamedTuple):
    """A key in a secret.

    Attributes:
        id: The id of an API key, or the fingerprint of a key pair.
        password: The secret of an API key.
    """

    id: str
    password: str = ""


class Oracle:
    """The promises to programs and to other users of the clouds.

    Attributes:
        violations: Broken promises, as sentences.
        is_deleting: True while the deployment is being deleted, which ends all promises to programs.
    """

    def __init__(self, world: CloudWorld, clouds: Clouds, grace_days: float):
        self.violations: list[str] = []
        self.is_deleting = False
        self._world, self._clouds, self._grace_seconds = world, clouds, grace_days * 86_400
        self._current: dict[str, Credential] = {}
        self._until: dict[Credential, float] = {}
        self._revived: dict[Credential, list[Process]] = {}
        self._foreign: list[tuple[dict[str, Any], str, Any]] = []
        self._changed: dict[Process, str] = {}
        world.observe = self.observe

    def observe(self, operation: str) -> None:
        """Judge the state after a call."""
        if re.search(r" GET | get_| describe_| list_| DESC | SHOW | login", operation):
            return
        if self._world.current:
            self._changed.setdefault(self._world.current, operation)
        for kind, name, before in self._foreign:
            if kind.get(name) != before:
                self._violate(f"{operation} changed {name}, which is not of the deployment")
        if not self.is_deleting:
            self._observe_keys(operation)

    def expect_nothing_of_programs(self) -> None:
        """Forget what programs use now: the deployment is being deleted, or an operator has withdrawn keys."""
        self._current, self._until = {}, {}

    def protect(self, kind: dict[str, Any], name: str) -> None:
        """Let nothing change an object, which belongs to others."""
        self._foreign.append((kind, name, deepcopy(kind[name])))

    def release(self, *kinds: dict[str, Any]) -> None:
        """Let go of objects that are in objects of the deployment, before it is deleted."""
        self._foreign = [entry for entry in self._foreign if all(entry[0] is not kind for kind in kinds)]

    def release_in_deployment(self, keys: dict[str, Any]) -> None:
        """Let go of the API keys of the deployment's own accounts, which go with the accounts."""
        accounts = {entry[1] for entry in self._foreign}
        self._foreign = [
            entry for entry in self._foreign if entry[0] is not keys or entry[2]["spec"]["owner"]["id"] in accounts
        ]

    def is_foreign(self, kind: dict[str, Any], name: str) -> bool:
        """Return whether an object belongs to others."""
        return any(entry[0] is kind and entry[1] == name for entry in self._foreign)

    @contextmanager
    def operator_acts(self, *withdrawn: str) -> Iterator[None]:
        """Let an operator change something.

        Args:
            withdrawn: Ids of the keys that nobody may use any longer, by the operator's decision.
        """
        self._until = {key: until for key, until in self._until.items() if key.id not in withdrawn}
        self._current = {name: key for name, key in self._current.items() if key.id not in withdrawn}
        yield
        # Changes during a deletion are not observed, so a promise of that time would begin too late.
        if not self.is_deleting:
            self._observe_keys("")

    def read_output(self, text: str) -> None:
        """Judge a line of output, or an error."""
        if match := SECRET.search(text):
            self._violate(f"an output has a secret: …{text[max(0, match.start() - 200) : match.start()]}")

    def read_error(self, process: Process, text: str) -> None:
        """Judge the error with which a command ended."""
        self.read_output(text)
        if process in self._changed and (match := UNCHANGED.search(text)):
            self._violate(f"an error says '{match[0]}' after {self._changed[process]}: {text[-400:]}")

    def works(self, credential: Credential) -> bool:
        """Return whether a program can log in with a key."""
        if credential.password:
            return self._clouds.confluent.state.secrets.get(credential.id) == credential.password
        return any(credential.id in slots.values() for slots in self._clouds.snowflake.slots.values())

    def credential(self, name: str) -> Credential | None:
        """Return the key that a secret names; None if it cannot be read."""
        value = self._clouds.secrets[OURS].value(name, CURRENT) or {}
        if "private_key" in value:
            return Credential(fingerprint_of_private(load_pem_private_key(value["private_key"].encode(), None)))
        for field, text in value.items():
            if field.endswith("user.info"):
                return Credential(*text.split(":"))
        for key_id, secret in (("sasl.username", "sasl.password"), ("api.key", "api.key.secret")):
            if secret in value:
                return Credential(value[key_id], value[secret])
        return None

    def _observe_keys(self, operation: str) -> None:
        now = self._world.true_now
        for name in self._clouds.secrets[OURS].secrets:
            current, before = self.credential(name), self._current.get(name)
            if current == before:
                continue
            if before:
                # Without a successor, programs keep the key until an operator decides.
                self._until[before] = now + self._grace_seconds - CLOCK_ERROR if current else float("inf")
                if current and operation and not self.works(current):
                    self._violate(f"{operation} made {name} name a key that does not work")
            if current and self.works(current):
                if not operation and current not in self._until:
                    self._revived[current] = list(self._world.processes)
                self._current[name], self._until[current] = current, float("inf")
            else:
                self._current.pop(name, None)
        for credential, until in list(self._until.items()):
            if now >= until:
                del self._until[credential]
            elif not self.works(credential):
                del self._until[credential]
                if operation and self._is_revived(credential):
                    self._current = {name: key for name, key in self._current.items() if key != credential}
                elif operation:
                    self._violate(f"{operation} ended a key that programs may use, {self._world.named(credential.id)}")

    def _is_revived(self, credential: Credential) -> bool:
        """Return whether a command runs that began before an operator made a key current after its grace period."""
        running = [process for process in self._world.processes if process in self._revived.get(credential, ())]
        is_late = any(process.name.startswith("late") for process in self._world.processes)
        return bool(running) or (credential in self._revived and is_late)

    def _violate(self, sentence: str) -> None:
        self.violations.append(sentence)
