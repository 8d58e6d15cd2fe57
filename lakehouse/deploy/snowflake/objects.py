"""The objects of a deployment in a Snowflake account, each a step: made by one statement, dropped by another."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.snowflake.session import Administrator, Row
from lakehouse.deploy.step import Found, Step
from resources import snowflake_sql as sql


@dataclass(frozen=True)
class Object(Step):
    """A role, user, warehouse, database or schema: whatever SHOW finds by its name."""

    name: str
    administrator: Administrator
    kind: str
    """As CREATE says it: EXTERNAL VOLUME."""
    identifier: tuple[str, ...]
    """A schema's is two names, the database's first."""
    creation: str
    """The statement that makes it, IF NOT EXISTS."""
    needs: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """`Snowflake warehouse 'LAKEHOUSE_PRODUCTION_WAREHOUSE'`."""
        return f"Snowflake {self.kind.lower()} '{'.'.join(self.identifier)}'"

    def find(self, found: Found) -> Any | None:
        """The row that SHOW has of it."""
        return self.administrator.find(self.kind, *self.identifier)

    def create(self, found: Found) -> Any:
        """Make it."""
        self.administrator.change(self.creation)
        return self.find(found)

    def delete(self, found: Found, it: Any) -> None:
        """Drop it."""
        self.administrator.change(sql.drop(self.kind, *self.identifier))


@dataclass(frozen=True)
class GivenWarehouse(Step):
    """A warehouse that somebody else made: used, never changed."""

    name: str
    administrator: Administrator
    warehouse: str
    needs: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """With its name."""
        return f"Snowflake warehouse '{self.warehouse}'"

    def find(self, found: Found) -> Row:
        """The row that SHOW has of it.

        Raises: LakehouseError when there is none of that name.
        """
        shown = self.administrator.rows(sql.show("WAREHOUSE", self.warehouse))
        for row in shown:
            if row["name"] == self.warehouse:
                return row
        raise LakehouseError(
            f"The Snowflake account {self.administrator.account} has no warehouse {self.warehouse} that the "
            f"administrator's role may see. Nothing was changed. Correct --snowflake-warehouse, or leave it out, and "
            f"the deployment makes one of its own"
        )

    def create(self, found: Found) -> Row:
        """It is there, or `find` says that it is not."""
        return self.find(found)

    def delete(self, found: Found, it: Row) -> None:
        """Never: `kept` says so."""

    def kept(self, found: Found, it: Row) -> str:
        """Always."""
        return "was there before the deployment"


@dataclass(frozen=True)
class Holder(Object):
    """A database or schema. It stays while something is in it that the deployment did not make."""

    def kept(self, found: Found, it: Any) -> str:
        """Names tables and views of others. Asked after the deployment's own tables were dropped."""
        database, *schema = self.identifier
        others = [
            f"{row['schema_name']}.{row['name']}"
            for row in self.administrator.rows(sql.show_objects(database))
            if row["schema_name"] != "INFORMATION_SCHEMA" and schema in ([], [row["schema_name"]])
        ]
        return f"holds what the deployment did not make: {', '.join(others[:5])}" if others else ""


@dataclass(frozen=True)
class Principal:
    """Who, at Snowflake, assumes our IAM role, and the external id that it shows; `settings` is what DESC says."""

    iam_user_arn: str
    external_id: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Entrance(Object):
    """A way from Snowflake into our AWS account; `find` gives its Principal."""

    wanted: Mapping[str, str] = field(default_factory=dict)
    """Settings as DESC has them. One that Snowflake does not tell is not compared."""

    def differences(self, found: Found, it: Principal) -> list[str]:
        """Settings that are others than they should be."""
        return differing(self.wanted, it.settings)

    def change(self, found: Found, it: Principal) -> Principal | None:
        """Raises: LakehouseError, always."""
        raise left_as_it_is(self.what, self.differences(found, it))


@dataclass(frozen=True)
class Volume(Entrance):
    """An external volume."""

    def find(self, found: Found) -> Principal | None:
        """What DESC EXTERNAL VOLUME says of its one location."""
        if super().find(found) is None:
            return None
        properties = described(self.administrator, self.kind, self.identifier)
        location = json.loads(properties["STORAGE_LOCATION_1"])
        return Principal(location["STORAGE_AWS_IAM_USER_ARN"], location["STORAGE_AWS_EXTERNAL_ID"], location)


def differing(wanted: Mapping[str, str], settings: Mapping[str, Any]) -> list[str]:
    """Settings that are others than they should be, a phrase each. One that is not told is not compared."""
    return [
        f"{setting} is {settings[setting]!r} instead of {str(value)!r}"
        for setting, value in wanted.items()
        if settings.get(setting, value) != value
    ]


def left_as_it_is(what: str, differences: Sequence[str]) -> LakehouseError:
    """That Snowflake's tables stand on it, and one that takes its place would not be theirs."""
    return LakehouseError(
        f"{what} differs: {'; '.join(differences)}. It was left as it is, because the tables in Snowflake stand on it. "
        f"Set it right in lakehouse.yaml; or run `lakehouse deploy delete`, which keeps tables and files in AWS, and "
        f"then `lakehouse deploy create`"
    )


def described(administrator: Administrator, kind: str, identifier: Sequence[str]) -> dict[str, str]:
    """What DESC says, by property."""
    rows = administrator.rows(sql.describe(kind, *identifier))
    return {row["property"]: row["property_value"] for row in rows}
