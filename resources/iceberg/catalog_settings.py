"""Settings of the Iceberg catalog, which a type of catalog translates for pyiceberg and Spark."""

import re
from typing import Self

import dagster as dg
from pydantic import Field, field_validator, model_validator

from lakehouse.core.errors import ConfigError
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

    @field_validator("warehouse")
    @classmethod
    def _without_slash(cls, warehouse: str) -> str:
        """Return the folder without slashes at its end; a reference to a variable is not a folder yet."""
        return warehouse if isinstance(warehouse, dg.EnvVar) else re.sub(r"(?<=[^:/])/+$", "", warehouse)

    @model_validator(mode="after")
    def _require_region(self) -> Self:
        """Require the region in which roles are assumed: Spark's client of STS has no default.

        Raises:
            ConfigError: There is none.
        """
        roles = [name for name in ("role_arn", "maintenance_role_arn", "reader_role_arn") if getattr(self, name)]
        if roles and not self.region:
            raise ConfigError(
                f"The catalog in lakehouse.yaml has `{roles[0]}`, and no `region` to assume the role in. Nothing was "
                f"changed. Set `region`"
            )
        return self
