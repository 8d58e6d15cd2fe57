"""Validity of the keywords of a JSON Schema from which columns are derived.

Source: the metaschemas of JSON Schema, drafts 4 to 2020-12. Keywords without an effect on columns are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lakehouse.formats.json.json_references import escaped, items

if TYPE_CHECKING:
    from pydantic import JsonValue

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")

Check = tuple[Callable[[object], bool], str]
"""A condition on a value, and what it requires."""


def _is_schema(value: object) -> bool:
    return isinstance(value, dict | bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_type(value: object) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in TYPES for name in names)


SCHEMA: Check = (_is_schema, "a schema, which is an object, true or false")
TEXT: Check = (_is_text, "text")
LIST: Check = (_is_list, "a list")
OBJECT: Check = (lambda value: isinstance(value, dict), "an object")

KEYWORDS: Mapping[str, Check] = {
    **dict.fromkeys(("$schema", "$id", "$ref", "$anchor", "format"), TEXT),
    **dict.fromkeys(("additionalProperties", "if", "then", "else"), SCHEMA),
    **dict.fromkeys(("enum", "allOf", "anyOf", "oneOf"), LIST),
    **dict.fromkeys(("properties", "dependentSchemas", "dependencies"), OBJECT),
    "items": (lambda value: _is_schema(value) or _is_list(value), "a schema or a list of schemas"),
    "required": (_is_names, "a list of names"),
    "type": (_is_type, f"one or several of {', '.join(TYPES)}"),
}
MEMBERS: Mapping[str, Check] = {
    **dict.fromkeys(("properties", "dependentSchemas", "allOf", "anyOf", "oneOf"), SCHEMA),
    "dependencies": (lambda value: _is_schema(value) or _is_names(value), "a schema or a list of names"),
}
"""Checks of keywords, and of the members of keywords."""


def fault(schema: JsonValue) -> tuple[str, str] | None:
    """Return the first keyword of a schema that is not valid; None if there is none. Nested schemas are not checked.

    Returns:
        The pointer to the keyword within the schema, and the rule that its value violates.
    """
    if not _is_schema(schema):
        return "", SCHEMA[1]
    if not isinstance(schema, dict):
        return None
    for keyword in KEYWORDS:
        if keyword not in schema:
            continue
        value = schema[keyword]
        is_valid, rule = KEYWORDS[keyword]
        if not is_valid(value):
            return f"/{keyword}", rule
        if keyword in MEMBERS:
            is_valid, rule = MEMBERS[keyword]
            invalid = [key for key, member in items(value) if not is_valid(member)]
            if invalid:
                return f"/{keyword}/{escaped(invalid[0])}", rule
    return None
