"""A bucket and a Glue database that existed before the deployment: used, never changed or deleted."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.aws.aws_resource import AwsResource
from lakehouse.deploy.aws.aws_service import Response, Service
from lakehouse.deploy.aws.bucket import DEFAULT_REGION
from lakehouse.deploy.aws.table_locations import location
from lakehouse.deploy.names import Names
from lakehouse.deploy.resource import ExistingResource, Outputs


@dataclass(frozen=True, repr=False)
class ExistingBucket(AwsResource[str], ExistingResource[str]):
    """`aws/bucket`, whose state is its region."""

    address = "aws/bucket"

    @property
    def label(self) -> str:
        """The bucket with its name."""
        return f"S3 bucket '{self.names.bucket}'"

    def read(self, outputs: Outputs) -> str:
        """Read the bucket's region.

        Raises:
            LakehouseError: It does not exist in the account, or is in another region.
        """
        return read_region(self.service("s3"), self.names, self.names.bucket, "bucket")


def read_region(s3: Service, names: Names, bucket: str, key: str) -> str:
    """Return the region of a bucket that lakehouse.yaml names under a key of `existing`.

    Raises:
        LakehouseError: It does not exist in the account, or is in another region.
    """
    response = s3.find("get_bucket_location", Bucket=bucket, ExpectedBucketOwner=names.account)
    region = (response.get("LocationConstraint") or DEFAULT_REGION) if response else "nowhere"
    if region != names.region:
        raise LakehouseError(
            f"The S3 bucket '{bucket}' that lakehouse.yaml names is not in region {names.region} of account "
            f"{names.account} (it is in: {region}). Nothing was changed. Correct `existing.{key}`"
        )
    return region


@dataclass(frozen=True, kw_only=True, repr=False)
class ExistingGlueDatabase(AwsResource[Response], ExistingResource[Response]):
    """`aws/glue_database`, whose state is Glue's description."""

    address = "aws/glue_database"
    namespace: str

    @property
    def label(self) -> str:
        """The database with its name."""
        return f"Glue database '{self.namespace}'"

    def read(self, outputs: Outputs) -> Response:
        """Read the database.

        Raises:
            LakehouseError: It does not exist, or its tables are created where the deployment's roles may not write.
        """
        response = self.service("glue").find("get_database", CatalogId=self.names.account, Name=self.namespace)
        if response is None:
            raise LakehouseError(
                f"There is no {self.label} in region {self.names.region}. Nothing was changed. Correct "
                f"`existing.glue_database` in lakehouse.yaml"
            )
        database: Response = response["Database"]
        uri, needed = database.get("LocationUri", ""), location(self.names, self.namespace)
        if uri.rstrip("/") != needed:
            raise LakehouseError(
                f"Tables of the {self.label} are created at '{uri}', where the deployment's roles may not write. "
                f"Nothing was changed. Set its location to {needed}, or name another `existing.glue_database`"
            )
        return database
