"""JSON secrets in AWS Secrets Manager, as a deployment creates, rotates and deletes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakehouse.config.deployment import DEPLOYMENT_TAG
from lakehouse.core.errors import CommitConflict, UnclearState
from resources.aws.secret_reader import CURRENT, PENDING, PREVIOUS, SecretJson, SecretReader, Version

CANDIDATE = "lakehouse-candidate"
"""Label of a version that is to become the pending one; AWS gives AWSCURRENT to a version that is written without."""

FRESH = timedelta(minutes=10)
"""The age at which a pending version is written again before it becomes current: more than all retries of a call."""

RECOVERY_DAYS = 7
"""Time during which a deleted secret can be restored: the minimum of AWS (Secrets Manager, DeleteSecret)."""


@dataclass(frozen=True)
class Secrets(SecretReader):
    """The secrets of one AWS account and region, with the calls that change them.

    A refusal of AWS raises LakehouseError, and a lost response OutcomeUnknownError.
    """

    deployment: str = ""
    """Name of the deployment, with which created secrets are tagged; not needed to read."""

    def versions(self, name: str) -> list[Version]:
        """Return all versions that AWS still has, including those without a label.

        Raises:
            UnclearState: The secret is not a JSON object of texts.
        """
        ids: list[str] = []
        request = {"SecretId": name, "IncludeDeprecated": True}
        while request:
            with self._errors(name):
                page = self._client.list_secret_version_ids(**request)
                ids += [version["VersionId"] for version in page["Versions"]]
            request = {**request, "NextToken": page["NextToken"]} if page.get("NextToken") else {}
        versions = (self._read(name, version_id, VersionId=version_id) for version_id in ids)
        return [version for version in versions if version]

    def create(self, name: str, value: SecretJson, *, description: str) -> None:
        """Create the secret with this value as its current version, and the deployment's tag.

        An existing secret is left unchanged. A deleted one of this deployment is restored first, because AWS reserves
        its name until it can no longer be restored. Of two commands that do so at the same time, the first one counts.

        Raises:
            UnclearState: A deleted secret of that name belongs to another deployment.
        """
        unavailable = (self._client.exceptions.ResourceExistsException, self._client.exceptions.InvalidRequestException)
        with self._errors(name, changes=True):
            try:
                self._client.create_secret(
                    Name=name,
                    SecretString=json.dumps(value.reveal()),
                    Description=description,
                    Tags=[{"Key": DEPLOYMENT_TAG, "Value": self.deployment}],
                )
            except unavailable:
                self._restore(name, value)

    def put_pending(self, name: str, value: SecretJson) -> Version:
        """Write a version with the label AWSPENDING, which is moved from an earlier one."""
        with self._errors(name, changes=True):
            response = self._client.put_secret_value(
                SecretId=name, SecretString=json.dumps(value.reveal()), VersionStages=[PENDING]
            )
        return Version(response["VersionId"], frozenset(response["VersionStages"]), value)

    def claim_pending(self, name: str, value: SecretJson, *, over: Version | None) -> Version:
        """Write a version and move AWSPENDING to it, unless another writer has moved the label.

        Args:
            name: Name of the secret.
            value: Its content.
            over: The version that had the label when the caller read it; None if none had it.

        Raises:
            CommitConflict: Another version has got the label.
        """
        with self._errors(name, changes=True):
            response = self._client.put_secret_value(
                SecretId=name, SecretString=json.dumps(value.reveal()), VersionStages=[CANDIDATE]
            )
        claimed = Version(response["VersionId"], frozenset({CANDIDATE, PENDING}), value)
        self._move(PENDING, name, claimed, over.version_id if over else None)
        return claimed

    def changed_at(self, name: str) -> datetime:
        """Return when the secret was changed in any way, such as by moving a label."""
        with self._errors(name):
            return self._client.describe_secret(SecretId=name)["LastChangedDate"]

    def replace(self, name: str, value: Callable[[], SecretJson], *, over: Version) -> None:
        """Write a version and make it the current one.

        Grace periods of the replaced version count from this version's creation, so a version that was written before
        the process was suspended is written again.

        Args:
            name: Name of the secret.
            value: Returns the new content as of now.
            over: The version that the caller knows as current.
        """
        is_fresh = False
        while not is_fresh:
            began = datetime.now(UTC)
            pending = self.put_pending(name, value())
            is_fresh = datetime.now(UTC) - began < FRESH
        self.promote(name, pending, over=over)

    def promote(self, name: str, pending: Version, *, over: Version) -> None:
        """Make the pending version the current one atomically; the previous one becomes AWSPREVIOUS.

        Args:
            name: Name of the secret.
            pending: The new current version.
            over: The version that was current when the caller read it.

        Raises:
            CommitConflict: Another version has become current.
        """
        self._move(CURRENT, name, pending, over.version_id)

    def _move(self, label: str, name: str, to: Version, over: str | None) -> None:
        """Move a label from a version, named by its id, to another one, unless it is on neither."""
        off = {"RemoveFromVersionId": over} if over else {}
        with self._errors(name, changes=True):
            try:
                self._client.update_secret_version_stage(
                    SecretId=name, VersionStage=label, MoveToVersionId=to.version_id, **off
                )
            except self._client.exceptions.InvalidParameterException:
                refused = True
            else:
                refused = False
        # AWS also rejects a change that it has made already, when boto3 repeats a call whose response was lost.
        labelled = self.read(name, label) if refused else None
        if refused and (labelled is None or labelled.version_id != to.version_id):
            raise CommitConflict(
                f"Another writer changed the secret '{name}' in region {self.region} at the same time. The version "
                f"that has the label {label} now was left unchanged. Run the `lakehouse deploy` command again"
            )

    def delete(self, name: str) -> None:
        """Delete a secret with all versions. For `RECOVERY_DAYS` it can be restored, manually or by `create`.

        A missing or already deleted secret is left as it is.
        """
        with self._errors(name, changes=True):
            try:
                self._client.delete_secret(SecretId=name, RecoveryWindowInDays=RECOVERY_DAYS)
            except self._client.exceptions.ResourceNotFoundException:
                return
            except self._client.exceptions.InvalidRequestException:
                if not self._is_deleted(name):
                    raise

    def remedy(self, name: str, unusable: Version) -> str:
        """Return a sentence with the commands that replace an unusable version of a secret, for errors."""
        place = f"--region {self.region} --secret-id {name}"
        delete = (
            f"delete the secret: aws secretsmanager delete-secret {place} --recovery-window-in-days {RECOVERY_DAYS}"
        )
        previous = self.read(name, PREVIOUS) if CURRENT in unusable.stages else None
        if previous is None:
            return f"If no program needs it, {delete}"
        return (
            f"Make the previous version current again: aws secretsmanager update-secret-version-stage {place} "
            f"--version-stage {CURRENT} --move-to-version-id {previous.version_id} --remove-from-version-id "
            f"{unusable.version_id}; or, if it is not needed, {delete}"
        )

    def _restore(self, name: str, value: SecretJson) -> None:
        """Restore a secret of this deployment, if it is deleted, and make `value` its current version.

        Nothing is changed if another command has done so in the meantime.

        AWS accepts no value before the restoration. After a crash between the two, the secret has its former value,
        which the owner of a key compares with the keys that exist.
        """
        secret = self._client.describe_secret(SecretId=name)
        if "DeletedDate" not in secret:
            return
        tags = {tag["Key"]: tag["Value"] for tag in secret.get("Tags", ())}
        if tags.get(DEPLOYMENT_TAG) != self.deployment:
            raise UnclearState(
                f"The name of the secret '{name}' in region {self.region} is reserved by a deleted one that does not "
                f"belong to deployment '{self.deployment}' (tag {DEPLOYMENT_TAG}: {tags.get(DEPLOYMENT_TAG, 'none')}). "
                f"It was left unchanged. Choose another deployment name, or wait until AWS has purged it, "
                f"{RECOVERY_DAYS} to 30 days after its deletion"
            )
        labels = secret.get("VersionIdsToStages", {})
        former = next((version for version, stages in labels.items() if CURRENT in stages), None)
        self._client.restore_secret(SecretId=name)
        with suppress(CommitConflict):
            self._move(CURRENT, name, self.put_pending(name, value), former)
