"""A Spark Connect server whose address is in a file."""

from pathlib import Path

from pydantic import Field

from resources.spark.spark import AwsRight, Spark


class FileServer(Spark):
    """A Spark Connect server whose address is in a file."""

    name = "file"
    address_check = "`spark.path` in lakehouse.yaml: the file contains sc://host:port"

    path: str = Field(description="The file.")
    role_arn: str = Field(default="", description="IAM role to assume.")

    @classmethod
    def aws_rights(cls, account, region):
        applications = f"arn:aws:emr-serverless:{region}:{account}:/applications/*"
        return (AwsRight(("emr-serverless:GetSessionEndpoint",), (applications,)),)

    def address(self):
        return Path(self.path).read_text()
