"""The Glue database of Spark's tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakehouse.deploy.aws.step import EVERY_SECONDS, GONE_SECONDS, AwsStep
from lakehouse.deploy.aws.tables import location
from lakehouse.deploy.step import Found
from resources.confluent.waiting import wait_gone
from resources.secrets_manager import TAG

KEPT = ("Description", "Parameters", "CreateTableDefaultPermissions")
"""What an update would lose, were it not given again."""


@dataclass(frozen=True, kw_only=True)
class GlueDatabase(AwsStep):
    """`aws/glue_database`: what is found is as Glue answers it."""

    name = "aws/glue_database"
    holds_data = True
    namespace: str

    @property
    def what(self) -> str:
        """The database, named."""
        return f"Glue database '{self.namespace}'"

    def find(self, found: Found) -> dict[str, Any] | None:
        """The database."""
        glue = self.service("glue")
        answer = glue.find("get_database", **self._database)
        if answer is None:
            return None
        arn = f"arn:aws:glue:{self.names.region}:{self.names.account}:database/{self.namespace}"
        tag = f"aws glue tag-resource --resource-arn {arn} --tags-to-add {TAG}={self.names.deployment}"
        self.claim(self.what, glue.call("get_tags", ResourceArn=arn)["Tags"], tag)
        return answer["Database"]

    def create(self, found: Found) -> dict[str, Any]:
        """Make it, with its tag."""

        def make() -> None:
            self.service("glue").call(
                "create_database",
                CatalogId=self.names.account,
                DatabaseInput={"Name": self.namespace, "LocationUri": self._location},
                Tags={TAG: self.names.deployment},
            )

        return self.made(make, found)

    def differences(self, found: Found, it: dict[str, Any]) -> list[str]:
        """Another location: tables made from now on would be elsewhere."""
        there = it.get("LocationUri", "")
        same = there.rstrip("/") == self._location
        return [] if same else [f"its location is '{there}', not {self._location}"]

    def change(self, found: Found, it: dict[str, Any]) -> dict[str, Any]:
        """Correct the location. Tables that are there stay where they are."""
        right = {"Name": self.namespace, "LocationUri": self._location}
        self.service("glue").call(
            "update_database", DatabaseInput=right | {key: it[key] for key in KEPT if key in it}, **self._database
        )
        return it | right

    def delete(self, found: Found, it: dict[str, Any]) -> None:
        """Delete its tables' registrations, then the database. Files stay with the bucket."""
        glue = self.service("glue")
        tables = {"CatalogId": self.names.account, "DatabaseName": self.namespace}
        for table in list(glue.items("get_tables", "TableList", **tables)):
            glue.find("delete_table", Name=table["Name"], **tables)
        glue.find("delete_database", **self._database)
        wait_gone(
            self.what,
            lambda: glue.find("get_database", **self._database),
            deadline_seconds=GONE_SECONDS,
            every_seconds=EVERY_SECONDS,
            clock=self.clock,
        )

    @property
    def _database(self) -> dict[str, str]:
        return {"CatalogId": self.names.account, "Name": self.namespace}

    @property
    def _location(self) -> str:
        return location(self.names, self.namespace)
