"""Ownership, grants and roles in the account of the Snowflake server with access control."""

from __future__ import annotations

import pytest
from snowflake.connector.errors import ProgrammingError

from lakehouse.local.snowflake.account import Entity
from tests.support.clouds.snowflake.strict_account import StrictAccount

TABLE = ("DB", "S", "T")


@pytest.fixture
def account() -> StrictAccount:
    account = StrictAccount("local")
    for role in ("OWNER", "READER"):
        account.add(Entity("ROLE", (role,), owner="ACCOUNTADMIN"))
    account.add(Entity("DATABASE", ("DB",), owner="ACCOUNTADMIN"))
    account.add(Entity("SCHEMA", ("DB", "S"), owner="OWNER"))
    account.add(Entity("ICEBERG TABLE", TABLE, owner="OWNER"))
    account.add(Entity("CATALOG INTEGRATION", ("GLUE",), owner="OWNER"))
    account.grant("USAGE", "DATABASE", ("DB",), "OWNER")
    return account


def test_owner_has_every_privilege(account: StrictAccount):
    account.require("SELECT", "ICEBERG TABLE", TABLE, "OWNER")
    account.require("CREATE ICEBERG TABLE", "SCHEMA", TABLE[:2], "OWNER")
    account.require("USAGE", "INTEGRATION", ("GLUE",), "OWNER")


def test_select_needs_usage_of_database_and_schema(account: StrictAccount):
    account.grant("SELECT", "ICEBERG TABLE", TABLE, "READER")
    assert account.all_visible("ICEBERG TABLE", "READER") == []
    account.grant("USAGE", "DATABASE", ("DB",), "READER")
    account.grant("USAGE", "SCHEMA", TABLE[:2], "READER")
    assert [table.label for table in account.all_visible("ICEBERG TABLE", "READER")] == ["DB.S.T"]


def test_require_invisible_object_does_not_exist(account: StrictAccount):
    with pytest.raises(ProgrammingError, match="does not exist or not authorized"):
        account.require("SELECT", "ICEBERG TABLE", TABLE, "READER")
    account.grant("USAGE", "INTEGRATION", ("GLUE",), "READER")
    with pytest.raises(ProgrammingError, match="Insufficient privileges"):
        account.require("OWNERSHIP", "INTEGRATION", ("GLUE",), "READER")


def test_accountadmin_needs_granted_roles(account: StrictAccount):
    assert not account.allowed("SELECT", "ICEBERG TABLE", TABLE, "ACCOUNTADMIN")
    account.grant_role("OWNER", "ROLE", "SYSADMIN")
    assert account.allowed("SELECT", "ICEBERG TABLE", TABLE, "ACCOUNTADMIN")


def test_remove_object_removes_its_grants(account: StrictAccount):
    account.grant("SELECT", "ICEBERG TABLE", TABLE, "READER")
    account.remove(account.find("SCHEMA", TABLE[:2]))
    assert account.find("ICEBERG TABLE", TABLE) is None
    account.add(Entity("ICEBERG TABLE", TABLE, owner="OWNER"))
    assert not account.allowed("SELECT", "ICEBERG TABLE", TABLE, "READER")


def test_remove_role_removes_its_members(account: StrictAccount):
    account.grant_role("OWNER", "USER", "ADMIN")
    account.remove(account.find("ROLE", ("OWNER",)))
    account.add(Entity("ROLE", ("OWNER",), owner="ACCOUNTADMIN"))
    assert not account.has_role("ADMIN", "OWNER")


def test_future_grant_applies_to_new_tables_until_removed(account: StrictAccount):
    account.grant_future(("DB", "S"), "READER")
    account.add(Entity("ICEBERG TABLE", ("DB", "S", "LATER"), owner="OWNER"))
    assert ("SELECT", "ICEBERG TABLE", ("DB", "S", "LATER")) in account.granted_to("READER")
    assert ("SELECT", "ICEBERG TABLE", TABLE) not in account.granted_to("READER"), "it existed before"
    assert account.future_of("READER") == [("DB", "S")]
    account.remove(account.find("DATABASE", ("DB",)))
    assert account.future_of("READER") == []
    account.add(Entity("SCHEMA", ("DB", "S"), owner="OWNER"))
    account.grant_future(("DB", "S"), "READER")
    account.remove(account.find("ROLE", ("READER",)))
    assert account.future_of("READER") == []


def test_grantees_and_grants_of_role_are_listed(account: StrictAccount):
    account.grant_role("READER", "ROLE", "SYSADMIN")
    account.grant_role("READER", "USER", "ADMIN")
    assert account.grantees_of("READER") == [("ROLE", "SYSADMIN"), ("USER", "ADMIN")]
    assert account.granted_to("OWNER") == [
        ("OWNERSHIP", "CATALOG INTEGRATION", ("GLUE",)),
        ("OWNERSHIP", "ICEBERG TABLE", TABLE),
        ("OWNERSHIP", "SCHEMA", ("DB", "S")),
        ("USAGE", "DATABASE", ("DB",)),
    ]
