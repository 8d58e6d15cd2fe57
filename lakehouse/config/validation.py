"""What is wrong with a lakehouse.yaml: each fault with its place, what was found, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lakehouse.config import checks, sensitive, sources
from lakehouse.config.base import Model
from lakehouse.config.environment import EnvRef
from lakehouse.config.table_names import Taken
from lakehouse.config.topic import Route, Topic
from lakehouse.config.yaml_locations import Location
from lakehouse.core import layout, naming
from lakehouse.core.errors import SchemaError
from lakehouse.core.words import did_you_mean
from lakehouse.formats import format_of
from lakehouse.formats.avro import AvroFormat
from lakehouse.formats.format import MessageSchema, RegisteredFormat
from lakehouse.formats.schema import RegisteredSchema

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from lakehouse.config.loader import Config


def of_meaning(config: Config) -> list[tuple[Location, str]]:
    """What the types cannot say: names that clash, references that lead nowhere, keys that are missing."""
    faults: list[tuple[Location, str]] = []
    taken = Taken()
    tables = {topic.table for topic in config.topics.values()}
    for name, route in config.routes.items():
        found = [*_route_faults(name, route, config), *_topic_faults(route, tables)]
        faults += [(("routes", name, *where), said) for where, said in found]
    for name, topic in config.topics.items():
        at = ("topics", name)
        if not naming.is_topic_name(topic.topic):
            faults.append((at, "not a Kafka topic name. Use letters, digits, '.', '_' and '-', at most 249"))
        if said := taken.fault(topic):
            faults.append((at, said))
        taken.take(topic)
        faults += [((*at, *where), said) for where, said in _topic_faults(topic, tables)]
        faults += [((*at, "sensitive"), said) for said in _unknown_sensitive(config, topic)]
        if topic.value_schema_file and not (config.root / topic.value_schema_file).is_file():
            problem = f"file '{topic.value_schema_file}' does not exist in {config.root}. Correct the path"
            faults.append(((*at, "value_schema_file"), problem))
        faults += [((*at, *where), said) for where, said in topic.source.faults(config, topic)]
    return [*faults, *_circles(config)]


def _circles(config: Config) -> Iterator[tuple[Location, str]]:
    """Dead letters that would be read again, and topics that are derived from themselves."""
    read = {topic.topic: name for name, topic in config.topics.items()}
    for kind, entries in (("topics", config.topics), ("routes", config.routes)):
        for name, entry in entries.items():
            if reader := read.get(entry.dead_letter_topic):
                said = f"entry '{reader}' reads that topic, and would read the dead letters as its records"
                yield (kind, name, "dead_letter_topic"), f"{said}. Name another topic"
    for name in config.topics:
        way = [name]
        while (source := config.topics[way[-1]].source.upstream) in config.topics:
            way.append(source)
            if source == name:
                said = f"'{name}' is derived from itself ({' from '.join(way)}), and so without end"
                yield ("topics", name, "source", "from"), f"{said}. Derive from another topic"
            if source in way[:-1]:
                break


def _route_faults(name: str, route: Route, config: Config) -> Iterator[tuple[Location, str]]:
    """What is wrong with a route whatever topics there are."""
    if name in config.topics:
        yield (), "is the name of a topic's entry, too. Rename the route"
    if not route.source.is_external or route.kafka_topic:
        yield (), "a route takes topics that exist. Remove 'source' and 'kafka_topic'"
    try:
        groups = dict.fromkeys(re.compile(route.pattern).groupindex, "x")
        route.table_name.format_map(groups)
    except re.error as error:
        yield ("pattern",), f"not a regular expression: {error}. Correct it"
    except (KeyError, ValueError, IndexError) as error:
        yield ("table",), f"the template names {error}, which is no group of the pattern. Write (?P<name>…) in it"


def _tableflow_faults(topic: Topic) -> Iterator[tuple[tuple[str, ...], str]]:
    """What Tableflow does not do."""
    if isinstance(topic, Route):
        yield ("engine",), "Tableflow is told of each topic by name. Give it an entry under 'topics'"
    if topic.mode != "append":
        yield ("mode",), "Tableflow appends, or upserts by a rule of its own. Remove it, or use 'engine: spark'"
    if topic.quarantine:
        yield ("checks",), "Tableflow publishes before anything is checked. Use 'severity: warn' or 'engine: spark'"


def _topic_faults(topic: Topic, tables: set[str]) -> Iterator[tuple[Location, str]]:
    """Settings of one topic that do not go together."""
    yield from ((("checks", *where), said) for where, said in checks.faults(topic.checks, tables))
    if topic.engine == "tableflow":
        yield from _tableflow_faults(topic)
    if topic.mode != "append" and not topic.key:
        yield (), f"{topic.mode} needs to know which row a record belongs to. Add 'key: <column>'"
    if topic.mode == "upsert" and len(topic.key) > 1 and topic.decoded_key and format_of(topic.decoded_key).is_scalar:
        yield ("key",), f"a {topic.decoded_key} message key is one column. Name one, or set 'key_format: avro'"
    if len(set(topic.key)) < len(topic.key):
        yield ("key",), "names a column twice. Remove one"
    if topic.retention.snapshots < topic.readers_need:
        minutes = topic.readers_need.total_seconds() / 60
        said = f"readers that are not stale may need a snapshot for {minutes:.0f} minutes (an hour, or twice "
        yield ("retention", "snapshots"), f"{said}max_lag_seconds). Keep them for as long"
    yield from ((("sensitive",), said) for said in _sensitive_faults(topic))
    if topic.subject_strategy != "topic" and not topic.record:
        yield ("subject_strategy",), "names subjects after record types. Add 'record: <full name>'"
    value = format_of(topic.value_format)
    has_registered_schema = isinstance(value, RegisteredFormat)
    if topic.record and not has_registered_schema:
        yield ("record",), f"{topic.value_format} values have no record type. Remove it"
    if topic.value_schema_file and not value.file_type:
        yield ("value_schema_file",), f"{topic.value_format} values bring their schema. Remove it"
    if topic.mode == "debezium" and not has_registered_schema and not topic.value_schema_file:
        yield ("value_format",), "change events need a schema. Use avro, json_schema, protobuf, or a value_schema_file"
    if topic.dead_letter_topic and topic.errors != "log":
        yield ("dead_letter_topic",), "there are dead letters with 'errors: log' only. Set it"
    for where, terms in (("partition_by", topic.partition_by), ("sort_by", topic.sort_by)):
        for term in terms:
            try:
                parsed = layout.parse(term, ordered=where == "sort_by")
            except ValueError as error:
                yield (where,), str(error)
            else:
                if where == "partition_by" and parsed.transform != "bucket" and _is_sensitive(topic, parsed.column):
                    said = f"names of files would hold values of the sensitive '{parsed.column}'"
                    yield (where,), f"{said}. Write bucket(16, {parsed.column}), or use another column"


def _sensitive_faults(topic: Topic) -> Iterator[str]:
    """What is wrong with the names of sensitive columns, whatever columns there are."""
    folded = [name.casefold() for name in topic.sensitive]
    if len(set(folded)) < len(folded):
        yield "names a column twice (upper and lower case are one). Remove one"
    for name in topic.metadata.names.values():
        if name.casefold() in folded:
            yield f"'{name}' is a metadata column: bytes and headers are never shown, and others say no more. Remove it"


def _is_sensitive(topic: Topic, column: str) -> bool:
    """Whether a column, or a field as a dotted path, is sensitive by its name, or is in one that is, or has one."""
    paths = [(f"{name.casefold()}.", f"{column.casefold()}.") for name in topic.sensitive]
    return any(name.startswith(path) or path.startswith(name) for name, path in paths)


def _unknown_sensitive(config: Config, topic: Topic) -> Iterator[str]:
    """Names in `sensitive` that a topic whose schema is a file has no columns for; of others, the table says."""
    if not topic.sensitive or topic.mode == "debezium":
        return
    files, format_ = topic.source.schema_files, format_of(AvroFormat.name)
    if not files and topic.value_schema_file:
        files, format_ = (topic.value_schema_file,), format_of(topic.value_format)
    if not files or not all((config.root / file).is_file() for file in files):
        return
    versions = [(RegisteredSchema(0, config.text(file)),) for file in files]
    try:
        shapes = [format_.shape(MessageSchema(version, version)) for version in versions]
    except (ValueError, SchemaError):
        # Told of where the file is named, or when it is registered.
        return
    from pyiceberg.types import NestedField, StringType

    fields = [field for one in shapes for field in one.struct.fields]
    # A derived topic without a schema of its keys has them from the rows.
    fields += [NestedField(1, name, StringType(), required=False) for name in topic.key]
    former = {path: names for one in shapes for path, names in one.former.items()}
    if never := sensitive.missing(topic.sensitive, fields, former):
        said = sensitive.unknown(never, fields)
        yield f"'{files[0]}' {said} Correct the name; a field that the file lost has to come back"


def of_form(details: ErrorDetails, whole: type[Model]) -> tuple[Location, str]:
    match details["loc"]:
        case (kind, name, "checks", check, _, *rest):
            loc: Location = (kind, name, "checks", check, *rest)
        case ("topics" | "routes" as kind, name, "source", _, *rest):
            loc = (kind, name, "source", *rest)
        case ("topics" | "routes", *_) as at:
            loc = tuple(at)
        case at:
            loc = tuple(part for part in at if part not in ("EnvRef", "str", "int"))
    match details["type"]:
        case "extra_forbidden":
            known = _fields_at(loc[:-1], details["loc"], whole)
            return loc, f"no such key.{did_you_mean(str(loc[-1]), known)} Known keys: {', '.join(known)}"
        case "missing":
            return loc, "missing. Add it"
        case "union_tag_not_found":
            return loc, f"has no 'type'. Add one of {', '.join(sorted(_types(loc)))}"
        case "union_tag_invalid":
            types, word = sorted(_types(loc)), str(details["ctx"]["tag"])
            return (*loc, "type"), f"'{word}' is none.{did_you_mean(word, types)} Known types: {', '.join(types)}"
        case _:
            message = details["msg"][0].lower() + details["msg"][1:]
            return loc, f"{message} (found {details['input']!r}). Correct the value"


def _fields_at(loc: Location, raw: Location, whole: type[Model]) -> list[str]:
    """The keys that lakehouse.yaml knows at this place."""
    match loc:
        case ():
            model = whole
        case ("topics", _):
            model = Topic
        case ("routes", _):
            model = Route
        case ("topics" | "routes", _, "source"):
            model = _types(loc)[str(raw[3])]
        case ("topics" | "routes", _, "checks", _):
            model = _types(loc)[str(raw[4])]
        case _:
            model = EnvRef
    readable = {name: field for name, field in model.model_fields.items() if not field.exclude}
    return [field.alias or name for name, field in readable.items()]


def _types(loc: Location) -> Mapping[str, type[Model]]:
    """The models that a `type` chooses from at this place, by it."""
    return checks.registered() if loc[2] == "checks" else sources.registered()


def set_elsewhere(raw: Any) -> list[tuple[Location, str]]:
    """Fields of the models that the file has in another form: a topic's name is its key, the root is its folder."""
    at: list[Location] = [(key,) for key in ("root", "file") if isinstance(raw, dict) and key in raw]
    match raw:
        case {"topics": dict() as topics}:
            at += [
                ("topics", name, key)
                for name, topic in topics.items()
                if isinstance(topic, dict)
                for key in ("name", "line", "value_schema")
                if key in topic
            ]
    return [(loc, "no such key. Remove it") for loc in at]
