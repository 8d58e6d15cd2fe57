"""The S3 buckets of a deployment: its own, which are encrypted, versioned and private, or those in lakehouse.yaml.

Settings that protect more than the declared ones are kept: a KMS key, further statements of the policy, rules of the
lifecycle.

Tableflow's tables have a bucket of their own. Nothing else may be in it: Confluent documents that Tableflow may delete
existing objects when it is first enabled (Confluent, "Storage with Tableflow"). The state therefore contains an object
of the bucket, and the first topic of a cluster is refused if there is one (lakehouse/deploy/confluent/tableflow.py).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from lakehouse.config.deployment import DEPLOYMENT_TAG
from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.aws import iam_policies
from lakehouse.deploy.aws.aws_resource import AwsResource
from lakehouse.deploy.aws.aws_service import DENIED, Absent, AwsError, Response
from lakehouse.deploy.aws.foundation import RESULTS
from lakehouse.deploy.aws.iam_policies import same
from lakehouse.deploy.names import Names
from lakehouse.deploy.resource import EXISTED, Outputs, Updatable

DEFAULT_REGION = "us-east-1"
"""The only region for which S3 accepts no LocationConstraint."""
FORMER_REGIONS = {"EU": "eu-west-1"}
"""Names of regions that S3 returns for old buckets (Amazon S3 API, GetBucketLocation)."""

BLOCKED = {
    "BlockPublicAcls": True,
    "IgnorePublicAcls": True,
    "BlockPublicPolicy": True,
    "RestrictPublicBuckets": True,
}


LifecycleRule = dict[str, Any]
"""A rule of a bucket's lifecycle, in boto3's form."""

NONCURRENT_DAYS, UPLOAD_DAYS, RESULT_DAYS = 30, 7, 7
ACTIONS = frozenset({"NoncurrentVersionExpiration", "AbortIncompleteMultipartUpload", "Expiration"})
TABLE_LIFECYCLE: tuple[LifecycleRule, ...] = (
    {
        "ID": "lakehouse-noncurrent-versions",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "NoncurrentVersionExpiration": {"NoncurrentDays": NONCURRENT_DAYS},
    },
    {
        "ID": "lakehouse-incomplete-uploads",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": UPLOAD_DAYS},
    },
)
"""The lifecycle of tables: a file that maintenance deletes can be restored for `NONCURRENT_DAYS`."""
LIFECYCLE: tuple[LifecycleRule, ...] = (
    *TABLE_LIFECYCLE,
    {
        "ID": "lakehouse-query-results",
        "Status": "Enabled",
        "Filter": {"Prefix": f"{RESULTS}/"},
        "Expiration": {"Days": RESULT_DAYS},
    },
)
"""The lifecycle of the bucket that also has query results."""


@dataclass(frozen=True)
class BucketSetting:
    """A property of a bucket: client methods `get_<name>` and `put_<name>`."""

    name: str
    difference: str
    """The phrase that names a wrong value."""
    wanted: Callable[[Response], Response]
    """Returns the arguments of `put_<name>`, from the response of `get_<name>`, which is empty if there is none."""
    is_wanted: Callable[[Response], bool]
    """Returns whether a response of `get_<name>`, which is not empty, protects enough."""


@dataclass(frozen=True)
class BucketState:
    """The state of a bucket."""

    name: str
    wrong: tuple[BucketSetting, ...]
    """The settings that are not as declared."""
    first_object: str = ""
    """Key of one of its objects, which is read of Tableflow's bucket only; empty if there is none."""


@dataclass(frozen=True, repr=False)
class Bucket(AwsResource[BucketState], Updatable[BucketState]):
    """`aws/bucket`, or `aws/tableflow_bucket`, which has Tableflow's tables only."""

    holds_data = True
    key: Literal["bucket", "tableflow_bucket"] = "bucket"
    """Its key of `existing` in lakehouse.yaml, which names it if it existed before the deployment."""
    kms_key: str = ""
    """ARN of the key that encrypts the objects; empty for S3's own keys."""

    @property
    def address(self) -> str:
        return f"aws/{self.key}"

    @property
    def retained_because(self) -> str:
        return EXISTED if self._is_existing else ""

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return self.names.tableflow_bucket if self._has_tableflow else self.names.bucket

    @property
    def label(self) -> str:
        return f"S3 bucket '{self.bucket}'"

    def read(self, outputs: Outputs) -> BucketState | None:
        current = self._read_existing() if self._is_existing else self._read_own()
        return replace(current, first_object=self._first_object()) if current and self._has_tableflow else current

    def _read_own(self) -> BucketState | None:
        try:
            tags = self._call("get_bucket_tagging")["TagSet"]
        except Absent as error:
            if error.code == "NoSuchBucket":
                return None
            tags = []
        except AwsError as error:
            if error.code in DENIED:
                error.add_note(f"Or the {self.label} is in another account. Then choose another name in lakehouse.yaml")
            raise
        name = self.bucket
        tagging = f"TagSet=[{{Key={DEPLOYMENT_TAG},Value={self.names.deployment}}}]"
        self.require_ownership(self.label, tags, f"aws s3api put-bucket-tagging --bucket {name} --tagging '{tagging}'")
        lifecycle = TABLE_LIFECYCLE if self._has_tableflow else LIFECYCLE
        settings = _settings(self.names, name, self.kms_key, lifecycle)
        return BucketState(name, tuple(setting for setting in settings if not self._is_set(setting)))

    def _read_existing(self) -> BucketState:
        names, bucket = self.names, self.bucket
        response = self.service("s3").find("get_bucket_location", Bucket=bucket, ExpectedBucketOwner=names.account)
        region = (response.get("LocationConstraint") or DEFAULT_REGION) if response else "nowhere"
        region = FORMER_REGIONS.get(region, region)
        if region != names.region:
            raise LakehouseError(
                f"The S3 bucket '{bucket}' that lakehouse.yaml names is not in region {names.region} of account "
                f"{names.account} (it is in: {region}). None was created in its place. Correct `existing.{self.key}`"
            )
        return BucketState(bucket, ())

    def _first_object(self) -> str:
        """Return the key of one of its objects; empty if there is none."""
        response = self._call("list_objects_v2", MaxKeys=1)
        return next((str(file["Key"]) for file in response.get("Contents", ())), "")

    def create(self, outputs: Outputs) -> BucketState:
        # `diff` reports settings that an interruption leaves out.
        region = self.names.region
        place = {} if region == DEFAULT_REGION else {"LocationConstraint": region}

        def create() -> None:
            configuration = {**place, "Tags": self.tags}
            self.service("s3").call(
                "create_bucket",
                Bucket=self.bucket,
                CreateBucketConfiguration=configuration,
                ObjectOwnership="BucketOwnerEnforced",
            )
            self.service("s3").wait("bucket_exists", Bucket=self.bucket, ExpectedBucketOwner=self.names.account)

        return self.update(outputs, self.create_and_read(create, outputs))

    def diff(self, outputs: Outputs, current: BucketState) -> list[str]:
        return [setting.difference for setting in current.wrong]

    def update(self, outputs: Outputs, current: BucketState) -> BucketState:
        for setting in current.wrong:
            self._call(f"put_{setting.name}", **setting.wanted(self._response(setting)))
        return replace(current, wrong=())

    def delete(self, outputs: Outputs, current: BucketState) -> None:
        # Repeated while objects are still written.
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

        self.wait_until_gone(self.label, look)

    def _empty(self) -> None:
        s3 = self.service("s3")
        bucket = {"Bucket": self.bucket, "ExpectedBucketOwner": self.names.account}
        while objects := self._versions(s3.call("list_object_versions", **bucket)):
            failed = s3.call("delete_objects", Delete={"Objects": objects, "Quiet": True}, **bucket).get("Errors")
            if failed:
                first = failed[0]
                raise AwsError(
                    f"S3 did not delete {len(failed)} of {len(objects)} versions of objects, the first "
                    f"'{first['Key']}' ({first['Code']}: {first.get('Message', '')}). Other objects may "
                    f"be deleted already. Grant s3:DeleteObject and s3:DeleteObjectVersion and run the command again",
                    first["Code"],
                )

    @staticmethod
    def _versions(page: dict[str, Any]) -> list[dict[str, str]]:
        both = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
        return [{"Key": version["Key"], "VersionId": version["VersionId"]} for version in both]

    @property
    def _is_existing(self) -> bool:
        return bool(getattr(self.names.existing, self.key))

    @property
    def _has_tableflow(self) -> bool:
        return self.key == "tableflow_bucket"

    def _is_set(self, setting: BucketSetting) -> bool:
        response = self._response(setting)
        return bool(response) and setting.is_wanted(response)

    def _response(self, setting: BucketSetting) -> Response:
        try:
            response = self._call(f"get_{setting.name}")
        except Absent:
            return {}
        return {key: value for key, value in response.items() if key != "ResponseMetadata"}

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        # Bucket names are global: a bucket in another account is neither read nor changed.
        return self.service("s3").call(method, Bucket=self.bucket, ExpectedBucketOwner=self.names.account, **parameters)


def _settings(
    names: Names, bucket: str, kms_key: str, lifecycle: tuple[LifecycleRule, ...]
) -> tuple[BucketSetting, ...]:
    demand_tls = iam_policies.bucket_policy(iam_policies.AwsPlace(names.account, names.region, bucket))
    ownership = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    return (
        BucketSetting(
            "public_access_block",
            "public access is not blocked",
            lambda has: {"PublicAccessBlockConfiguration": BLOCKED},
            lambda has: has["PublicAccessBlockConfiguration"] == BLOCKED,
        ),
        BucketSetting(
            "bucket_ownership_controls",
            "objects may belong to others than the bucket's owner",
            lambda has: {"OwnershipControls": ownership},
            lambda has: has["OwnershipControls"] == ownership,
        ),
        BucketSetting(
            "bucket_encryption",
            f"objects are not encrypted with {kms_key}" if kms_key else "objects are not encrypted",
            lambda has: _encryption(kms_key),
            lambda has: _is_encrypted(has, kms_key),
        ),
        BucketSetting(
            "bucket_versioning",
            "versioning is off",
            lambda has: {"VersioningConfiguration": {"Status": "Enabled"}},
            lambda has: has.get("Status") == "Enabled",
        ),
        BucketSetting(
            "bucket_policy",
            "its policy does not demand TLS",
            lambda has: {"Policy": json.dumps(_extended(has, demand_tls))},
            lambda has: same(_extended(has, demand_tls), json.loads(has["Policy"])),
        ),
        BucketSetting(
            "bucket_lifecycle_configuration",
            "old versions, incomplete uploads or query results never expire",
            lambda has: {"LifecycleConfiguration": {"Rules": _completed(has, lifecycle)}},
            lambda has: not _missing_rules(has, lifecycle),
        ),
    )


def _encryption(kms_key: str) -> Response:
    by_default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": kms_key} if kms_key else {"SSEAlgorithm": "AES256"}
    rule = {"ApplyServerSideEncryptionByDefault": by_default} | ({"BucketKeyEnabled": True} if kms_key else {})
    return {"ServerSideEncryptionConfiguration": {"Rules": [rule]}}


def _is_encrypted(response: Response, kms_key: str) -> bool:
    """Return whether the bucket has the declared key or, if none is declared, any encryption."""
    rules = [
        rule.get("ApplyServerSideEncryptionByDefault", {})
        for rule in response["ServerSideEncryptionConfiguration"]["Rules"]
    ]
    return any(rule.get("KMSMasterKeyID") == kms_key if kms_key else rule.get("SSEAlgorithm") for rule in rules)


def _extended(response: Response, demanded: iam_policies.Policy) -> iam_policies.Policy:
    """Return the bucket's policy with the required statements and all manually added ones."""
    policy = json.loads(response["Policy"]) if response else {**demanded, "Statement": []}
    statements = policy["Statement"]
    statements = [statements] if isinstance(statements, dict) else statements
    missing = [
        statement for statement in demanded["Statement"] if not any(same(statement, other) for other in statements)
    ]
    return {**policy, "Statement": [*statements, *missing]}


def _completed(response: Response, lifecycle: tuple[LifecycleRule, ...]) -> list[LifecycleRule]:
    """Return the bucket's rules and the missing ones, in place of those of the same id, which S3 accepts once."""
    missing = _missing_rules(response, lifecycle)
    ids = {rule["ID"] for rule in missing}
    return [*(rule for rule in response.get("Rules", ()) if rule.get("ID") not in ids), *missing]


def _missing_rules(response: Response, lifecycle: tuple[LifecycleRule, ...]) -> list[LifecycleRule]:
    """Return the rules whose action no enabled rule of the bucket has for all of their objects.

    S3 applies the shortest of several periods, so a missing rule gets the longest period of those for some of its
    objects, which it would shorten otherwise.
    """
    enabled = [rule for rule in response.get("Rules", ()) if rule["Status"] == "Enabled"]
    missing = []
    for rule in lifecycle:
        [action] = ACTIONS & rule.keys()
        periods = [(_filter(other), other[action]) for other in enabled if _has_period(other, action)]
        if any(filter_ == rule["Filter"] for filter_, _ in periods):
            continue
        begin = rule["Filter"]["Prefix"]
        longest = dict(rule[action])
        for filter_, period in periods:
            if _prefix(filter_).startswith(begin):
                longest |= {unit: max(n, longest.get(unit, 0)) for unit, n in period.items() if isinstance(n, int)}
        missing.append({**rule, action: longest})
    return missing


def _has_period(rule: LifecycleRule, action: str) -> bool:
    # `Expiration` may only remove delete markers.
    return action in rule and "ExpiredObjectDeleteMarker" not in rule[action]


def _filter(rule: LifecycleRule) -> Response:
    """Return the objects of a rule, whose prefix older rules have beside the filter."""
    return {"Prefix": rule.get("Prefix", ""), **rule.get("Filter", {})}


def _prefix(filter_: Response) -> str:
    return str(filter_.get("And", filter_).get("Prefix", ""))
