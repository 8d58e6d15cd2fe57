"""Execution of GRANT, REVOKE and SHOW GRANTS."""

from lakehouse.local.snowflake import snowflake_errors
from lakehouse.local.snowflake.account import Entity
from lakehouse.local.snowflake.options import (
    Grant,
    GrantOnTables,
    GrantOwnership,
    GrantRole,
    GrantStatement,
    ShowGrants,
)
from lakehouse.local.snowflake.session import Result, Session, status
from lakehouse.local.snowflake.tokens import Name

PARTS = {"SCHEMA": 2, "ICEBERG TABLE": 3}
"""Number of parts in the full name of an object; one for the other kinds."""


def run(session: Session, statement: GrantStatement) -> Result:
    """Run the statement with the privileges of the session's role.

    Raises:
        ProgrammingError: The error that Snowflake would return.
    """
    match statement:
        case Grant():
            return _grant(session, statement)
        case GrantRole():
            return _grant_role(session, statement)
        case GrantOnTables():
            return _grant_on_tables(session, statement)
        case GrantOwnership():
            return _grant_ownership(session, statement)
        case ShowGrants():
            return _show(session, statement)


def _grant(session: Session, statement: Grant) -> Result:
    account = session.account
    name: Name = ()
    account.get("ROLE", (statement.role,), session.role)
    entity = None
    if statement.kind != "ACCOUNT":
        name = session.resolve(statement.name, PARTS.get(statement.kind, 1))
        kind = "CATALOG INTEGRATION" if statement.kind == "INTEGRATION" else statement.kind
        entity = account.find(kind, name)
        if entity is None:
            raise snowflake_errors.missing(statement.kind, ".".join(name))
    _require_grantor(session, entity)
    for privilege in statement.privileges:
        account.grant(privilege, statement.kind, name, statement.role, revoke=statement.revoke)
    return status()


def _grant_role(session: Session, statement: GrantRole) -> Result:
    account = session.account
    role = account.get("ROLE", (statement.role,), session.role)
    account.get(statement.grantee_kind, (statement.grantee,), session.role)
    _require_grantor(session, role)
    account.grant_role(statement.role, statement.grantee_kind, statement.grantee, revoke=statement.revoke)
    return status()


def _grant_on_tables(session: Session, statement: GrantOnTables) -> Result:
    account, name = session.account, session.resolve(statement.schema, 2)
    account.get("ROLE", (statement.role,), session.role)
    _require_grantor(session, account.get("SCHEMA", name, session.role))
    if statement.future:
        account.grant_future(name, statement.role)
    else:
        for table in account.all("ICEBERG TABLE"):
            if table.name[:2] == name:
                account.grant("SELECT", table.kind, table.name, statement.role)
    return status()


def _grant_ownership(session: Session, statement: GrantOwnership) -> Result:
    account = session.account
    account.get("ROLE", (statement.role,), session.role)
    entity = account.get(statement.kind, session.resolve(statement.name, PARTS.get(statement.kind, 1)), session.role)
    _require_grantor(session, entity)
    entity.owner = statement.role
    return status()


def _require_grantor(session: Session, entity: Entity | None) -> None:
    """Check that the session's role may grant privileges on an object, or on the account."""
    if entity is None or not session.account.owns(entity, session.role):
        session.account.require("MANAGE GRANTS", "ACCOUNT", (), session.role)


def _show(session: Session, statement: ShowGrants) -> Result:
    account, role = session.account, statement.role
    account.get("ROLE", (role,), session.role)
    match statement.which:
        case "GRANTS OF":
            rows = [(role, kind, name) for kind, name in account.grantees_of(role)]
            return Result(["role", "granted_to", "grantee_name"], rows)
        case "FUTURE GRANTS TO":
            future = [
                ("SELECT", "ICEBERG_TABLE", _dotted((*name, "<ICEBERG TABLE>"))) for name in account.future_of(role)
            ]
            return Result(["privilege", "grant_on", "name"], future)
    granted = [
        (privilege, kind.replace(" ", "_"), _dotted(name) or account.name)
        for privilege, kind, name in account.granted_to(role)
    ]
    return Result(["privilege", "granted_on", "name"], granted)


def _dotted(name: Name) -> str:
    return ".".join(name)
