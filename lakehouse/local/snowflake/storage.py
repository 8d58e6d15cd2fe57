"""External volumes and catalog integrations: what Snowflake reveals about them.

Column and property names were read in the acceptance tests of Snowflake's Terraform provider.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from lakehouse.local.snowflake.account import Account, Entity
from lakehouse.local.snowflake.session import Result, Session
from lakehouse.local.snowflake.statements import Describe

IAM_USER_ARN = "arn:aws:iam::999999999999:user/local-snowflake"
"""Who assumes the role: in a real account, a user of Snowflake's AWS account."""


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


def _integration(account: Account, integration: Entity) -> Result:
    properties = {
        "CATALOG_NAMESPACE": "",
        "COMMENT": "",
        **integration.options,
        "GLUE_AWS_IAM_USER_ARN": IAM_USER_ARN,
        "GLUE_AWS_EXTERNAL_ID": _external_id(account, integration.name[0]),
    }
    rows = [
        (key, "Boolean" if isinstance(value, bool) else "String", _boolean(value), "")
        for key, value in properties.items()
    ]
    return Result(["property", "property_type", "property_value", "property_default"], rows)


def _external_id(account: Account, name: str) -> str:
    return f"{account.name}_SFCRole=2_{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _boolean(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
