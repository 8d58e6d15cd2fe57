"""Actions of people in the clouds: mistakes, objects of others, and the commands that an error names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from resources.aws.secrets_manager import CURRENT, PENDING, PREVIOUS
from tests.simulation.deployment.clouds import OURS, Clouds, CloudWorld
from tests.simulation.deployment.oracle import Oracle
from tests.simulation.deployment.secrets_manager import Secret
from tests.simulation.deployment.snowflake import SLOTS
from tests.support.clouds.confluent.state import ORGANIZATION, new_secret

HOURS = 3600.0
AGAIN = re.compile(r"[Rr]un the (`lakehouse deploy` )?command again|[Rr]un `lakehouse deploy rotate`|Check |Look up ")


class Operators:
    """People with access to the clouds.

    Args:
        world: The scheduler.
        clouds: The clouds.
        oracle: Records which keys are withdrawn, and which objects others own.
    """

    def __init__(self, world: CloudWorld, clouds: Clouds, oracle: Oracle):
        self._world, self._clouds, self._oracle = world, clouds, oracle
        self._followed: set[str] = set()
        self._deleted: set[str] = set()

    # Mistakes

    def err(self) -> None:
        """Do one of the things that happen to credentials, hours after they were created."""
        self._world.advance(3 * HOURS)
        mistakes: list[Callable[[str], None]] = [
            self._delete_secret,
            self._overwrite_secret,
            self._roll_back,
            self._delete_key,
            self._use_spare_slot,
            self._purge_secret,
        ]
        secrets = self._clouds.secrets[OURS].secrets
        names = [name for name in sorted(secrets) if not self._oracle.is_foreign(secrets, name)]
        if names:
            mistake = self._world.choices.of(mistakes)
            name = self._world.choices.of(names)
            self._world.record(f"operator: {mistake.__name__.strip('_')} {name}")
            mistake(name)

    def _delete_secret(self, name: str, days: float = 7) -> None:
        secret = self._clouds.secrets[OURS].secrets[name]
        if secret.deleted is None:
            with self._oracle.operator_acts():
                secret.deleted, secret.days = self._world.true_now, days

    def _purge_secret(self, name: str) -> None:
        self._delete_secret(name, days=0)

    def _overwrite_secret(self, name: str) -> None:
        if self._clouds.secrets[OURS].secrets[name].deleted is None:
            text = self._world.choices.of(('{"note": "mine"}', "{}"))
            with self._oracle.operator_acts():
                self._clouds.secrets[OURS].put(name, text, (CURRENT,), self._world.true_now)

    def _roll_back(self, name: str) -> None:
        secret = self._clouds.secrets[OURS].secrets[name]
        if secret.deleted is None and PREVIOUS in secret.labels:
            current = self._oracle.credential(name)
            with self._oracle.operator_acts(current.id if current else ""):
                secret.move(CURRENT, secret.labels[PREVIOUS], self._world.true_now)

    def _delete_key(self, name: str) -> None:
        keys = sorted(self._clouds.confluent.state.keys)
        if keys and not self._is_made_current_next(key_id := self._world.choices.of(keys)):
            self._delete_api_key(key_id)

    def _is_made_current_next(self, key_id: str) -> bool:
        """Return whether the next call of a program may make a pending key the current one of a secret.

        No call spans Confluent and Secrets Manager, so no program can avoid this. The next command replaces the key,
        as `test_rotate_beside_deletion_…` shows.
        """
        secrets = self._clouds.secrets[OURS]
        is_pending = any(key_id in str(secrets.value(name, PENDING)) for name in secrets.secrets)
        return is_pending and self._world.calls_next("secretsmanager update_secret_version_stage")

    def _use_spare_slot(self, name: str) -> None:
        """Give the service user a key of somebody else, whom nobody asked."""
        user = self._clouds.names().snowflake("USER")
        slots = self._clouds.snowflake.slots.get(user, {})
        spare = [slot for slot in SLOTS if slot not in slots]
        # Snowflake cannot compare what a statement replaces, so no program can avoid this.
        if slots and spare and not self._world.calls_next("snowflake ALTER USER"):
            fingerprint = f"SHA256:{self._world.choices.below(1000)}"
            slots[spare[0]] = fingerprint
            self._oracle.protect(slots, spare[0])

    # Objects of others

    def add_foreign_objects(self) -> None:
        """Create objects whose names resemble those of the deployment."""
        state, account = self._clouds.confluent.state, f"{ORGANIZATION}/service-account="
        for name in ("lakehouse-lake-spark-2", "lakehouse-lake2-spark", "Lakehouse-lake-spark"):
            account_id = state.new_id("sa")
            state.accounts[account_id] = {
                "api_version": "iam/v2",
                "kind": "ServiceAccount",
                "id": account_id,
                "display_name": name,
                "description": "spark of lakehouse deployment lake2",
                "metadata": state.metadata("", account + account_id),
            }
            self._oracle.protect(state.accounts, account_id)
            self._add_key(account_id, "lakehouse-lake-spark-kafka")
        environment_id = state.new_id("env")
        state.environments[environment_id] = {
            "api_version": "org/v2",
            "kind": "Environment",
            "id": environment_id,
            "display_name": "lakehouse-lake-2",
            "metadata": state.metadata("", f"{ORGANIZATION}/environment={environment_id}"),
        }
        self._oracle.protect(state.environments, environment_id)
        snowflake = self._clouds.snowflake
        for name in ("LAKEHOUSE_LAKE_USER2", "LAKEHOUSE_LAKEXUSER"):
            snowflake.users[name], snowflake.slots[name] = "somebody's", {SLOTS[0]: "SHA256:theirs"}
            self._oracle.protect(snowflake.users, name)
            self._oracle.protect(snowflake.slots, name)
        secrets = self._clouds.secrets[OURS]
        for name in ("/confluent_cloud_resource/lake2/flink", "/snowflake_resource/lake-2"):
            secrets.secrets[name] = Secret({"lakehouse:deployment": "lake2"})
            secrets.put(name, json.dumps({"api.key": "k", "api.key.secret": "s"}), (CURRENT,), self._world.true_now)
            self._oracle.protect(secrets.secrets, name)

    def add_manual_key(self) -> None:
        """Create an API key of one of the deployment's accounts by hand, under the deployment's or another name."""
        state, name = self._clouds.confluent.state, self._clouds.names().service_account("app_manager")
        owner = next((account["id"] for account in state.accounts.values() if account["display_name"] == name), "")
        if owner and not self._oracle.is_deleting:
            self._world.record("operator: create an API key of app_manager")
            self._add_key(owner, self._world.choices.of((f"{name}-kafka", "mine")))

    def _add_key(self, owner: str, name: str) -> None:
        state = self._clouds.confluent.state
        key_id = state.new_id("KEY")
        cluster = next(iter(state.clusters), "lkc-000000")
        state.keys[key_id] = {
            "api_version": "iam/v2",
            "kind": "ApiKey",
            "id": key_id,
            "metadata": state.metadata("", f"{ORGANIZATION}/service-account={owner}/api-key={key_id}"),
            "spec": {
                "display_name": name,
                "description": "of somebody",
                "owner": {"id": owner, "kind": "ServiceAccount"},
                "resource": {"id": cluster, "kind": "Cluster"},
            },
        }
        state.secrets[key_id] = new_secret()
        self._oracle.protect(state.keys, key_id)

    # Remedies

    def follow(self, error: BaseException) -> bool:
        """Run a command that an error names; return whether there is one, or the error suggests a repetition."""
        text = str(error)
        remedies: list[tuple[str, Callable[..., bool]]] = [
            (r"aws secretsmanager (restore-secret) --region \S+ --secret-id ([^\s);]+)", self._change_secret),
            (r"aws secretsmanager (delete-secret) --region \S+ --secret-id ([^\s);]+)", self._change_secret),
            (
                r"(aws) secretsmanager update-secret-version-stage --region \S+ --secret-id (\S+) --version-stage "
                r"AWSCURRENT --move-to-version-id (\S+) --remove-from-version-id ([^\s;.]+)",
                self._move_label,
            ),
            (r"confluent (api-key) delete (\S+?)[).]", self._withdraw_key),
            (r'(ALTER USER) ("\w+" (?:UNSET \w+|SET \w+ = \'\S+\'))', self._alter_user),
            (r"has (\d+ matches) for .*?: (\S+(?:, \S+)*)\.", self._delete_duplicates),
            (r"`lakehouse deploy (create)`()", lambda *words: True),
        ]
        remedies_in_text = [(match, act) for pattern, act in remedies for match in re.finditer(pattern, text)]
        for match, act in sorted(remedies_in_text, key=lambda remedy: remedy[0].start()):
            # An alternative that was tried did not help.
            if match[0] not in self._followed and act(*match.groups()):
                self._world.record(f"operator: {match[0]}")
                self._followed.add(match[0])
                return True
        return bool(AGAIN.search(text))

    def _change_secret(self, command: str, name: str) -> bool:
        secret = self._clouds.secrets[OURS].secrets.get(name)
        if secret is None or (secret.deleted is None) != (command == "delete-secret"):
            return False
        if secret.deleted is not None and self._world.true_now > secret.deleted + secret.days * 86_400:
            return False
        if name in self._deleted and command == "restore-secret":
            # It would undo what an error asked for.
            return False
        self._deleted.add(name)
        with self._oracle.operator_acts():
            secret.deleted, secret.days = (self._world.true_now, 7) if command == "delete-secret" else (None, 0)
        return True

    def _move_label(self, command: str, name: str, to: str, off: str) -> bool:
        secret = self._clouds.secrets[OURS].secrets.get(name)
        if secret is None or secret.labels.get(CURRENT) != off or to not in secret.versions:
            return False
        with self._oracle.operator_acts():
            secret.move(CURRENT, to, self._world.true_now)
        return True

    def _delete_duplicates(self, command: str, ids: str) -> bool:
        """Delete all objects of a name but the first."""
        state = self._clouds.confluent.state
        for object_id in ids.split(", ")[1:]:
            if object_id in state.clusters:
                state.remove_cluster(object_id)
            elif object_id in state.environments:
                state.remove_environment(object_id)
            else:
                return False
        return True

    def _withdraw_key(self, command: str, key_id: str) -> bool:
        return self._delete_api_key(key_id)

    def _delete_api_key(self, key_id: str) -> bool:
        state = self._clouds.confluent.state
        if key_id not in state.keys or self._oracle.is_foreign(state.keys, key_id):
            return False
        with self._oracle.operator_acts(key_id):
            del state.keys[key_id], state.secrets[key_id]
        return True

    def _alter_user(self, command: str, rest: str) -> bool:
        user = self._clouds.names().snowflake("USER")
        slots: dict[str, Any] = self._clouds.snowflake.slots.get(user, {})
        slot = rest.split()[2]
        self._oracle.release(slots)
        with self._oracle.operator_acts(slots.get(slot, "")):
            self._clouds.snowflake.execute(f"{command} {rest}")
        return True
