"""The bucket with all of the deployment's files: encrypted, versioned, and nobody else's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lakehouse.deploy.aws import policies
from lakehouse.deploy.aws.documents import same
from lakehouse.deploy.aws.service import DENIED, Absent, AwsError
from lakehouse.deploy.aws.step import EVERY_SECONDS, GONE_SECONDS, AwsStep
from lakehouse.deploy.names import Names
from lakehouse.deploy.step import Found
from resources.confluent.waiting import wait_gone
from resources.secrets_manager import TAG

DEFAULT_REGION = "us-east-1"
"""The one region that S3 takes no LocationConstraint for."""

BLOCKED = {
    "BlockPublicAcls": True,
    "IgnorePublicAcls": True,
    "BlockPublicPolicy": True,
    "RestrictPublicBuckets": True,
}


@dataclass(frozen=True)
class Setting:
    """A property of a bucket: client methods `get_<name>` and `put_<name>`."""

    name: str
    difference: str
    """What to say when it is not as it should be."""
    wanted: dict[str, Any]
    """As `put_<name>` takes it."""
    is_wanted: Callable[[dict[str, Any]], bool]
    """By what `get_<name>` answers."""


@dataclass(frozen=True)
class FoundBucket:
    """The bucket as it is."""

    name: str
    wrong: tuple[Setting, ...]
    """What is not as it should be."""


@dataclass(frozen=True)
class Bucket(AwsStep):
    """`aws/bucket`."""

    name = "aws/bucket"
    holds_data = True

    @property
    def what(self) -> str:
        """The bucket, named."""
        return f"S3 bucket '{self.names.bucket}'"

    def find(self, found: Found) -> FoundBucket | None:
        """The bucket and what is wrong with it."""
        try:
            tags = self._call("get_bucket_tagging")["TagSet"]
        except Absent as error:
            if error.code == "NoSuchBucket":
                return None
            tags = []
        except AwsError as error:
            if error.code in DENIED:
                error.add_note(f"Or the {self.what} is in another account: then it stands in the way, and is not ours")
            raise
        name = self.names.bucket
        tagging = f"TagSet=[{{Key={TAG},Value={self.names.deployment}}}]"
        self.claim(self.what, tags, f"aws s3api put-bucket-tagging --bucket {name} --tagging '{tagging}'")
        return FoundBucket(name, tuple(each for each in _settings(self.names) if not self._is_set(each)))

    def create(self, found: Found) -> FoundBucket:
        """Make it with its tag, then set it up: what is left undone then is a difference."""
        region = self.names.region
        place = {} if region == DEFAULT_REGION else {"LocationConstraint": region}

        def make() -> None:
            configuration = {**place, "Tags": self.tags}
            self.service("s3").call(
                "create_bucket",
                Bucket=self.names.bucket,
                CreateBucketConfiguration=configuration,
                ObjectOwnership="BucketOwnerEnforced",
            )
            self.service("s3").wait("bucket_exists", Bucket=self.names.bucket, ExpectedBucketOwner=self.names.account)

        return self.change(found, self.made(make, found))

    def differences(self, found: Found, it: FoundBucket) -> list[str]:
        """A phrase for each setting that is wrong."""
        return [setting.difference for setting in it.wrong]

    def change(self, found: Found, it: FoundBucket) -> FoundBucket:
        """Set right what is wrong."""
        for setting in it.wrong:
            self._call(f"put_{setting.name}", **setting.wanted)
        return FoundBucket(it.name, ())

    def delete(self, found: Found, it: FoundBucket) -> None:
        """Delete all versions of all objects, then the bucket; again, while somebody still writes."""

        def look() -> str | None:
            try:
                self._empty()
                self._call("delete_bucket")
            except AwsError as error:
                if error.code == "BucketNotEmpty":
                    return "written to meanwhile"
                if error.code != "NoSuchBucket":
                    raise
            return None

        wait_gone(self.what, look, deadline_seconds=GONE_SECONDS, every_seconds=EVERY_SECONDS, clock=self.clock)

    def _empty(self) -> None:
        s3 = self.service("s3")
        asked = {"Bucket": self.names.bucket, "ExpectedBucketOwner": self.names.account}
        while objects := self._versions(s3.call("list_object_versions", **asked)):
            failed = s3.call("delete_objects", Delete={"Objects": objects, "Quiet": True}, **asked).get("Errors")
            if failed:
                first = failed[0]
                raise AwsError(
                    f"S3 did not delete {len(failed)} of {len(objects)} versions of objects, the first "
                    f"'{first['Key']}' ({first['Code']}: {first.get('Message', '')}). What it deleted before is gone, "
                    f"the rest is as it was. Grant s3:DeleteObject and s3:DeleteObjectVersion and run this again",
                    first["Code"],
                )

    @staticmethod
    def _versions(page: dict[str, Any]) -> list[dict[str, str]]:
        both = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
        return [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in both]

    def _is_set(self, setting: Setting) -> bool:
        try:
            return setting.is_wanted(self._call(f"get_{setting.name}"))
        except Absent:
            return False

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        # The name is everybody's: nothing is asked of, or done to, a bucket in another account.
        return self.service("s3").call(
            method, Bucket=self.names.bucket, ExpectedBucketOwner=self.names.account, **parameters
        )


def _settings(names: Names) -> tuple[Setting, ...]:
    policy = policies.bucket_policy(policies.Deployment(names.account, names.region, names.bucket))
    encryption = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}
    ownership = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    return (
        Setting(
            "public_access_block",
            "public access is not blocked",
            {"PublicAccessBlockConfiguration": BLOCKED},
            lambda has: has["PublicAccessBlockConfiguration"] == BLOCKED,
        ),
        Setting(
            "bucket_ownership_controls",
            "objects may belong to others than the bucket's owner",
            {"OwnershipControls": ownership},
            lambda has: has["OwnershipControls"] == ownership,
        ),
        Setting(
            "bucket_encryption",
            "objects are not encrypted with S3's own keys",
            {"ServerSideEncryptionConfiguration": encryption},
            lambda has: _algorithms(has) == ["AES256"],
        ),
        Setting(
            "bucket_versioning",
            "versioning is off",
            {"VersioningConfiguration": {"Status": "Enabled"}},
            lambda has: has.get("Status") == "Enabled",
        ),
        Setting(
            "bucket_policy",
            "its policy is not the one that demands TLS",
            {"Policy": json.dumps(policy)},
            lambda has: same(json.loads(has["Policy"]), policy),
        ),
    )


def _algorithms(answer: dict[str, Any]) -> list[str]:
    rules = answer["ServerSideEncryptionConfiguration"]["Rules"]
    return [rule.get("ApplyServerSideEncryptionByDefault", {}).get("SSEAlgorithm", "") for rule in rules]
