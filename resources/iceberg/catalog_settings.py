"""Settings of the Iceberg catalog, which a type of catalog translates for pyiceberg and Spark."""

from __future__ import annotations

import dagster as dg
from pydantic import Field

from resources.masked_field import masked_field


class CatalogSettings(dg.ConfigurableResource):
    """Address and IAM roles of an Iceberg catalog."""

    type: str = Field(description="`sql` (a database), `glue`, or a type of another distribution.")
    warehouse: str = Field(description="Folder of the tables, as an S3 URI.")
    uri: str | None = masked_field(None, "For `sql`: the database as an SQLAlchemy URL.")
    s3_endpoint: str | None = masked_field(None, "Address of S3, if it is not AWS.")
    region: str | None = Field(None, description="AWS region of S3 and Glue.")
    role_arn: str = Field(
        default="", description="IAM role to assume; if empty, the credentials of the environment apply."
    )
    maintenance_role_arn: str = Field(default="", description="IAM role of maintenance, which deletes files.")
    reader_role_arn: str = Field(default="", description="IAM role of queries with DuckDB.")
