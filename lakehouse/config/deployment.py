"""What lakehouse.yaml says of a deployment to the clouds; everything else about it follows from its name."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lakehouse.config.base import Model


class Deployment(Model):
    """The cloud set-up of an environment: Confluent Cloud, AWS and Snowflake, made by `lakehouse deploy create`."""

    name: str = Field(
        pattern=r"^[a-z][a-z0-9-]{0,18}[a-z0-9]$",
        description="Every thing that is made carries it, so that several deployments may share an account.",
    )
    account: str = Field(
        pattern=r"^\d{12}$", description="The AWS account. Credentials of another one are refused: nothing goes astray."
    )
    region: str = Field("us-east-1", pattern=r"^[a-z]{2}(-[a-z]+)+-\d$", description="AWS region of everything.")
    spark_principals: tuple[Annotated[str, Field(pattern=r"^arn:aws:iam::\d{12}:(user|role)/.+$")], ...] = Field(
        (),
        description="ARNs of the users or roles that run Spark and Dagster: they may assume the roles that write, "
        "maintain and read. Without any, these roles are not made.",
    )
    flink: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,59}$")], str] = Field(
        {}, description="Flink SQL statements by name, each `CREATE TABLE … AS SELECT`, run in a compute pool."
    )
