"""The S3 bucket of Tableflow's tables: the deployment's own, or one that lakehouse.yaml names.

Nothing else may be in it: Confluent documents that Tableflow may delete existing objects when it is first enabled
(Confluent, "Storage with Tableflow"). The state therefore contains an object of the bucket, and the first topic of a
cluster is refused if there is one (lakehouse/deploy/confluent/tableflow/tableflow_tables.py).
"""

from dataclasses import dataclass, replace

from lakehouse.deploy.aws.bucket import TABLE_LIFECYCLE, Bucket, BucketState, ExistingBucket, LifecycleRule
from lakehouse.deploy.resource import Outputs


@dataclass(frozen=True, repr=False)
class TableflowBucket(Bucket):
    """`aws/tableflow_bucket`, made for Tableflow."""

    address = "aws/tableflow_bucket"

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return self.names.tableflow_bucket

    @property
    def lifecycle(self) -> tuple[LifecycleRule, ...]:
        """The rules for files of tables: there are no query results."""
        return TABLE_LIFECYCLE

    def read(self, outputs: Outputs) -> BucketState | None:
        """Read the bucket, its settings and whether it is empty."""
        current = super().read(outputs)
        return current and replace(current, first_object=_first_object(self))


@dataclass(frozen=True, repr=False)
class ExistingTableflowBucket(ExistingBucket):
    """`aws/tableflow_bucket`, which existed before the deployment: used, never changed or deleted."""

    address = "aws/tableflow_bucket"
    key = "tableflow_bucket"

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return self.names.tableflow_bucket

    def read(self, outputs: Outputs) -> BucketState:
        """Read the bucket's region and whether it is empty."""
        return replace(super().read(outputs), first_object=_first_object(self))


def _first_object(bucket: Bucket | ExistingBucket) -> str:
    """Return the key of an object of a bucket; empty if there is none."""
    owner = bucket.names.account
    response = bucket.service("s3").call("list_objects_v2", Bucket=bucket.bucket, ExpectedBucketOwner=owner, MaxKeys=1)
    return next((str(file["Key"]) for file in response.get("Contents", ())), "")
