"""The grammar of Snowflake for the local server: options with their types, which sqlglot does not check, and grants.

Source: Snowflake's SQL command reference, which has one page per statement (CREATE USER, CREATE EXTERNAL VOLUME, ...).
Options that the server would silently ignore are left out, so their use is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from lakehouse.local.snowflake.snowflake_errors import invalid_option, not_emulated
from lakehouse.local.snowflake.statements import (
    Alter,
    Create,
    GrantStatement,
    Name,
    Parser,
    Show,
    Statement,
    TokenReader,
)


@dataclass(frozen=True)
class Option:
    """An option of a statement.

    Attributes:
        type: `text` is a string literal; `texts` a list of them in parentheses; `name` an identifier or a string;
            `word` one of `choices`, with or without quotes; `locations` a list of storage locations in parentheses;
            `group` the options `keys` in parentheses; `seconds` a number in Snowflake's limits of intervals.
        required: Whether CREATE needs it.
        choices: Values of a `word`, in upper case.
        keys: Options of a `group`.
        has_commas: Whether commas may separate the options of a `group`.
    """

    type: Literal["text", "texts", "name", "word", "number", "seconds", "boolean", "locations", "group"]
    required: bool = False
    choices: tuple[str, ...] = ()
    keys: dict[str, Option] = field(default_factory=dict)
    has_commas: bool = False


TEXT, NAME, NUMBER, BOOLEAN = Option("text"), Option("name"), Option("number"), Option("boolean")
REQUIRED_TEXT = Option("text", required=True)

STORAGE_LOCATION: dict[str, Option] = {
    "NAME": REQUIRED_TEXT,
    "STORAGE_PROVIDER": Option("word", required=True, choices=("S3",)),
    "STORAGE_BASE_URL": REQUIRED_TEXT,
    "STORAGE_AWS_ROLE_ARN": REQUIRED_TEXT,
    "STORAGE_AWS_EXTERNAL_ID": TEXT,
}

REST_CONFIG: dict[str, Option] = {
    "CATALOG_URI": REQUIRED_TEXT,
    "CATALOG_API_TYPE": Option("word", choices=("AWS_GLUE",)),
    "CATALOG_NAME": REQUIRED_TEXT,
    "ACCESS_DELEGATION_MODE": Option("word", choices=("VENDED_CREDENTIALS", "EXTERNAL_VOLUME_CREDENTIALS")),
}

LINKED_CATALOG: dict[str, Option] = {
    "CATALOG": REQUIRED_TEXT,
    "ALLOWED_NAMESPACES": Option("texts"),
    "ALLOWED_WRITE_OPERATIONS": Option("word", choices=("NONE", "ALL")),
    "SYNC_INTERVAL_SECONDS": Option("seconds"),
}

REST_AUTHENTICATION: dict[str, Option] = {
    "TYPE": Option("word", required=True, choices=("SIGV4", "OAUTH")),
    "SIGV4_IAM_ROLE": TEXT,
    "SIGV4_SIGNING_REGION": TEXT,
    "SIGV4_EXTERNAL_ID": TEXT,
    "OAUTH_TOKEN_URI": TEXT,
    "OAUTH_CLIENT_ID": TEXT,
    "OAUTH_CLIENT_SECRET": TEXT,
    "OAUTH_ALLOWED_SCOPES": Option("texts"),
}

OPTIONS: dict[str, dict[str, Option]] = {
    "USER": {
        "TYPE": Option("word", choices=("PERSON", "SERVICE", "LEGACY_SERVICE")),
        "RSA_PUBLIC_KEY": TEXT,
        "RSA_PUBLIC_KEY_2": TEXT,
        "DEFAULT_ROLE": NAME,
        "DEFAULT_WAREHOUSE": NAME,
        "DEFAULT_NAMESPACE": TEXT,
        "DISABLED": BOOLEAN,
        "COMMENT": TEXT,
    },
    "ROLE": {"COMMENT": TEXT},
    "WAREHOUSE": {
        "WAREHOUSE_SIZE": Option("word", choices=("XSMALL", "X-SMALL", "SMALL", "MEDIUM", "LARGE")),
        "AUTO_SUSPEND": NUMBER,
        "AUTO_RESUME": BOOLEAN,
        "INITIALLY_SUSPENDED": BOOLEAN,
        "COMMENT": TEXT,
    },
    "DATABASE": {"LINKED_CATALOG": Option("group", keys=LINKED_CATALOG, has_commas=True), "COMMENT": TEXT},
    "SCHEMA": {"COMMENT": TEXT},
    "EXTERNAL VOLUME": {
        "STORAGE_LOCATIONS": Option("locations", required=True),
        "ALLOW_WRITES": BOOLEAN,
        "COMMENT": TEXT,
    },
    "CATALOG INTEGRATION": {
        "CATALOG_SOURCE": Option("word", required=True, choices=("GLUE", "ICEBERG_REST", "POLARIS")),
        "TABLE_FORMAT": Option("word", required=True, choices=("ICEBERG",)),
        "GLUE_AWS_ROLE_ARN": TEXT,
        "GLUE_CATALOG_ID": TEXT,
        "GLUE_REGION": TEXT,
        "REST_CONFIG": Option("group", keys=REST_CONFIG),
        "REST_AUTHENTICATION": Option("group", keys=REST_AUTHENTICATION),
        "CATALOG_NAMESPACE": TEXT,
        "ENABLED": Option("boolean", required=True),
        "REFRESH_INTERVAL_SECONDS": NUMBER,
        "COMMENT": TEXT,
    },
    "ICEBERG TABLE": {
        "EXTERNAL_VOLUME": REQUIRED_TEXT,
        "CATALOG": REQUIRED_TEXT,
        "CATALOG_TABLE_NAME": REQUIRED_TEXT,
        "CATALOG_NAMESPACE": TEXT,
        "AUTO_REFRESH": BOOLEAN,
        "COMMENT": TEXT,
    },
}

ONLY_WITH: dict[str, dict[str, dict[str, bool]]] = {
    "CATALOG_SOURCE": {
        "GLUE": {"GLUE_AWS_ROLE_ARN": True, "GLUE_CATALOG_ID": True, "GLUE_REGION": False},
        "ICEBERG_REST": {"REST_CONFIG": True, "REST_AUTHENTICATION": True},
        "POLARIS": {"REST_CONFIG": True, "REST_AUTHENTICATION": True},
    },
    "TYPE": {
        "SIGV4": {"SIGV4_IAM_ROLE": True, "SIGV4_SIGNING_REGION": False, "SIGV4_EXTERNAL_ID": False},
        "OAUTH": {
            "OAUTH_TOKEN_URI": False,
            "OAUTH_CLIENT_ID": True,
            "OAUTH_CLIENT_SECRET": True,
            "OAUTH_ALLOWED_SCOPES": True,
        },
    },
}
"""Options that are valid only with one value of another option, and whether they are required, by that option and
value."""


PRIVILEGES: dict[str, tuple[str, ...]] = {
    "ACCOUNT": (
        "CREATE DATABASE",
        "CREATE WAREHOUSE",
        "CREATE ROLE",
        "CREATE USER",
        "CREATE INTEGRATION",
        "CREATE EXTERNAL VOLUME",
        "MANAGE GRANTS",
    ),
    "WAREHOUSE": ("USAGE", "OPERATE", "MONITOR", "MODIFY"),
    "DATABASE": ("USAGE", "CREATE SCHEMA"),
    "SCHEMA": ("USAGE", "CREATE ICEBERG TABLE", "CREATE TABLE", "CREATE VIEW"),
    "EXTERNAL VOLUME": ("USAGE",),
    "INTEGRATION": ("USAGE",),
    "ICEBERG TABLE": ("SELECT",),
}
"""Privileges by kind of object: the subset of Snowflake's access control privileges that this server emulates."""


@dataclass(frozen=True)
class GrantPrivileges(GrantStatement):
    """GRANT privileges ON kind name TO ROLE role, or REVOKE ... FROM ROLE role."""

    privileges: tuple[str, ...]
    kind: str
    name: Name
    role: str
    revoke: bool = False


@dataclass(frozen=True)
class GrantRole(GrantStatement):
    """GRANT ROLE role TO USER | ROLE grantee, or REVOKE ROLE role FROM ..."""

    role: str
    grantee_kind: str
    grantee: str
    revoke: bool = False


@dataclass(frozen=True)
class GrantOnTables(GrantStatement):
    """GRANT SELECT ON ALL | FUTURE ICEBERG TABLES IN SCHEMA name TO ROLE role."""

    future: bool
    schema: Name
    role: str


@dataclass(frozen=True)
class GrantOwnership(GrantStatement):
    """GRANT OWNERSHIP ON kind name TO ROLE role [COPY CURRENT GRANTS]."""

    kind: str
    name: Name
    role: str


@dataclass(frozen=True)
class ShowGrants(GrantStatement):
    """SHOW GRANTS TO ROLE | OF ROLE role, or SHOW FUTURE GRANTS TO ROLE role."""

    which: str
    role: str


class StrictParser(Parser):
    """A parser that refuses what Snowflake refuses, and options without an effect here."""

    def parse(self, sql: str) -> Statement | None:
        statement = super().parse(sql)
        match statement:
            case Create(kind="CATALOG INTEGRATION"):
                _check_authentication(statement.options)
            case Alter(kind="CATALOG INTEGRATION"):
                _check_altered(statement.options)
        return statement

    def options(self, tokens: TokenReader, kind: str, *, complete: bool) -> dict[str, Any]:
        return _read_options(tokens, OPTIONS[kind], complete=complete)

    def keys(self, tokens: TokenReader, kind: str) -> dict[str, None]:
        keys = super().keys(tokens, kind)
        for key in keys:
            if key not in OPTIONS[kind]:
                raise invalid_option(f"invalid property '{key}'")
        return keys

    def grant(self, tokens: TokenReader) -> GrantStatement:
        if tokens.accept("OWNERSHIP", "ON"):
            kind = tokens.expect_one_of("kind of object", *OPTIONS)
            name = tokens.name()
            tokens.expect("TO", "ROLE")
            role = tokens.identifier()
            tokens.accept("COPY", "CURRENT", "GRANTS")
            return GrantOwnership(kind, name, role)
        if which := tokens.accept_one_of("SELECT ON ALL", "SELECT ON FUTURE"):
            tokens.expect("ICEBERG", "TABLES", "IN", "SCHEMA")
            schema = tokens.name()
            tokens.expect("TO", "ROLE")
            return GrantOnTables(which.endswith("FUTURE"), schema, tokens.identifier())
        return _read_privileges_or_role(tokens, "TO")

    def revoke(self, tokens: TokenReader) -> GrantStatement:
        return _read_privileges_or_role(tokens, "FROM")

    def show(self, tokens: TokenReader) -> Show | GrantStatement | None:
        which = tokens.accept_one_of("FUTURE GRANTS TO", "GRANTS TO", "GRANTS OF")
        if which is None:
            return super().show(tokens)
        tokens.expect("ROLE")
        return ShowGrants(which, tokens.identifier())


def _check_authentication(options: dict[str, Any]) -> None:
    """Check that the kind of a REST catalog supports the authentication."""
    rest, login = options.get("REST_CONFIG"), options.get("REST_AUTHENTICATION")
    if rest and login:
        is_glue, signs = rest.get("CATALOG_API_TYPE") == "AWS_GLUE", login["TYPE"] == "SIGV4"
        if is_glue != signs or (signs and options["CATALOG_SOURCE"] == "POLARIS"):
            raise invalid_option(f"REST_AUTHENTICATION of TYPE {login['TYPE']} is not supported for this catalog")


def _check_altered(options: dict[str, Any]) -> None:
    """Check that ALTER CATALOG INTEGRATION sets only the refresh interval, the comment or a client's secret."""
    login = options.get("REST_AUTHENTICATION") or {}
    known = {"REFRESH_INTERVAL_SECONDS", "COMMENT", "REST_AUTHENTICATION"}
    if options.keys() - known or login.keys() - {"OAUTH_CLIENT_SECRET"}:
        raise invalid_option(f"ALTER CATALOG INTEGRATION cannot set {', '.join([*options, *login])}")


def _read_privileges_or_role(tokens: TokenReader, direction: str) -> GrantPrivileges | GrantRole:
    revoke = direction == "FROM"
    if tokens.accept("ROLE"):
        role = tokens.identifier()
        tokens.expect(direction)
        grantee_kind = tokens.expect_one_of("USER or ROLE", "USER", "ROLE")
        return GrantRole(role, grantee_kind, tokens.identifier(), revoke)
    unique = {privilege for privileges in PRIVILEGES.values() for privilege in privileges}
    # The longest first, in case one privilege is the beginning of another.
    words = sorted(unique, key=len, reverse=True)
    privileges = [tokens.expect_one_of("privilege", *words)]
    while tokens.accept(","):
        privileges.append(tokens.expect_one_of("privilege", *words))
    tokens.expect("ON")
    kind = tokens.expect_one_of("kind of object", "TABLE", *PRIVILEGES)
    kind = "ICEBERG TABLE" if kind == "TABLE" else kind
    for privilege in privileges:
        if privilege not in PRIVILEGES[kind]:
            raise tokens.error(f"a privilege on {kind}, not {privilege}")
    name = () if kind == "ACCOUNT" else tokens.name()
    tokens.expect(direction, "ROLE")
    return GrantPrivileges(tuple(privileges), kind, name, tokens.identifier(), revoke)


def _read_options(
    tokens: TokenReader, known: dict[str, Option], *, complete: bool, until: str = "", has_commas: bool = False
) -> dict[str, Any]:
    """Read `KEY = value` pairs, separated by spaces, up to `until` or the end of the statement.

    Args:
        tokens: The statement.
        known: The valid options.
        complete: Whether required options must be present (CREATE) or not (ALTER ... SET).
        until: The sign after the last option, which is not read.
        has_commas: Whether there may be a comma after an option.
    """
    options: dict[str, Any] = {}
    while not tokens.at_end() and not (until and tokens.at(until)):
        key = tokens.identifier()
        if key not in known:
            raise invalid_option(f"invalid property '{key}'. Known here: {', '.join(known)}")
        if key in options:
            raise invalid_option(f"duplicate property '{key}'")
        tokens.expect("=")
        options[key] = _read_value(tokens, key, known[key], complete)
        if has_commas:
            tokens.accept(",")
    needed = {key for key, option in known.items() if option.required}
    for chooser, values in ONLY_WITH.items():
        if chooser in options and (specific := values.get(options[chooser])) is not None:
            needed |= {key for key, required in specific.items() if required}
            others = {key for keys in values.values() for key in keys} - specific.keys()
            if invalid := [key for key in options if key in others]:
                raise invalid_option(f"invalid property '{invalid[0]}' for {chooser} {options[chooser]}")
    missing = [key for key in known if key in needed and key not in options]
    if complete and missing:
        raise invalid_option(f"Missing option(s): {missing}")
    return options


def _read_value(tokens: TokenReader, key: str, option: Option, complete: bool) -> Any:
    match option.type:
        case "text":
            return tokens.string()
        case "texts":
            return _read_texts(tokens)
        case "name":
            return tokens.string().upper() if tokens.at_string() else tokens.identifier()
        case "number":
            return tokens.number()
        case "seconds":
            seconds = tokens.number()
            if not 30 <= seconds <= 86_400:
                raise invalid_option(f"invalid value {seconds} for {key}: 30 to 86400")
            return seconds
        case "boolean":
            return tokens.expect_one_of("TRUE or FALSE", "TRUE", "FALSE") == "TRUE"
        case "word":
            word = tokens.string().upper() if tokens.at_string() else tokens.identifier()
            if word not in option.choices:
                raise not_emulated(f"{key} = {word} (known here: {', '.join(option.choices)})")
            return word
        case "locations":
            return _read_locations(tokens)
        case "group":
            tokens.expect("(")
            group = _read_options(tokens, option.keys, complete=complete, until=")", has_commas=option.has_commas)
            tokens.expect(")")
            return group


def _read_texts(tokens: TokenReader) -> list[str]:
    """Read `('a', 'b')`."""
    tokens.expect("(")
    texts = [tokens.string()]
    while tokens.accept(","):
        texts.append(tokens.string())
    tokens.expect(")")
    return texts


def _read_locations(tokens: TokenReader) -> list[dict[str, Any]]:
    """Read `( (KEY = value ...), (...) )`: commas between locations, and spaces between the keys of a location.

    Snowflake also accepts commas between keys. They are an error here: Snowflake's SDK writes spaces, and sqlfluff
    rejects commas.
    """
    tokens.expect("(")
    locations = []
    while True:
        tokens.expect("(")
        location = _read_options(tokens, STORAGE_LOCATION, complete=True, until=")")
        tokens.expect(")")
        if not location["STORAGE_BASE_URL"].startswith("s3://"):
            raise invalid_option(f"invalid STORAGE_BASE_URL '{location['STORAGE_BASE_URL']}'")
        locations.append(location)
        if not tokens.accept(","):
            break
    tokens.expect(")")
    return locations
