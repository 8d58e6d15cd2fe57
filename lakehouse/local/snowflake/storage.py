"""External volumes and catalog integrations: what Snowflake reveals about them.

Column and property names were read in the acceptance tests of Snowflake's Terraform provider.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from lakehouse.local.snowflake.account import Account, Entity
from lakehouse.local.snowflake.errors import invalid_option
from lakehouse.local.snowflake.session import Result, Session
from lakehouse.local.snowflake.statements import Describe

IAM_USER_ARN = "arn:aws:iam::999999999999:user/local-snowflake"
"""Who assumes the role: in a real account, a user of Snowflake's AWS account."""


REFRESH_SECONDS = 30
"""How often Snowflake looks for new snapshots, where the integration does not say."""

CLIENT_SECRET = "OAUTH_CLIENT_SECRET"  # noqa: S105 (an option's name)


def with_external_ids(account: Account, volume: str, options: dict[str, Any]) -> dict[str, Any]:
    """The volume's options with an external id for each location that was given none."""
    locations = [
        {"STORAGE_AWS_EXTERNAL_ID": _external_id(account, volume), **location}
        for location in options["STORAGE_LOCATIONS"]
    ]
    return {**options, "STORAGE_LOCATIONS": locations}


def describe(session: Session, statement: Describe) -> Result:
    """DESC EXTERNAL VOLUME and DESC CATALOG INTEGRATION, as a trust policy needs them."""
    entity = session.account.get(statement.kind, session.resolve(statement.name, 1), session.role)
    return _volume(entity) if statement.kind == "EXTERNAL VOLUME" else _integration(session.account, entity)


def _volume(volume: Entity) -> Result:
    writes = _boolean(volume.options.get("ALLOW_WRITES", True))
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
    """What the options of an integration say of each other.

    Raises: ProgrammingError when a REST catalog's kind and login do not go together.
    """
    rest, login = options.get("REST_CONFIG"), options.get("REST_AUTHENTICATION")
    if rest and login:
        is_glue, signs = rest.get("CATALOG_API_TYPE") == "AWS_GLUE", login["TYPE"] == "SIGV4"
        if is_glue != signs or (signs and options["CATALOG_SOURCE"] == "POLARIS"):
            raise invalid_option(f"REST_AUTHENTICATION of TYPE {login['TYPE']} does not go with this catalog")


def altered(integration: Entity, options: dict[str, Any]) -> dict[str, Any]:
    """The options of ALTER CATALOG INTEGRATION ... SET, with what it cannot set as it was.

    Raises: ProgrammingError for any but the refresh interval, the comment and a client's secret.
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
    if not _by_oauth(integration):
        by = "API" if "REST_CONFIG" in integration.options else "GLUE"
        properties[f"{by}_AWS_IAM_USER_ARN"] = IAM_USER_ARN
        properties[f"{by}_AWS_EXTERNAL_ID"] = assumed(account, integration)[1]
    rows = [
        (key, "Boolean" if isinstance(value, bool) else "String", _shown(value), "")
        for key, value in properties.items()
    ]
    return Result(["property", "property_type", "property_value", "property_default"], rows)


def _by_oauth(integration: Entity) -> bool:
    return integration.options.get("REST_AUTHENTICATION", {}).get("TYPE") == "OAUTH"


def _shown(value: Any) -> str:
    """A group as `{KEY=value, KEY=[a, b]}`, without what Snowflake keeps to itself."""
    if isinstance(value, dict):
        told = {key: each for key, each in value.items() if key not in (CLIENT_SECRET, "SIGV4_EXTERNAL_ID")}
        return f"{{{', '.join(f'{key}={_shown(each)}' for key, each in told.items())}}}"
    return f"[{', '.join(value)}]" if isinstance(value, list) else _boolean(value)


def assumed(account: Account, entity: Entity) -> tuple[str, str]:
    """The IAM role that a volume or an integration assumes, and the external id that it shows."""
    options = entity.options
    if entity.kind == "EXTERNAL VOLUME":
        [location, *_] = options["STORAGE_LOCATIONS"]
        return location["STORAGE_AWS_ROLE_ARN"], location["STORAGE_AWS_EXTERNAL_ID"]
    signing = options.get("REST_AUTHENTICATION", {})
    own = _external_id(account, entity.name[0])
    return signing.get("SIGV4_IAM_ROLE") or options["GLUE_AWS_ROLE_ARN"], signing.get("SIGV4_EXTERNAL_ID") or own


def verify(session: Session, kind: str, name: str) -> str:
    """SYSTEM$VERIFY_EXTERNAL_VOLUME (the owner's) and SYSTEM$VERIFY_CATALOG_INTEGRATION: whether IAM lets it in, or a
    REST catalog its client.

    Nothing is read: of a read-only volume Snowflake's own function verifies no more.
    """
    account = session.account
    with account.lock:
        entity = account.get(kind, (name,), session.role)
        if kind == "EXTERNAL VOLUME":
            account.require_ownership(entity, session.role)
        by_oauth = _by_oauth(entity)
        role_arn, external_id = ("", "") if by_oauth else assumed(account, entity)
    if by_oauth:
        refusal = session.lake.closed(entity.options)
    else:
        refusal = session.lake.refusal(role_arn, IAM_USER_ARN, external_id)
    return json.dumps({"success": not refusal} | ({"errorCode": "0", "errorMessage": refusal} if refusal else {}))


def _external_id(account: Account, name: str) -> str:
    return f"{account.name}_SFCRole=2_{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _boolean(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
