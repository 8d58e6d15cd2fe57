"""Validation of lakehouse.yaml. Each fault is a location and a message: the problem, and then the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args, get_origin

from lakehouse.config import checks, sensitive, sources
from lakehouse.config.base import ConfigModel, Fault, Location
from lakehouse.config.environment import SYSTEMS
from lakehouse.config.known_columns import columns_of_files
from lakehouse.config.model import Config, Route, TableNames, Topic
from lakehouse.config.settings import IGNORED_KEYS
from lakehouse.config.sources import is_file
from lakehouse.core.tables import layout, naming
from lakehouse.core.text import did_you_mean
from lakehouse.formats import format_of
from lakehouse.formats.format import RegisteredFormat

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails


RENAMED_KEYS = {"when_stale": "'on_stale', with the values 'alert' (formerly 'tell') and 'run'"}
"""Former keys of topics and routes, and their replacements."""


def semantic_faults(config: Config) -> list[Fault]:
    """Return the faults that types cannot express: conflicting names, dangling references, missing keys."""
    faults: list[Fault] = []
    accepted = TableNames()
    tables = {topic.table: topic for topic in config.topics.values()}
    for name, route in config.routes.items():
        route_faults = [
            *_route_faults(name, route, config),
            *_topic_faults(route, tables),
            *_schema_file_faults(config, route),
        ]
        faults += [(("routes", name, *location), message) for location, message in route_faults]
    for name, topic in config.topics.items():
        at = ("topics", name)
        if not naming.is_topic_name(topic.topic):
            faults.append((at, "not a valid Kafka topic name. Use letters, digits, '.', '_' and '-', at most 249"))
        if conflict := accepted.conflict(topic):
            faults.append((at, conflict))
        accepted.add(topic)
        faults += [((*at, *location), message) for location, message in _topic_faults(topic, tables)]
        faults += [((*at, "sensitive"), message) for message in _unknown_sensitive(config, topic)]
        faults += [((*at, *location), message) for location, message in _schema_file_faults(config, topic)]
        faults += [((*at, *location), message) for location, message in topic.source.faults(config, topic)]
    return [*faults, *_cycles(config)]


def _cycles(config: Config) -> Iterator[Fault]:
    """Yield dead-letter topics that would be ingested again, and topics that are derived from themselves."""
    ingested = {topic.topic: name for name, topic in config.topics.items()}
    for kind, entries in (("topics", config.topics), ("routes", config.routes)):
        for name, entry in entries.items():
            if reader := ingested.get(entry.dead_letter_topic):
                problem = f"entry '{reader}' ingests that topic, so it would ingest the dead letters as its records"
                yield (kind, name, "dead_letter_topic"), f"{problem}. Name another topic"
    for name in config.topics:
        path = [name]
        while (source := config.topics[path[-1]].source.upstream) in config.topics:
            path.append(source)
            if source == name:
                problem = f"'{name}' is derived from itself ({' from '.join(path)}), which never ends"
                yield ("topics", name, "source", "from"), f"{problem}. Derive from another topic"
            if source in path[:-1]:
                break


def _route_faults(name: str, route: Route, config: Config) -> Iterator[Fault]:
    """Yield faults of a route, which do not depend on the topics that exist."""
    if name in config.topics:
        yield (), "an entry of 'topics' has the same name. Rename the route"
    if not route.source.is_external or route.kafka_topic:
        yield (), "a route matches existing topics only. Remove 'source' and 'kafka_topic'"
    try:
        groups = dict.fromkeys(re.compile(route.pattern).groupindex, "x")
        route.table_name.format_map(groups)
    except re.error as error:
        yield ("pattern",), f"not a valid regular expression: {error}. Correct the pattern"
    except KeyError as error:
        yield ("table",), f"the template names {error}, which is not a group of 'pattern'. Add (?P<name>…) to it"
    except (ValueError, IndexError, AttributeError, TypeError) as error:
        yield ("table",), f"not a valid template: {error}. Write the groups of 'pattern' as {{name}}"


def _schema_file_faults(config: Config, entry: Topic) -> Iterator[Fault]:
    """Yield why a schema file cannot be used: without its content the table would have one column of text."""
    file = entry.value_schema_file
    if file and not is_file(config, file):
        yield ("value_schema_file",), f"file '{file}' does not exist in {config.root}. Correct the path"
    elif file and not entry.value_schema.strip():
        yield ("value_schema_file",), f"file '{file}' has no text in UTF-8. Write the JSON Schema to it"


def _tableflow_faults(topic: Topic) -> Iterator[Fault]:
    """Yield settings that Tableflow does not support."""
    if isinstance(topic, Route):
        yield ("engine",), "Tableflow is enabled per topic, not by pattern. Declare the topics under 'topics'"
    if topic.mode not in ("append", "upsert"):
        yield ("mode",), "Tableflow appends or upserts. Write 'append' or 'upsert', or set 'engine: spark'"
    if topic.mode == "upsert" and topic.key_format == IGNORED_KEYS:
        yield ("key_format",), "Tableflow upserts by the message key. Write its format, or set 'engine: spark'"
    if topic.continuous:
        yield ("continuous",), "Tableflow runs continuously by itself. Remove 'continuous'"
    if topic.metadata.naming == "portable":
        yield ("metadata", "naming"), "Tableflow has no such names. Write 'confluent' or 'confluent_portable'"
    if topic.quarantine:
        yield ("checks",), "Tableflow publishes rows before checks run. Set 'severity: warn' or 'engine: spark'"
    for name, check in topic.checks.items():
        if isinstance(check, checks.RowCount):
            problem = "Tableflow's snapshots are no batches, so it would count the whole table"
            yield ("checks", name), f"{problem}. Write a check of type 'query', or set 'engine: spark'"


def _check_engine_faults(topic: Topic, tables: Mapping[str, Topic]) -> Iterator[Fault]:
    """Yield checks that read another table, if Tableflow writes it or the topic's own table.

    Tableflow's tables are in a database or a catalog of their own, so one query cannot read both tables.
    """
    for name, check in topic.checks.items():
        for table in check.tables:
            if not (topic.is_ingested and (table not in tables or tables[table].is_ingested)):
                problem = f"reads table '{table}', and Tableflow writes one of the two, to a database of its own"
                yield ("checks", name), f"{problem}. Set 'engine: spark' for both topics, or remove the check"


def _topic_faults(topic: Topic, tables: Mapping[str, Topic]) -> Iterator[Fault]:
    """Yield settings of one topic that contradict each other.

    Args:
        tables: The declared topics by name of their tables.
    """
    yield from ((("checks", *location), message) for location, message in checks.faults(topic.checks, tables))
    yield from _check_engine_faults(topic, tables)
    if not topic.is_ingested:
        yield from _tableflow_faults(topic)
    if topic.mode != "append" and not topic.key:
        yield (), f"'mode: {topic.mode}' needs the columns that identify a row. Add 'key: <column>'"
    key_format = topic.effective_key_format
    if topic.mode == "upsert" and len(topic.key) > 1 and key_format and format_of(key_format).is_scalar:
        remedy = "Name one column, or set 'key_format: avro', or 'none' if the values have all columns"
        yield ("key",), f"a {key_format} message key has one column. {remedy}"
    if topic.delete and (topic.mode != "upsert" or not topic.is_ingested):
        problem = "only Spark's tables with 'mode: upsert' delete rows by a value"
        yield ("delete",), f"{problem}. Set 'mode: upsert' and 'engine: spark', or remove this key"
    if len(set(topic.key)) < len(topic.key):
        yield ("key",), "names a column twice. Remove one of them"
    if topic.retention.snapshots < topic.min_snapshot_age:
        minutes = topic.min_snapshot_age.total_seconds() / 60
        problem = f"readers may need a snapshot for {minutes:.0f} minutes (an hour, or twice max_lag_seconds)"
        yield ("retention", "snapshots"), f"{problem}, but it would expire before. Set at least {minutes:.0f}m"
    if topic.deletes_rows and "kafka_timestamp" not in topic.metadata.names:
        problem = "no row would be deleted, because the table has no Kafka timestamp"
        yield ("retention", "rows"), f"{problem}. Add 'timestamp' to 'metadata.columns', or remove this key"
    yield from ((("sensitive",), message) for message in _sensitive_faults(topic))
    if topic.subject_strategy != "topic" and not topic.record:
        yield ("subject_strategy",), "this strategy names subjects by record type. Add 'record: <full name>'"
    value = format_of(topic.value_format)
    has_registered_schema = isinstance(value, RegisteredFormat)
    if topic.record and not has_registered_schema:
        yield ("record",), f"{topic.value_format} values have no record type. Remove 'record'"
    if topic.value_schema_file and not value.file_type:
        yield ("value_schema_file",), f"{topic.value_format} values need no schema file. Remove 'value_schema_file'"
    if topic.mode == "debezium" and not has_registered_schema and not topic.value_schema_file:
        yield ("value_format",), "change events need a schema. Use avro, json_schema, protobuf, or a value_schema_file"
    if topic.dead_letter_topic and topic.errors != "log":
        yield ("dead_letter_topic",), "only 'errors: log' keeps dead letters. Set 'errors: log', or remove this key"
    for key, terms in (("partition_by", topic.partition_by), ("sort_by", topic.sort_by)):
        for term in terms:
            try:
                parsed = layout.parse(term, ordered=key == "sort_by")
            except ValueError as error:
                yield (key,), str(error)
            else:
                if key == "partition_by" and parsed.transform != "bucket" and _is_sensitive(topic, parsed.column):
                    problem = f"file names would contain values of the sensitive column '{parsed.column}'"
                    yield (key,), f"{problem}. Write bucket(16, {parsed.column}), or use another column"


def _sensitive_faults(topic: Topic) -> Iterator[str]:
    """Yield faults of the names in `sensitive` that do not depend on the table's columns."""
    folded = [name.casefold() for name in topic.sensitive]
    if len(set(folded)) < len(folded):
        yield "names a column twice (case is ignored). Remove one of them"
    for name in topic.metadata.names.values():
        if name.casefold() in folded:
            yield f"'{name}' is a metadata column; bytes and headers are always hidden. Remove it"


def _is_sensitive(topic: Topic, column: str) -> bool:
    """Return whether a column, or a field as a dotted path, is sensitive, or contains or is part of what is."""
    paths = [(f"{name.casefold()}.", f"{column.casefold()}.") for name in topic.sensitive]
    return any(name.startswith(path) or path.startswith(name) for name, path in paths)


def _unknown_sensitive(config: Config, topic: Topic) -> Iterator[str]:
    """Yield a fault if `sensitive` names unknown columns of a topic whose schema is a file.

    Names of other topics are checked against their table.
    """
    if not topic.sensitive or (known := columns_of_files(config)(topic)) is None:
        return
    if unmatched := sensitive.unmatched_names(topic.sensitive, known.fields, known.previous):
        problem = f"{known.origin} {sensitive.unknown_columns(unmatched, known.fields)}"
        yield f"{problem} Correct the name, or add a field back that the file no longer has"


_EXPECTED = {
    "dict_type": "must be a mapping (`key: value`)",
    "model_type": "must be a mapping (`key: value`)",
    "model_attributes_type": "must be a mapping (`key: value`)",
    "tuple_type": "must be a list (`[a, b]`)",
    "string_type": "must be text",
    "string_pattern_mismatch": "must match the pattern `{pattern}`",
    "int_parsing": "must be an integer",
    "float_parsing": "must be a number",
    "bool_parsing": "must be `true` or `false`",
}
"""Problems by pydantic's type of error, with its context; its own messages use terms of Python."""


FORMS = {
    "namespace": "must have lower-case letters, digits and '_' only, and begin with a letter",
    "owners": "must be `team:<name>` or an e-mail address",
    "sql": "must read `{rows}` or `{table}` in FROM",
    "start": "must be `earliest`, `latest` or a time with its zone",
    "transform": "must be `module:function`",
}
"""Texts instead of the regular expressions that keys must match, by key."""

_OPTION = re.compile(r"'([^']*)'")
MAX_OPTIONS = 20
"""Maximum number of allowed values that a message lists."""


def _remedy(kind: str, entry: object, loc: Location, known: list[str]) -> str:
    """Return what to write instead of a value, as far as that follows from it.

    Args:
        kind: Pydantic's type of error.
        entry: The value.
        loc: Its location.
        known: The keys that may be there; empty if the value is no mapping of known keys.
    """
    text = str(entry)
    if kind == "tuple_type" and isinstance(entry, str):
        return f"Write [{text if '(' not in text or ',' not in text else repr(text)}]"
    if kind in ("model_type", "model_attributes_type", "dict_type") and known:
        return f"Write one of the keys {', '.join(known)}"
    if kind == "dict_type" and isinstance(entry, list) and all(isinstance(name, str) for name in entry):
        return f"Write {{{', '.join(f'{name}: {{}}' for name in entry)}}}"
    duration = re.fullmatch(r"(\d+) ?([smhd])", text)
    if kind == "int_parsing" and str(loc[-1]).endswith("_seconds") and duration:
        return f"Write {int(duration[1]) * {'s': 1, 'm': 60, 'h': 3600, 'd': 86400}[duration[2]]}"
    if words := re.fullmatch(r"(\d+) ?(days?|hours?|minutes?)", text):
        return f"Write {words[1]}{words[2][0]}"
    if loc[-1] == "namespace" and kind == "string_pattern_mismatch":
        return f"Write {re.sub(r'[^a-z0-9_]', '_', text.lower())}"
    if loc[-1] == "transform" and kind == "string_pattern_mismatch" and "." in text:
        return f"Write {':'.join(text.rsplit('.', 1))}"
    if "owners" in loc and kind == "string_pattern_mismatch":
        return f"Write team:{text}"
    return "Correct the value"


def schema_fault(details: ErrorDetails, whole: type[ConfigModel]) -> Fault:
    """Return the location and message of an error of pydantic's validation."""
    match details["loc"]:
        case (kind, name, "checks", check, _, *rest):
            loc: Location = (kind, name, "checks", check, *rest)
        case ("topics" | "routes" as kind, name, "source", _, *rest):
            loc = (kind, name, "source", *rest)
        case ("topics" | "routes", *_) as at:
            loc = tuple(at)
        case at:
            loc = tuple(part for part in at if part not in ("EnvRef", "str", "int"))
    if loc[:1] == ("environments",) and loc[-1] == "[key]":
        known, word = list(SYSTEMS), str(details["input"])
        return loc[:-1], f"unknown system.{did_you_mean(word, known)} Known systems: {', '.join(known)}"
    match details["type"]:
        case "extra_forbidden":
            if len(loc) == 3 and loc[-1] in RENAMED_KEYS:
                return loc, f"this key was renamed. Write {RENAMED_KEYS[loc[-1]]} instead"
            known = list(_fields_at(loc[:-1], details["loc"], whole))
            return loc, f"unknown key.{did_you_mean(str(loc[-1]), known)} Known keys: {', '.join(known)}"
        case "missing":
            return loc, "this key is required. Add it"
        case "union_tag_not_found":
            return loc, f"'type' is required. Add one of {', '.join(sorted(_types(loc)))}"
        case "union_tag_invalid":
            types, word = sorted(_types(loc)), str(details["ctx"]["tag"])
            return (*loc, "type"), f"unknown type '{word}'.{did_you_mean(word, types)} Known types: {', '.join(types)}"
        case kind:
            message = _EXPECTED.get(kind, "").format_map(details.get("ctx", {}))
            message = message or details["msg"].replace("Input should", "must")
            message = message[0].lower() + message[1:]
            entry, is_bool = details["input"], isinstance(details["input"], bool)
            value = "empty" if entry is None else repr(entry).lower() if is_bool else repr(entry)
            remedy = _remedy(kind, entry, loc, list(_fields_at(loc, details["loc"], whole)))
            if kind == "string_pattern_mismatch":
                message = FORMS.get(next((str(part) for part in reversed(loc) if isinstance(part, str)), ""), message)
            if kind == "literal_error" and len(options := _OPTION.findall(details["ctx"]["expected"])) > MAX_OPTIONS:
                message = f"must be one of {len(options)} names"
            if loc[2:3] == ("checks",) and loc[5:] and loc[-1] in ("bool", "int", "float", "str"):
                loc, message = loc[:-1], "must be text or a number"  # each type of a union has an error of its own
            elif kind == "string_type" and isinstance(entry, bool | int | float):
                message += f" (in quotes, as YAML reads it as {'true or false' if is_bool else 'a number'})"
            if loc[:1] == ("environments",) and loc[-1] != "[key]":
                # A value, unlike a name, may be a secret, and each of its possible types has an error of its own.
                message = "must be text, an integer or `{env: NAME}`" if len(loc) == 4 else message
                value = f"of type {type(details['input']).__name__}"
            if kind == "literal_error":
                remedy = f"{did_you_mean(str(entry), options)} {remedy}".strip()
            meaning = _meaning(loc, details["loc"], whole)
            return (
                loc,
                f"{message}, but is {value}. {remedy}{meaning.replace(':', '.', 1) if 'Write' in remedy else meaning}",
            )


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
            type_ = _types(loc)[str(raw[3])]
        case ("topics" | "routes", _, "checks", _):
            type_ = _types(loc)[str(raw[4])]
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


def reserved_keys(raw: object) -> list[Fault]:
    """Return keys of the file that the loader sets itself, such as an entry's name and the file's folder."""
    at: list[Location] = [(key,) for key in ("root", "file") if isinstance(raw, dict) and key in raw]
    for kind in ("topics", "routes"):
        entries = raw.get(kind) if isinstance(raw, dict) else None
        at += [
            (kind, name, key)
            for name, entry in (entries.items() if isinstance(entries, dict) else ())
            if isinstance(entry, dict)
            for key in ("name", "line", "value_schema")
            if key in entry
        ]
    return [(loc, "unknown key. Remove it") for loc in at]
