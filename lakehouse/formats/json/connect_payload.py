"""The form of JSON messages of Kafka Connect that have their own schema: `{"schema": …, "payload": …}`.

Source: Apache Kafka, org.apache.kafka.connect.json.JsonConverter with `schemas.enable`.
"""

import json
from typing import Any

DEFINITIONS = ("$schema", "$id", "id", "$defs", "definitions")
"""Keywords of a JSON Schema that references in its parts depend on."""


def with_payload(text: str) -> str:
    """Return the JSON Schema of messages that are either an object itself, or have it as `payload`.

    Args:
        text: The JSON Schema of either form. Other text is returned unchanged.
    """
    try:
        root: Any = json.loads(text)
        properties = root["properties"]
        payload = properties.get("payload", {})
        if "schema" in properties and "properties" in payload:
            root = {name: root[name] for name in DEFINITIONS if name in root} | payload
        inner = {name: part for name, part in root.items() if name not in DEFINITIONS}
        either = {name: part for name, part in root.items() if name != "required"}
        return json.dumps(either | {"properties": {**root["properties"], "payload": inner}})
    except (ValueError, KeyError, TypeError, AttributeError):
        return text
