"""The S3 bucket of Tableflow's tables: the deployment's own, or one that lakehouse.yaml names.

Nothing else may be in it: Confluent documents that Tableflow may delete existing objects when it is first enabled
(Confluent, "Storage with Tableflow"). The state therefore contains an object of the bucket, and the first topic of a
cluster is refused if there is one (lakehouse/deploy/confluent/tableflow/tableflow_tables.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakehouse.deploy.aws.aws_resource import AwsResource
from lakehouse.deploy.aws.aws_service import Service
from lakehouse.deploy.aws.bucket import TABLE_LIFECYCLE, Bucket, BucketState, LifecycleRule
from lakehouse.deploy.aws.existing_storage import read_region
from lakehouse.deploy.resource import ExistingResource, Outputs


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
        if current is None:
            return None
        key = first_object(self.service("s3"), self.bucket, self.names.account)
        return replace(current, first_object=key)


@dataclass(frozen=True, repr=False)
class ExistingTableflowBucket(AwsResource[BucketState], ExistingResource[BucketState]):
    """`aws/tableflow_bucket`, which existed before the deployment: used, never changed or deleted."""

    address = "aws/tableflow_bucket"

    @property
    def label(self) -> str:
        """The bucket with its name."""
        return f"S3 bucket '{self.names.tableflow_bucket}'"

    def read(self, outputs: Outputs) -> BucketState:
        """Read whether the bucket is empty.

        Raises:
            LakehouseError: It does not exist in the account, or is in another region.
        """
        s3, name = self.service("s3"), self.names.tableflow_bucket
        read_region(s3, self.names, name, "tableflow_bucket")
        return BucketState(name, (), first_object(s3, name, self.names.account))


def first_object(s3: Service, bucket: str, account: str) -> str:
    """Return the key of an object of a bucket; empty if there is none."""
    response = s3.call("list_objects_v2", Bucket=bucket, ExpectedBucketOwner=account, MaxKeys=1)
    return next((str(file["Key"]) for file in response.get("Contents", ())), "")
