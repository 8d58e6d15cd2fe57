"""External volumes and catalog integrations: their options, descriptions and verification.

Column and property names are from the acceptance tests of Snowflake's Terraform provider.
"""

import hashlib
import json
from typing import Any

from lakehouse.local.snowflake.account import Account, Entity
from lakehouse.local.snowflake.parsing.statements import Describe
from lakehouse.local.snowflake.session import Result, Session, text
from lakehouse.local.snowflake.snowflake_errors import invalid_option

IAM_USER_ARN = "arn:aws:iam::999999999999:user/local-snowflake"
"""The principal that assumes the role: in a real account, a user of Snowflake's AWS account."""

REFRESH_SECONDS = 30
"""Snowflake's default interval between refreshes."""

CLIENT_SECRET = "OAUTH_CLIENT_SECRET"  # noqa: S105 (an option's name)


def with_external_ids(account: Account, volume: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the volume's options with a generated external id for each location without one."""
    locations = [
        {"STORAGE_AWS_EXTERNAL_ID": _external_id(account, volume), **location}
        for location in options["STORAGE_LOCATIONS"]
    ]
    return {**options, "STORAGE_LOCATIONS": locations}


def describe(session: Session, statement: Describe) -> Result:
    """Run DESC EXTERNAL VOLUME or DESC CATALOG INTEGRATION, whose results a trust policy needs."""
    entity = session.account.get(statement.kind, session.resolve(statement.name, 1), session.role)
    return _volume(entity) if statement.kind == "EXTERNAL VOLUME" else _integration(session.account, entity)


def _volume(volume: Entity) -> Result:
    writes = text(volume.options.get("ALLOW_WRITES", True))
    rows: list[tuple[str, ...]] = [("", "ALLOW_WRITES", "Boolean", writes, "true")]
    for number, location in enumerate(volume.options["STORAGE_LOCATIONS"], 1):
        shown = {
            **location,
            "STORAGE_ALLOWED_LOCATIONS": [location["STORAGE_BASE_URL"] + "*"],
            "STORAGE_AWS_IAM_USER_ARN": IAM_USER_ARN,
            "ENCRYPTION_TYPE": "NONE",
            "ENCRYPTION_KMS_KEY_ID": "",
        }
        rows.append(("STORAGE_LOCATIONS", f"STORAGE_LOCATION_{number}", "String", json.dumps(shown), ""))
    rows.append(("STORAGE_LOCATIONS", "ACTIVE", "String", "", ""))
    rows.append(("", "COMMENT", "String", volume.options.get("COMMENT", ""), ""))
    return Result(["parent_property", "property", "property_type", "property_value", "property_default"], rows)


def check(options: dict[str, Any]) -> None:
    """Check that the options of an integration are compatible with each other.

    Raises:
        ProgrammingError: A REST catalog's kind does not support the authentication.
    """
    rest, login = options.get("REST_CONFIG"), options.get("REST_AUTHENTICATION")
    if rest and login:
        is_glue, signs = rest.get("CATALOG_API_TYPE") == "AWS_GLUE", login["TYPE"] == "SIGV4"
        if is_glue != signs or (signs and options["CATALOG_SOURCE"] == "POLARIS"):
            raise invalid_option(f"REST_AUTHENTICATION of TYPE {login['TYPE']} is not supported for this catalog")


def altered(integration: Entity, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of ALTER CATALOG INTEGRATION ... SET, completed by the integration's authentication.

    Raises:
        ProgrammingError: An option is neither the refresh interval, the comment nor a client's secret.
    """
    login = options.get("REST_AUTHENTICATION", {})
    if options.keys() - {"REFRESH_INTERVAL_SECONDS", "COMMENT", "REST_AUTHENTICATION"} or login.keys() - {
        CLIENT_SECRET
    }:
        raise invalid_option(f"ALTER CATALOG INTEGRATION cannot set {', '.join([*options, *login])}")
    if login and integration.options.get("REST_AUTHENTICATION", {}).get("TYPE") != "OAUTH":
        raise invalid_option(f"{integration.label} has no {CLIENT_SECRET}")
    return options | ({"REST_AUTHENTICATION": integration.options["REST_AUTHENTICATION"] | login} if login else {})


def _integration(account: Account, integration: Entity) -> Result:
    properties = {
        "CATALOG_NAMESPACE": "",
        "COMMENT": "",
        "REFRESH_INTERVAL_SECONDS": REFRESH_SECONDS,
        **integration.options,
    }
    if not _uses_oauth(integration):
        prefix = "API" if "REST_CONFIG" in integration.options else "GLUE"
        properties[f"{prefix}_AWS_IAM_USER_ARN"] = IAM_USER_ARN
        properties[f"{prefix}_AWS_EXTERNAL_ID"] = _assumed_role(account, integration)[1]
    rows = [
        (key, "Boolean" if isinstance(value, bool) else "String", _shown(value), "")
        for key, value in properties.items()
    ]
    return Result(["property", "property_type", "property_value", "property_default"], rows)


def _uses_oauth(integration: Entity) -> bool:
    return integration.options.get("REST_AUTHENTICATION", {}).get("TYPE") == "OAUTH"


def _shown(value: Any) -> str:
    """Format a property's value; a group is `{KEY=value, KEY=[a, b]}`, without the options that Snowflake hides."""
    if isinstance(value, dict):
        public = {key: setting for key, setting in value.items() if key not in (CLIENT_SECRET, "SIGV4_EXTERNAL_ID")}
        return f"{{{', '.join(f'{key}={_shown(setting)}' for key, setting in public.items())}}}"
    return f"[{', '.join(value)}]" if isinstance(value, list) else text(value)


def _assumed_role(account: Account, entity: Entity) -> tuple[str, str]:
    """Return the ARN of the IAM role that a volume or an integration assumes, and its external id."""
    options = entity.options
    if entity.kind == "EXTERNAL VOLUME":
        [location, *_] = options["STORAGE_LOCATIONS"]
        return location["STORAGE_AWS_ROLE_ARN"], location["STORAGE_AWS_EXTERNAL_ID"]
    signing = options.get("REST_AUTHENTICATION", {})
    external_id = signing.get("SIGV4_EXTERNAL_ID") or _external_id(account, entity.name[0])
    return signing.get("SIGV4_IAM_ROLE") or options["GLUE_AWS_ROLE_ARN"], external_id


def verify(session: Session, kind: str, name: str) -> str:
    """Run SYSTEM$VERIFY_EXTERNAL_VOLUME (only for the owner) or SYSTEM$VERIFY_CATALOG_INTEGRATION.

    The access to the IAM role, or the login to the REST catalog, is verified. No file is read: Snowflake does not
    verify more of a read-only volume either.
    """
    account = session.account
    with account.lock:
        entity = account.get(kind, (name,), session.role)
        if kind == "EXTERNAL VOLUME":
            account.require_ownership(entity, session.role)
        uses_oauth = _uses_oauth(entity)
        role_arn, external_id = ("", "") if uses_oauth else _assumed_role(account, entity)
    if uses_oauth:
        refusal = session.lake.login_refusal(entity.options)
    else:
        refusal = session.lake.role_refusal(role_arn, IAM_USER_ARN, external_id)
    return json.dumps({"success": not refusal} | ({"errorCode": "0", "errorMessage": refusal} if refusal else {}))


def _external_id(account: Account, name: str) -> str:
    return f"{account.name}_SFCRole=2_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
