"""Faults of values whose type or form a key does not have: pydantic's errors in terms of lakehouse.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from reprlib import Repr
from typing import TYPE_CHECKING, Any, get_args, get_origin

from lakehouse.config import checks, sources
from lakehouse.config.base import ConfigModel, Fault, Location
from lakehouse.config.environment import SETTINGS, SYSTEMS
from lakehouse.core.text import did_you_mean

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

RENAMED_KEYS = {"when_stale": "'on_stale', with the values 'alert' (formerly 'tell') and 'run'"}
"""Former keys of topics and routes, and their replacements."""

_EXPECTED = {
    "dict_type": "must be a mapping (`key: value`)",
    "model_type": "must be a mapping (`key: value`)",
    "model_attributes_type": "must be a mapping (`key: value`)",
    "tuple_type": "must be a list (`[a, b]`)",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "too_short": "must have an entry",
    "int_type": "must be an integer",
    "int_parsing": "must be an integer",
    "int_parsing_size": "must be an integer",
    "int_from_float": "must be an integer",
    "float_parsing": "must be a number",
    "bool_parsing": "must be `true` or `false`",
    "recursion_loop": "must not contain itself (by an alias `*name` below the anchor `&name`)",
}
"""Problems by pydantic's type of error; its own messages use terms of Python."""
_MAPPINGS = ("dict_type", "model_type", "model_attributes_type")

FORMS = {
    "account": "must be the 12 digits of an AWS account",
    "group": "must have letters, digits and '_' only",
    "namespace": "must have lower-case letters, digits and '_' only, and begin with a letter",
    "owners": "must be `team:<name>` or an e-mail address",
    "region": "must be an AWS region such as us-east-1",
    "sql": "must read `{rows}` or `{table}` in FROM",
    "start": "must be `earliest`, `latest` or a time with its zone",
    "table": "must have lower-case letters, digits and '_' only, and begin with a letter",
    "tags": "must have letters, digits, '_', '-' and '.' only, at most 63",
    "transform": "must be `module:function`",
}
"""Texts instead of the regular expressions that keys must match, by key."""

_TYPES_OF_SETTINGS = ("EnvRef", "ClientSettings", "Value", "str", "int", "bool")
"""Names in pydantic's locations of the types that a setting of a system may have."""
_OPTION = re.compile(r"'([^']*)'")
MAX_OPTIONS = 20
"""Maximum number of allowed values that a message lists."""
_SHOWN = Repr()
"""Quotes values. By aliases, a short file can have values of any size."""
_SHOWN.maxlevel, _SHOWN.maxstring = 2, 100
_SHOWN.maxother = _SHOWN.maxlong = 100


def faults(error: ValidationError, whole: type[ConfigModel]) -> list[Fault]:
    """Return the faults of a configuration that pydantic refused.

    Args:
        error: The refusal.
        whole: The model of the whole file.
    """
    others: dict[Fault, None] = {}
    settings: dict[Location, str] = {}
    unknown_systems: set[Location] = set()
    for details in error.errors():
        loc = _location(details)
        if loc[:1] != ("environments",) or details["type"] == "missing" and len(loc) == 1:
            others[_fault(details, loc, whole)] = None
        elif loc[-1] == "[key]":
            known, word = list(SYSTEMS), str(details["input"])
            unknown_systems.add(loc[:-1])
            message = f"unknown system.{did_you_mean(word, known)} Known systems: {', '.join(known)}"
            others[loc[:-1], message] = None
        elif loc[:3] not in unknown_systems:
            # Each type that a setting may have, and each key of a reference, has an error of its own.
            # Settings of client libraries are one level deeper.
            settings.setdefault(loc[: 5 if loc[3:4] == (SETTINGS,) else 4], setting_fault(loc, details["input"]))
    return [*others, *((loc, fault) for loc, fault in settings.items() if loc[:3] not in unknown_systems)]


def _location(details: ErrorDetails) -> Location:
    """Return the location in lakehouse.yaml, without the types of unions, which pydantic's has."""
    match details["loc"]:
        case (kind, name, "checks", check, _, *rest):
            return (kind, name, "checks", check, *rest)
        case ("topics" | "routes" as kind, name, "source", _, *rest):
            return (kind, name, "source", *rest)
        case ("topics" | "routes", *_, "[key]") as at:
            return tuple(at[:-1])
        case ("environments", *_) as at:
            return tuple(part for part in at if part not in _TYPES_OF_SETTINGS)
        case at:
            return tuple(at)


def setting_fault(loc: Location, entry: object) -> str:
    """Return the problem of a part of the environments, without its value: it may be a secret."""
    kind = _kind(entry)
    match len(loc):
        case 1:
            return f"must be a mapping (`key: value`), but is {kind}. Write an environment as NAME: {{kafka: {{…}}, …}}"
        case 2:
            systems = ", ".join(name for name, classes in SYSTEMS.items() if not classes.is_optional)
            return f"must be a mapping (`key: value`), but is {kind}. Write its systems, such as {systems}"
        case 3:
            problem = f"must be a mapping (`key: value`), but is {kind}"
            return f"{problem}. Write the system's settings, each as `key: value` or `key: {{env: NAME}}`"
    problem = f"must be text, an integer or `{{env: NAME}}`, but is {kind}"
    match entry:
        case _ if len(loc) > (5 if loc[3] == SETTINGS else 4):
            pass
        case list():
            return f"{problem}. Write one text, with commas between its parts"
        case bool() | float():
            return f"{problem}. Write it in quotes"
        case None:
            return f"{problem}. Write a value, or remove the key"
    problem = "must be text, an integer or `{env: NAME}`, but is another mapping, or a name with other characters"
    return f"{problem} than letters, digits and '_'. Write {{env: NAME}}, or {{env: NAME, default: VALUE}}"


def _kind(entry: object) -> str:
    """Return the type of a value in terms of YAML."""
    match entry:
        case None:
            return "empty"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
    return "a mapping"


def _fault(details: ErrorDetails, loc: Location, whole: type[ConfigModel]) -> Fault:
    """Return the location and message of an error outside of the environments."""
    entry: object = details["input"]
    match details["type"]:
        case "extra_forbidden":
            return loc, _unknown_key(loc, entry, list(_fields_at(loc[:-1], details["loc"], whole)), whole)
        case "missing":
            return loc, "this key is required. Add it"
        case "union_tag_not_found":
            return loc, f"'type' is required. Add one of {', '.join(sorted(_types(loc)))}"
        case "union_tag_invalid":
            types, word = sorted(_types(loc)), str(details["ctx"]["tag"])
            return (*loc, "type"), f"unknown type '{word}'.{did_you_mean(word, types)} Known types: {', '.join(types)}"
        case kind:
            message = _EXPECTED.get(kind) or details["msg"].replace("Input should", "must")
            message = message[0].lower() + message[1:]
            options = _OPTION.findall(details["ctx"]["expected"]) if kind == "literal_error" else []
            if kind == "string_pattern_mismatch":
                key = next((str(part) for part in reversed(loc) if part in FORMS), "")
                message = FORMS.get(key, "does not have the form of this key")
            elif len(options) > MAX_OPTIONS:
                message = f"must be one of {len(options)} names"
            elif loc[2:3] == ("checks",) and loc[5:] and loc[-1] in ("bool", "int", "float", "str"):
                loc, message = loc[:-1], "must be text or a number"  # each type of a union has an error of its own
                kind = "union"
            elif kind == "string_type" and isinstance(entry, bool | int | float):
                message += f" (in quotes, as YAML reads it as {_kind(entry)})"
            value = "empty" if entry is None else str(entry).lower() if isinstance(entry, bool) else _SHOWN.repr(entry)
            if kind == "recursion_loop":
                return loc, f"{message}. Write its values"
            remedy = _remedy(kind, entry, loc, list(_fields_at(loc, details["loc"], whole)))
            if options:
                remedy = f"{did_you_mean(str(entry), options)} {remedy}".strip()
            meaning = _meaning(loc, details["loc"], whole)
            meaning = meaning.replace(":", ".", 1) if "Write" in remedy else meaning
            return loc, f"{message}, but is {value}. {remedy}{meaning}"


def _unknown_key(loc: Location, entry: object, known: list[str], whole: type[ConfigModel]) -> str:
    """Return the problem of a key that lakehouse.yaml does not have there.

    Args:
        loc: The key's location.
        entry: Its value.
        known: The keys that are valid there.
        whole: The model of the whole file.
    """
    key = str(loc[-1])
    if len(loc) == 3 and key in RENAMED_KEYS:
        return f"this key was renamed. Write {RENAMED_KEYS[key]} instead"
    if len(loc) == 1 and key in _fields_at(("topics", ""), (), whole):
        return f"'{key}' is a key of an entry of 'topics'. Indent it like the other keys of its entry"
    if len(loc) == 3 and isinstance(entry, dict) and entry.keys() & {*known}:
        return f"entries have no entries of their own. Write '{key}' directly below '{loc[0]}', or rename the key"
    return f"unknown key.{did_you_mean(key, known)} Known keys: {', '.join(known)}"


def _remedy(kind: str, entry: object, loc: Location, known: list[str]) -> str:
    """Return what to write instead of a value, as far as that follows from it.

    Args:
        kind: Pydantic's type of error.
        entry: The value.
        loc: Its location.
        known: The keys that may be there; empty if the value is no mapping of known keys.
    """
    text = "" if isinstance(entry, list | dict) else str(entry)
    number = re.sub(r"[,_ ']", "", text)
    match kind:
        case "tuple_type" if text:
            return f"Write [{text if '(' not in text or ',' not in text else repr(text)}]"
        case "string_type" if isinstance(entry, int | float) and not isinstance(entry, bool):
            return f"Write '{text}'"
        case "string_pattern_mismatch":
            return _in_form(text, loc)
        case "int_parsing" if re.fullmatch(r"\d{1,18}", number):
            return f"Write {int(number)}"
        case "int_parsing" if re.fullmatch(r"\d+(\.\d+)?e\+?\d", number, re.IGNORECASE):
            return f"Write {float(number):.0f}"
        case _ if kind in _MAPPINGS:
            return _as_mapping(entry, loc, known)
    duration = re.fullmatch(r"(\d+) ?([smhd])", text)
    if kind == "int_parsing" and str(loc[-1]).endswith("_seconds") and duration:
        return f"Write {int(duration[1]) * {'s': 1, 'm': 60, 'h': 3600, 'd': 86400}[duration[2]]}"
    if words := re.fullmatch(r"(\d+) ?(days?|hours?|minutes?)", text):
        return f"Write {words[1]}{words[2][0]}"
    return "Correct the value"


def _in_form(text: str, loc: Location) -> str:
    """Return what to write instead of a text that does not have the form of its key."""
    key = next((str(part) for part in reversed(loc) if part in FORMS), "")
    match key:
        case "namespace" | "table":
            name = re.sub(r"[^a-z0-9_]", "_", text.lower())
            return f"Write {name if name[:1].isalpha() else f't_{name}'}"
        case "group":
            return f"Write {re.sub(r'[^A-Za-z0-9_]', '_', text)}"
        case "tags":
            return f"Write {re.sub(r'[^A-Za-z0-9_.-]+', '-', text)[:63]}"
        case "transform" if "." in text:
            return f"Write {':'.join(text.rsplit('.', 1))}"
        case "owners":
            return f"Write team:{text}"
        case "start" if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            return f"Write {text}T00:00:00Z"
        case "start" if re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?", text):
            return f"Write {text.replace(' ', 'T')}Z"
    return "Correct the value"


def _as_mapping(entry: object, loc: Location, known: list[str]) -> str:
    """Return what to write where a mapping is expected, instead of another value."""
    match loc:
        case (_, _, "source") | (_, _, "checks", _):
            types = _types(loc)
            example = str(entry) if isinstance(entry, str) and entry in types else next(iter(types))
            others = "" if example == entry else f". Types: {', '.join(sorted(types))}"
            return f"Write {{type: {example}, …}}{others}"
        case ("topics" | "routes",) if isinstance(entry, list) and all(isinstance(name, str) for name in entry):
            return f"Write {{{', '.join(f'{name}: {{}}' for name in entry)}}}"
    if known:
        return f"Write one of the keys {', '.join(known)}"
    return "Write {}, or entries as NAME: VALUE" if entry is None else "Write each entry as NAME: VALUE"


def _meaning(loc: Location, raw: Location, whole: type[ConfigModel]) -> str:
    """Return the description of the key at a location, after a colon, or ''."""
    for length in range(len(loc) - 1, -1, -1):
        if description := _fields_at(loc[:length], raw, whole).get(str(loc[length]), ""):
            return f": {description}"
    return ""


def _fields_at(loc: Location, raw: Location, whole: type[ConfigModel]) -> dict[str, str]:
    """Return the keys that lakehouse.yaml may have at a location, and their descriptions.

    Args:
        raw: The location in the models, which includes the types of sources and checks.
    """
    type_: Any = whole
    match loc:
        case ("topics" | "routes", _, "source"):
            type_ = _types(loc).get(str(raw[3])) if raw[3:] else None
        case ("topics" | "routes", _, "checks", _):
            type_ = _types(loc).get(str(raw[4])) if raw[4:] else None
        case _:
            for part in loc:
                field = _fields_of(type_).get(str(part))
                type_ = get_args(type_)[1] if get_origin(type_) is dict else field and field.annotation
    return {key: field.description or "" for key, field in _fields_of(type_).items()}


def _fields_of(type_: Any) -> dict[str, FieldInfo]:
    """Return the fields of a model, or of the model in a union, by their keys in lakehouse.yaml; else none."""
    for model in (type_, *(get_args(type_) if get_origin(type_) is not dict else ())):
        if isinstance(model, type) and issubclass(model, ConfigModel):
            return {field.alias or name: field for name, field in model.model_fields.items() if not field.exclude}
    return {}


def _types(loc: Location) -> Mapping[str, type[ConfigModel]]:
    """Return the models that `type` selects at a location, by type."""
    return checks.registered() if loc[2] == "checks" else sources.registered()
