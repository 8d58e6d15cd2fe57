"""The Glue database of Spark's tables: the deployment's own, or one that lakehouse.yaml names."""

from dataclasses import dataclass

from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.aws.aws_resource import AwsResource
from lakehouse.deploy.aws.aws_service import Response
from lakehouse.deploy.aws.table_locations import location
from lakehouse.deploy.resource import ExistingResource, Outputs, Updatable
from resources.aws.secrets_manager import TAG

KEPT = ("Description", "Parameters", "CreateTableDefaultPermissions")
"""Properties that an update deletes unless it contains them."""


@dataclass(frozen=True, kw_only=True, repr=False)
class GlueDatabase(AwsResource[Response], Updatable[Response]):
    """`aws/glue_database`, whose state is Glue's description."""

    address = "aws/glue_database"
    holds_data = True
    namespace: str

    @property
    def label(self) -> str:
        """The database with its name."""
        return f"Glue database '{self.namespace}'"

    def read(self, outputs: Outputs) -> Response | None:
        """Read the database."""
        glue = self.service("glue")
        response = glue.find("get_database", **self._database)
        if response is None:
            return None
        arn = f"arn:aws:glue:{self.names.region}:{self.names.account}:database/{self.namespace}"
        tag = f"aws glue tag-resource --resource-arn {arn} --tags-to-add {TAG}={self.names.deployment}"
        self.require_ownership(self.label, glue.call("get_tags", ResourceArn=arn)["Tags"], tag)
        database: Response = response["Database"]
        return database

    def create(self, outputs: Outputs) -> Response:
        """Create the database with its tag."""

        def create() -> None:
            self.service("glue").call(
                "create_database",
                CatalogId=self.names.account,
                DatabaseInput={"Name": self.namespace, "LocationUri": self._location},
                Tags={TAG: self.names.deployment},
            )

        return self.create_and_read(create, outputs)

    def diff(self, outputs: Outputs, current: Response) -> list[str]:
        """Compare the location, under which new tables are created."""
        uri = current.get("LocationUri", "")
        same = uri.rstrip("/") == self._location
        return [] if same else [f"its location is '{uri}', not {self._location}"]

    def update(self, outputs: Outputs, current: Response) -> Response:
        """Correct the location. Existing tables stay where they are."""
        right = {"Name": self.namespace, "LocationUri": self._location}
        self.service("glue").call(
            "update_database",
            DatabaseInput=right | {key: current[key] for key in KEPT if key in current},
            **self._database,
        )
        return current | right

    def delete(self, outputs: Outputs, current: Response) -> None:
        """Delete the registrations of its tables, then the database. Files stay in the bucket."""
        glue = self.service("glue")
        tables = {"CatalogId": self.names.account, "DatabaseName": self.namespace}
        for table in list(glue.items("get_tables", "TableList", **tables)):
            glue.find("delete_table", Name=table["Name"], **tables)
        glue.find("delete_database", **self._database)
        self.wait_until_gone(self.label, lambda: glue.find("get_database", **self._database))

    @property
    def _database(self) -> dict[str, str]:
        return {"CatalogId": self.names.account, "Name": self.namespace}

    @property
    def _location(self) -> str:
        return location(self.names, self.namespace)


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
                f"There is no {self.label} in region {self.names.region}. None was created in its place. Correct "
                f"`existing.glue_database` in lakehouse.yaml"
            )
        database: Response = response["Database"]
        uri, needed = database.get("LocationUri", ""), location(self.names, self.namespace)
        if uri.rstrip("/") != needed:
            raise LakehouseError(
                f"Tables of the {self.label} are created at '{uri}', where the deployment's roles may not write. "
                f"It was left unchanged. Set its location to {needed}, or name another `existing.glue_database`"
            )
        return database
