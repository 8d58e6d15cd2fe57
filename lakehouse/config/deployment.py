"""The declaration of a deployment in lakehouse.yaml. Everything else about a deployment follows from its name."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from lakehouse.config.base import ConfigModel
from lakehouse.config.settings import MAX_DAYS

Principal = Annotated[str, Field(pattern=r"^arn:aws:iam::\d{12}:(user|role)/[A-Za-z0-9_+=,.@/-]+$")]
"""The ARN of a user or role, with the characters that IAM allows in names: a wildcard would include others."""

NAME = r"^[A-Za-z_][A-Za-z0-9_$]{0,254}$"
"""A name in Snowflake that needs no quotes."""

DEPLOYMENT_TAG = "lakehouse:deployment"
"""Tag of an object in AWS, and begin of the comment of one in Snowflake; its value names the deployment."""

OTHER_PARTITIONS = ("cn-", "us-gov-", "us-iso", "eu-isoe-", "eusc-")
"""Prefixes of the regions of other partitions than `aws` (botocore, partitions.json)."""


class Rotation(ConfigModel):
    """The ages at which `lakehouse deploy rotate` replaces keys and deletes replaced ones."""

    day_count: float = Field(30, ge=0, le=MAX_DAYS, description="Age in days at which a key is replaced.")
    number_of_api_keys_to_retain: int = Field(
        2, ge=1, description="Number of API keys that stay valid for each account and API of Confluent Cloud."
    )
    grace_days: float = Field(
        1, ge=0, le=MAX_DAYS, description="Days for which a replaced key stays valid: longer than the longest run."
    )


class ExistingObjects(ConfigModel):
    """Objects that existed before the deployment. They are used, and never changed or deleted."""

    confluent_environment: str = Field(
        "", pattern=r"^(env-[a-z0-9]+)?$", description="Id of an environment in Confluent Cloud."
    )
    confluent_cluster: str = Field(
        "",
        pattern=r"^(lkc-[a-z0-9]+)?$",
        description="Id of a Kafka cluster (Basic, Standard, Enterprise or Dedicated) in `confluent_environment`. "
        "Topics are created in it and never deleted.",
    )
    bucket: str = Field("", pattern=r"^([a-z0-9][a-z0-9-]{1,61}[a-z0-9])?$", description="An S3 bucket without dots.")
    tableflow_bucket: str = Field(
        "",
        pattern=r"^([a-z0-9][a-z0-9-]{1,61}[a-z0-9])?$",
        description="An S3 bucket without dots for Tableflow's tables only, empty when Tableflow is first enabled.",
    )
    glue_database: str = Field(
        "", pattern=r"^([a-z][a-z0-9_]{0,127})?$", description="A Glue database, which is then the Iceberg namespace."
    )
    snowflake_database: str = Field("", pattern=rf"^$|{NAME}", description="A database in Snowflake.")
    snowflake_warehouse: str = Field("", pattern=rf"^$|{NAME}", description="A warehouse in Snowflake.")

    @model_validator(mode="after")
    def _cluster_needs_environment(self) -> ExistingObjects:
        if self.confluent_cluster and not self.confluent_environment:
            raise ValueError("confluent_cluster needs confluent_environment. Add the id of the cluster's environment")
        return self

    @model_validator(mode="after")
    def _tableflow_needs_its_own_bucket(self) -> ExistingObjects:
        if self.tableflow_bucket and self.tableflow_bucket == self.bucket:
            raise ValueError("tableflow_bucket is also the bucket of Spark's tables. Name an empty bucket")
        return self


class OpenCatalog(ConfigModel):
    """A catalog of Snowflake Open Catalog or Apache Polaris (type EXTERNAL) in which Tableflow registers its tables."""

    endpoint: str = Field(pattern=r"^https?://\S+$", description="Address, as `https://host/polaris/api/catalog`.")
    warehouse: str = Field(min_length=1, description="Name of the catalog on the server.")
    secret: str = Field(
        pattern=r"^[\w/+=.@-]+$",
        description="Secret in AWS Secrets Manager with `client_id` and `client_secret`, texts of one JSON object.",
    )
    scope: str = Field("PRINCIPAL_ROLE:ALL", min_length=1, description="OAuth scope of the client.")
    namespace: str = Field(
        "", pattern=r"^[\w-]*$", description="Namespace of the tables. Default: the id of the Kafka cluster."
    )


class TableflowStorage(ConfigModel):
    """The storage of Tableflow's tables, and the catalogs besides its own in which it registers them."""

    storage: Literal["own_bucket", "confluent"] = Field(
        "own_bucket",
        description="`own_bucket`: a bucket in the AWS account, with AWS Glue as a catalog. `confluent`: storage that "
        "Confluent manages, with Tableflow's own REST catalog only.",
    )
    open_catalog: OpenCatalog | None = Field(
        None, description="A catalog besides AWS Glue, in Snowflake Open Catalog or Apache Polaris. Default: none."
    )

    @model_validator(mode="after")
    def _catalogs_need_a_bucket(self) -> TableflowStorage:
        if self.open_catalog and self.storage == "confluent":
            problem = "Tableflow registers tables in Confluent's storage in no other catalog"
            raise ValueError(f"{problem}. Write 'storage: own_bucket' or remove 'open_catalog'")
        return self


class Deployment(ConfigModel):
    """The cloud set-up of an environment in Confluent Cloud, AWS and Snowflake: see `lakehouse deploy`."""

    name: str = Field(
        pattern=r"^[a-z][a-z0-9-]{0,18}[a-z0-9]$",
        description="Part of the name of every created resource, so that several deployments can share an account.",
    )
    account: str = Field(pattern=r"^\d{12}$", description="AWS account. Credentials of another account are refused.")
    region: str = Field("us-east-1", pattern=r"^[a-z]{2}(-[a-z]+)+-\d$", description="AWS region of all resources.")
    namespace: str = Field(
        "",
        pattern=r"^([a-z][a-z0-9_]{0,127})?$",
        description="Iceberg namespace, Glue database and Snowflake schema of this environment, in place of the "
        "file's `namespace`: two deployments in one account need two.",
    )
    existing: ExistingObjects = Field(
        ExistingObjects(), description="Existing objects, which are used, and never changed or deleted."
    )
    tableflow: TableflowStorage = Field(
        TableflowStorage(), description="Storage and catalogs of the topics with `engine: tableflow`."
    )
    kms_key: str = Field(
        "",
        pattern=r"^(arn:aws:kms:[a-z0-9-]+:\d{12}:key/[\w-]+)?$",
        description="ARN of the KMS key that encrypts the buckets, in place of S3's own keys.",
    )
    vpc_endpoint: str = Field(
        "",
        pattern=r"^(vpce-[0-9a-f]+)?$",
        description="Id of the VPC endpoint for S3, the only way to the bucket for the roles that write and maintain.",
    )
    rotation: Rotation = Field(Rotation(), description="Rotation of keys.")
    spark_principals: tuple[Principal, ...] = Field(
        (),
        description="ARNs of the users or roles that run Spark and Dagster. They may assume the roles that write, "
        "maintain and read. If empty, these roles are not created.",
    )
    rotation_principals: tuple[Principal, ...] = Field(
        (), description="ARNs of the users or roles that run `lakehouse deploy rotate`, apart from Dagster."
    )
    flink: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,59}$")], str] = Field(
        {},
        description="Flink SQL statements by name, each `CREATE TABLE IF NOT EXISTS … AS SELECT`. They run in a "
        "compute pool.",
    )

    @field_validator("region")
    @classmethod
    def _is_in_partition(cls, region: str) -> str:
        if region.startswith(OTHER_PARTITIONS):
            raise ValueError(
                f"region '{region}' is in a partition of AWS whose ARNs do not begin with 'arn:aws:'. Name a region of "
                f"the partition 'aws', such as us-east-1"
            )
        return region

    @model_validator(mode="after")
    def _endpoint_is_used(self) -> Deployment:
        if self.vpc_endpoint and not self.spark_principals:
            raise ValueError(
                "vpc_endpoint restricts the roles of spark_principals, and there are none. Name them, or remove it"
            )
        return self

    @model_validator(mode="after")
    def _bucket_is_used(self) -> Deployment:
        if self.existing.tableflow_bucket and self.tableflow.storage == "confluent":
            raise ValueError("existing.tableflow_bucket has no use with 'tableflow.storage: confluent'. Remove one")
        return self
