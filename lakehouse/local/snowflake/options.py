"""Which options each kind of object takes, and of which type: what sqlglot does not check.

Source: Snowflake's SQL command reference, one page a statement (CREATE USER, CREATE EXTERNAL VOLUME, ...). Options that
this server would have to ignore silently are left out, so using one is an error here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from lakehouse.local.snowflake.errors import invalid_option, not_emulated
from lakehouse.local.snowflake.tokens import TokenReader


@dataclass(frozen=True)
class Option:
    """
    type: `text` is a string literal, `texts` some in parentheses; `name` an identifier or a string; `word` one of
    `choices`, bare or as a string; `locations` a list of parenthesised storage locations; `group` options in
    parentheses, which are `keys`.
    """

    type: Literal["text", "texts", "name", "word", "number", "boolean", "locations", "group"]
    required: bool = False
    choices: tuple[str, ...] = ()
    keys: dict[str, Option] = field(default_factory=dict)


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
    "DATABASE": {"COMMENT": TEXT},
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
"""Of an option's value the options that go with it, and whether it needs them; another value refuses them."""


def read_options(tokens: TokenReader, known: dict[str, Option], *, complete: bool, until: str = "") -> dict[str, Any]:
    """Read `KEY = value` pairs, separated by spaces, up to the closing sign `until` or the end of the statement.

    Parameters: `complete` says whether the required options must be there (CREATE) or not (ALTER ... SET).
    Raises: ProgrammingError for an option that is unknown, repeated, missing, or of another type.
    """
    found: dict[str, Any] = {}
    while not tokens.at_end() and not (until and tokens.at(until)):
        key = tokens.identifier()
        if key not in known:
            raise invalid_option(f"invalid property '{key}'. Known here: {', '.join(known)}")
        if key in found:
            raise invalid_option(f"duplicate property '{key}'")
        tokens.expect("=")
        found[key] = _read_value(tokens, key, known[key], complete)
    needed = {key for key, option in known.items() if option.required}
    for chooser, values in ONLY_WITH.items():
        if chooser in found and (own := values.get(found[chooser])) is not None:
            needed |= {key for key, required in own.items() if required}
            others = {key for keys in values.values() for key in keys} - own.keys()
            if foreign := [key for key in found if key in others]:
                raise invalid_option(f"invalid property '{foreign[0]}' for {chooser} {found[chooser]}")
    lacking = [key for key in known if key in needed and key not in found]
    if complete and lacking:
        raise invalid_option(f"Missing option(s): {lacking}")
    return found


def read_keys(tokens: TokenReader, known: dict[str, Option]) -> dict[str, None]:
    """Read option names up to the end of the statement, separated by commas (ALTER ... UNSET)."""
    found: dict[str, None] = {}
    while True:
        key = tokens.identifier()
        if key not in known:
            raise invalid_option(f"invalid property '{key}'")
        found[key] = None
        if not tokens.take(","):
            tokens.expect_end()
            return found


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
        case "boolean":
            word = tokens.take_one_of("TRUE", "FALSE")
            if not word:
                raise tokens.error("TRUE or FALSE")
            return word == "TRUE"
        case "word":
            word = tokens.string().upper() if tokens.at_string() else tokens.identifier()
            if word not in option.choices:
                raise not_emulated(f"{key} = {word} (known here: {', '.join(option.choices)})")
            return word
        case "locations":
            return _read_locations(tokens)
        case "group":
            tokens.expect("(")
            group = read_options(tokens, option.keys, complete=complete, until=")")
            tokens.expect(")")
            return group


def _read_texts(tokens: TokenReader) -> list[str]:
    """`('a', 'b')`."""
    tokens.expect("(")
    texts = [tokens.string()]
    while tokens.take(","):
        texts.append(tokens.string())
    tokens.expect(")")
    return texts


def _read_locations(tokens: TokenReader) -> list[dict[str, Any]]:
    """`( (KEY = value ...), (...) )`: commas between locations; between the keys of one, spaces only.

    Snowflake takes commas between keys as well; its own SDK writes spaces, and sqlfluff refuses the commas.
    """
    tokens.expect("(")
    locations = []
    while True:
        tokens.expect("(")
        location = read_options(tokens, STORAGE_LOCATION, complete=True, until=")")
        tokens.expect(")")
        if not location["STORAGE_BASE_URL"].startswith("s3://"):
            raise invalid_option(f"invalid STORAGE_BASE_URL '{location['STORAGE_BASE_URL']}'")
        locations.append(location)
        if not tokens.take(","):
            break
    tokens.expect(")")
    return locations
