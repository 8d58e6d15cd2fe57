"""Grants on what a schema will have, as SHOW FUTURE GRANTS lists them by kind of object."""

from __future__ import annotations

from typing import Any

import pytest

from lakehouse.deploy.snowflake.access import Grants, reading
from lakehouse.deploy.snowflake.administrator import Administrator
from resources.snowflake.session import Parse, R


class Account(Administrator):
    """An account whose roles have future grants only: `row`."""

    def read(self, statement: str, parse: Parse[R]) -> R:
        return parse([ROW | {"grant_on": self.owner}] if statement.startswith("SHOW FUTURE GRANTS") else [])


ROW = {"privilege": "SELECT", "name": "LAKE.TRADING.<ANY>"}


def grants(grant_on: str) -> Grants:
    session: Any = None
    return Grants(
        "snowflake/grants", Account(session, grant_on), declared=(reading("LAKE", "TRADING", "READER"),), after=()
    )


@pytest.mark.parametrize("grant_on", ["TABLE", "ICEBERG TABLE", "ICEBERG_TABLE"])
def test_grants_find_a_future_grant_on_tables(grant_on: str) -> None:
    declared = grants(grant_on)
    assert declared.diff({}, declared.read({})) == []
    assert declared.warning({}, declared.read({})) == ""


@pytest.mark.parametrize(("grant_on", "plural"), [("VIEW", "VIEWS"), ("EXTERNAL_TABLE", "EXTERNAL TABLES")])
def test_grants_do_not_take_a_future_grant_on_other_objects_for_tables(grant_on: str, plural: str) -> None:
    declared = grants(grant_on)
    held = declared.read({})
    assert declared.diff({}, held) == ["READER lacks SELECT on future tables in LAKE.TRADING"]
    assert f"REVOKE SELECT ON FUTURE {plural} IN SCHEMA LAKE.TRADING FROM ROLE READER" in declared.warning({}, held)
