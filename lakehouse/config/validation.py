"""Validation of lakehouse.yaml. Each fault is a location and a message: the problem, and then the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lakehouse.config import checks, sensitive
from lakehouse.config.base import Fault, Location
from lakehouse.config.environment import SETTINGS, SYSTEMS
from lakehouse.config.known_columns import columns_of_files
from lakehouse.config.model import Config, Route, TableNames, Topic
from lakehouse.config.settings import IGNORED_KEYS
from lakehouse.config.sources import missing_file
from lakehouse.config.type_faults import setting_fault
from lakehouse.core.tables import layout, naming
from lakehouse.core.text import did_you_mean
from lakehouse.formats import format_of
from lakehouse.formats.format import RegisteredFormat

if TYPE_CHECKING:
    pass


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
    return [*faults, *_cycles(config), *_unknown_types(config), *_misplaced_settings(config)]


def _misplaced_settings(config: Config) -> Iterator[Fault]:
    """Yield mappings at other keys than that of settings of a client library, and other values at that key."""
    for environment, systems in config.environments.items():
        for name, settings in systems.items():
            for key, value in settings.items():
                at = ("environments", environment, name, key)
                if isinstance(value, dict) and key != SETTINGS:
                    yield at, setting_fault(at, value)
                elif key == SETTINGS and not isinstance(value, dict):
                    yield at, "must be a mapping (`key: value`). Write the client's settings, each as NAME: VALUE"


def _unknown_types(config: Config) -> Iterator[Fault]:
    """Yield the types of systems that neither this project nor another distribution has."""
    for environment, systems in config.environments.items():
        for name, settings in systems.items():
            known, type_ = SYSTEMS[name].types, settings.get("type")
            if known and isinstance(type_, str) and type_ not in known:
                problem = f"unknown type '{type_}'.{did_you_mean(type_, known)} Known types: {', '.join(known)}"
                yield ("environments", environment, name, "type"), problem


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


_PLACEHOLDER_PART = re.compile(r"(?<!\{)\{\w*([.\[][^}]*)\}")


def _is_pattern(text: str) -> bool:
    try:
        return re.compile(text) is not None
    except re.error:
        return False


def _route_faults(name: str, route: Route, config: Config) -> Iterator[Fault]:
    """Yield faults of a route, which do not depend on the topics that exist."""
    if name in config.topics:
        yield (), "an entry of 'topics' has the same name. Rename the route"
    if not route.source.is_external or route.kafka_topic:
        yield (), "a route matches existing topics only. Remove 'source' and 'kafka_topic'"
    try:
        groups = dict.fromkeys(re.compile(route.pattern).groupindex, "x")
        route.table_name.format_map(groups)
        if placed := _PLACEHOLDER_PART.search(route.table_name):
            yield ("table",), f"the template reads '{placed[1]}' of a group. Write {{name}} of a group only"
    except re.error as error:
        # The pattern of names in shells, which is the usual mistake, matches more than one may expect otherwise.
        written = re.sub(r"(?<![.\])\w])\*", ".*", route.pattern)
        remedy = f"Write '{written}'" if written != route.pattern and _is_pattern(written) else "Correct the pattern"
        yield ("pattern",), f"not a valid regular expression: {error}. {remedy}"
    except KeyError as error:
        yield ("table",), f"the template names {error}, which is not a group of 'pattern'. Add (?P<name>…) to it"
    except (ValueError, IndexError, AttributeError, TypeError) as error:
        yield ("table",), f"not a valid template: {error}. Write the groups of 'pattern' as {{name}}"


def _schema_file_faults(config: Config, entry: Topic) -> Iterator[Fault]:
    """Yield why a schema file cannot be used: without its content the table would have one column of text."""
    file = entry.value_schema_file
    if file and (problem := missing_file(config, file)):
        yield ("value_schema_file",), problem
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
    if topic.maintenance == "external":
        yield from _external_maintenance_faults(topic)
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
    if topic.mode != "debezium" and "debezium" in topic.model_fields_set:
        yield ("debezium",), "only change events have these settings. Set 'mode: debezium', or remove this key"
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


def _external_maintenance_faults(topic: Topic) -> Iterator[Fault]:
    """Yield settings of the maintenance that another service does."""
    if not topic.is_ingested:
        yield ("maintenance",), "Tableflow maintains its tables itself. Remove 'maintenance'"
    declared = topic.model_fields_set, topic.retention.model_fields_set
    set_here: list[Location] = [("target_file_mb",)] if "target_file_mb" in declared[0] else []
    set_here += [("retention", key) for key in ("snapshots", "min_snapshots") if key in declared[1]]
    for location in set_here:
        yield location, "it has no effect with 'maintenance: external'. Remove it, and set it in that service"


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
