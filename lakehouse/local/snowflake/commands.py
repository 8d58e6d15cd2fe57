"""Execution of parsed statements: dispatch, and those about users, roles, warehouses, databases and schemas."""

import base64
import binascii
import hashlib
import re
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key

from lakehouse.core.sql import SNOWFLAKE
from lakehouse.local.snowflake import iceberg_commands, linked_databases, snowflake_errors
from lakehouse.local.snowflake.account import LINK, PARTS, ClientSession, Entity, StatementResult, like, status, text
from lakehouse.local.snowflake.statements import Alter, Create, Describe, Drop, Name, Refresh, Show, Statement, Use

KEY_OPTIONS = ("RSA_PUBLIC_KEY", "RSA_PUBLIC_KEY_2")
"""The two keys of a user: one can be replaced while the other is in use."""

_CREATE_PRIVILEGE = {"CATALOG INTEGRATION": "CREATE INTEGRATION"}
_ALTERED = ("USER", "ROLE", "WAREHOUSE", "DATABASE", "SCHEMA", "CATALOG INTEGRATION")


def run(session: ClientSession, statement: Statement) -> StatementResult:
    """Run the statement with the privileges of the session's role."""
    match statement:
        case Create(kind="ICEBERG TABLE"):
            return iceberg_commands.create_table(session, statement)
        case Refresh():
            return iceberg_commands.refresh_table(session, statement)
        case Alter(kind="ICEBERG TABLE"):
            return iceberg_commands.alter_table(session, statement)
        case Drop(kind="ICEBERG TABLE"):
            return iceberg_commands.drop_table(session, statement)
        case Show(kind="ICEBERG TABLE"):
            return iceberg_commands.show_tables(session, statement)
    with session.account.lock:
        match statement:
            case Create():
                return _create(session, statement)
            case Alter():
                return _alter(session, statement)
            case Drop():
                return _drop(session, statement)
            case Describe(kind="USER"):
                return _describe_user(session, statement.name)
            case Describe():
                return iceberg_commands.describe(session, statement)
            case Show():
                return _show(session, statement)
            case Use():
                return _use(session, statement)
            case _:
                return session.account.run_grant(session, statement)


def _create(session: ClientSession, statement: Create) -> StatementResult:
    account, kind = session.account, statement.kind
    name = session.resolve(statement.name, PARTS.get(kind, 1))
    label = kind.capitalize()
    privilege = _CREATE_PRIVILEGE.get(kind, f"CREATE {kind}")
    if kind == "SCHEMA":
        account.require_unlinked(name)
        account.require(privilege, "DATABASE", name[:1], session.role)
    else:
        account.require(privilege, "ACCOUNT", (), session.role)
    if existing := account.find(kind, name):
        if statement.if_not_exists:
            return status(f"{name[-1]} already exists, statement succeeded.")
        if not statement.or_replace:
            raise snowflake_errors.exists(".".join(name))
        if kind in ("DATABASE", "SCHEMA"):
            raise snowflake_errors.not_emulated(f"CREATE OR REPLACE {kind}")
        account.require_ownership(existing, session.role)
        account.remove(existing)
    options = dict(statement.options)
    if kind == "USER":
        options |= _fingerprints(options)
    elif kind == "EXTERNAL VOLUME":
        options = iceberg_commands.with_external_ids(account, name[0], options)
    elif LINK in options:
        linked_databases.require_valid(session, options)
    if kind in ("DATABASE", "SCHEMA"):
        # A dropped database remains in fakesnow without schemas, because sessions may have it open.
        session.run(f"CREATE {kind} IF NOT EXISTS {SNOWFLAKE.identifier(*name)}")
    account.add(Entity(kind, name, owner=session.role, options=options))
    if kind == "DATABASE" and LINK not in options:
        account.add(Entity("SCHEMA", (*name, "PUBLIC"), owner=session.role))
        session.run(f"CREATE SCHEMA IF NOT EXISTS {SNOWFLAKE.identifier(*name, 'PUBLIC')}")
    return status(f"{label} {name[-1]} successfully created.")


def _alter(session: ClientSession, statement: Alter) -> StatementResult:
    if statement.kind not in _ALTERED:
        raise snowflake_errors.not_emulated(f"ALTER {statement.kind} SET")
    entity = _owned(session, statement.kind, statement.name, statement.if_exists)
    if entity:
        options = dict(statement.options)
        if statement.kind == "CATALOG INTEGRATION":
            options = iceberg_commands.altered_integration(entity, options)
        entity.options |= options | (_fingerprints(options) if statement.kind == "USER" else {})
    return status()


def _drop(session: ClientSession, statement: Drop) -> StatementResult:
    entity = _owned(session, statement.kind, statement.name, statement.if_exists)
    if entity is None:
        return status(f"Drop statement executed successfully ({statement.name[-1]} already dropped).")
    if statement.kind in ("EXTERNAL VOLUME", "CATALOG INTEGRATION"):
        iceberg_commands.require_unused(session.account, entity)
    if statement.kind == "SCHEMA":
        session.account.require_unlinked(entity.name)
        session.run(f"DROP SCHEMA {SNOWFLAKE.identifier(*entity.name)} CASCADE")
    if statement.kind == "DATABASE":
        for schema in session.account.all("SCHEMA"):
            if schema.name[:1] == entity.name:
                session.run(f"DROP SCHEMA {SNOWFLAKE.identifier(*schema.name)} CASCADE")
    session.account.remove(entity)
    return status(f"{entity.name[-1]} successfully dropped.")


def _owned(session: ClientSession, kind: str, name: Name, if_exists: bool) -> Entity | None:
    """Return the object, which the role must own; None if it does not exist and `if_exists` is set."""
    name = session.resolve(name, PARTS.get(kind, 1))
    if if_exists and session.account.find(kind, name) is None:
        return None
    entity = session.account.get(kind, name, session.role)
    session.account.require_ownership(entity, session.role)
    return entity


def _describe_user(session: ClientSession, name: Name) -> StatementResult:
    user = session.account.get("USER", session.resolve(name, 1), session.role)
    if user.name != (session.user,):
        session.account.require_ownership(user, session.role)
    keys = dict.fromkeys(name for key in KEY_OPTIONS for name in (key, f"{key}_FP"))
    properties = {"NAME": user.name[0], **keys, **user.options}
    rows = [(key, "null" if value is None else text(value), "null", "") for key, value in properties.items()]
    return StatementResult(["property", "value", "default", "description"], rows)


def _show(session: ClientSession, statement: Show) -> StatementResult:
    pattern = like(statement.like)
    rows = [
        (entity.created, entity.name[-1], entity.owner, text(entity.options.get("COMMENT") or ""))
        for entity in session.account.all_visible(statement.kind, session.role)
        if pattern.fullmatch(entity.name[-1]) and entity.name[: len(statement.within)] == statement.within
    ]
    return StatementResult(["created_on", "name", "owner", "comment"], rows)


def _use(session: ClientSession, statement: Use) -> StatementResult:
    if statement.kind == "ROLE":
        session.account.get("ROLE", (statement.name,), session.role)
        if not session.account.has_role(session.user, statement.name):
            raise snowflake_errors.forbidden("ROLE", statement.name, "USAGE")
        session.role = statement.name
    else:
        session.account.require("USAGE", "WAREHOUSE", (statement.name,), session.role)
        session.warehouse = statement.name
    return status()


def _fingerprints(options: dict[str, Any]) -> dict[str, str | None]:
    """Return the fingerprints of the keys among the options, as DESC USER shows them; None for keys that are unset."""
    return {f"{key}_FP": fingerprint(options[key]) if options[key] else None for key in KEY_OPTIONS if key in options}


def fingerprint(public_key: str) -> str:
    """Return `SHA256:` and the base64 hash of the key's DER form (Snowflake, Key-pair authentication).

    Args:
        public_key: Base64 body of a PEM public key, without its delimiters.
    """
    try:
        der = base64.b64decode(re.sub(r"\s", "", public_key), validate=True)
        key = load_der_public_key(der)
    except (binascii.Error, ValueError):
        raise snowflake_errors.invalid_option(
            "New public key rejected by current policy. Reason: 'Invalid public key'"
        ) from None
    if not isinstance(key, RSAPublicKey) or key.key_size < 2048:
        raise snowflake_errors.invalid_option(
            "New public key rejected by current policy. Reason: 'RSA of 2048 bits or more'"
        )
    return "SHA256:" + base64.b64encode(hashlib.sha256(der).digest()).decode()
