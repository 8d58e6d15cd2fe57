"""lakehouse.yaml as validated, immutable models. Every error names file, line, key and remedy."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BeforeValidator, Field, PlainSerializer, ValidationError, WithJsonSchema

from lakehouse import avro, checks, layout, metadata, naming
from lakehouse.checks import CHECKS, Check, RowCheck
from lakehouse.deployment import Deployment
from lakehouse.errors import ConfigError, SchemaError
from lakehouse.locate import Location, dotted, duplicate_keys, line_of
from lakehouse.model import Model

LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C, where PyYAML has it: ten times faster."""

PROJECT = Path(__file__).resolve().parent.parent
"""The folder that holds lakehouse.yaml, schemas/ and workspace.yaml."""


class EnvRef(Model):
    """A value that an environment variable holds: the only way to write a secret."""

    env: str = Field(min_length=1, description="Name of the environment variable.")
    default: str | int | None = Field(
        None, description="Value where the variable is not set. Without, it has to be set."
    )


Setting = str | int | EnvRef


class Datagen(Model):
    """A source of synthetic records, as Confluent's Datagen connector makes them."""

    type: Literal["datagen"]
    schema_file: str = Field(
        description="Avro schema with the generator's hints (`arg.properties`), relative to lakehouse.yaml."
    )
    records_per_second: float = Field(50, gt=0, description="Rate after the initial records, in records a second.")
    initial_records: int = Field(0, ge=0, description="Records the topic holds before the steady rate begins.")


class Derived(Model):
    """A topic that Spark computes from another topic's published table."""

    type: Literal["derived"]
    from_topic: str = Field(alias="from", description="The declared topic whose table is read.")
    transform: str = Field(
        pattern=r"^[\w.]+:\w+$", description="`module:function`, a plain function DataFrame → DataFrame."
    )
    group_by: tuple[str, ...] = Field(
        (),
        description="Columns of the source table. All rows of each group that new rows touch are given to `transform`. "
        "Without, only the new rows are, each once.",
    )
    key_schema_file: str = Field(
        "", description="Avro schema of the message key, relative to lakehouse.yaml. Without, it is made from the rows."
    )
    value_schema_file: str = Field(
        "", description="Avro schema of the message value, likewise. Without, it is made from the rows."
    )


class Existing(Model):
    """A topic that somebody else creates and fills: it is read, never changed."""

    type: Literal["existing"] = "existing"


Source = Annotated[Datagen | Derived | Existing, Field(discriminator="type")]
Columns = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else v)
]


Format = Literal["avro", "json_schema", "protobuf", "json", "string", "int", "long", "bytes"]
REGISTERED: tuple[Format, ...] = ("avro", "json_schema", "protobuf")
"""Formats whose schemas are in the schema registry."""
SCALARS: tuple[Format, ...] = ("string", "int", "long", "bytes")
"""Formats that are one column."""


class Metadata(Model):
    """Which metadata columns a table has."""

    columns: tuple[metadata.Name, ...] = Field(
        ("partition", "offset", "timestamp", "schema_id"),
        description="Metadata columns, in order; partition and offset are always there.",
    )
    naming: metadata.Naming = Field(
        "portable", description="`portable`: kafka_offset. `confluent`: $$offset, as Tableflow names them."
    )

    @cached_property
    def names(self) -> dict[str, str]:
        """The columns' names in the table, by the names inside this project."""
        return metadata.names(dict.fromkeys((*self.columns, *metadata.REQUIRED)), self.naming)


def _duration(value: Any) -> Any:
    """`30d`, `12h` or `90m` as a duration."""
    found = re.fullmatch(r"(\d+)([dhm])", value) if isinstance(value, str) else None
    if found is None:
        return value
    return timedelta(**{{"d": "days", "h": "hours", "m": "minutes"}[found[2]]: int(found[1])})


def _written(value: timedelta) -> str:
    """As `_duration` reads it, in the largest unit that is exact."""
    minutes = round(value.total_seconds() / 60)
    unit, length = next((unit, n) for unit, n in (("d", 1440), ("h", 60), ("m", 1)) if minutes % n == 0)
    return f"{minutes // length}{unit}"


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(_written, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^\d+[dhm]$"}),
]


class Retention(Model):
    """How long maintenance keeps what. Durations are written `30d`, `12h`, `90m`."""

    rows: Duration | None = Field(None, description="Rows whose Kafka timestamp is older are deleted; none by default.")
    snapshots: Duration = Field(
        "7d", description="Older snapshots are forgotten: how far time travel goes.", validate_default=True
    )
    min_snapshots: int = Field(10, ge=1, description="So many snapshots are kept, however old.")


class Topic(Model):
    """One Kafka topic and the table it becomes."""

    description: str = ""
    owners: tuple[Annotated[str, Field(pattern=r"^(team:[\w-]+|[^@\s]+@[^@\s]+\.[^@\s]+)$")], ...] = Field(
        (), description="Who answers for it: `team:trading` or an e-mail address."
    )
    source: Source = Existing()
    kafka_topic: str = Field("", description="Name of the topic in Kafka, where it is not the name of this entry.")
    table_name: str = Field(
        "",
        alias="table",
        pattern=r"^([a-z][a-z0-9_]{0,127})?$",
        description="Name of the table, where it is not made from the topic's.",
    )
    partitions: int = Field(6, ge=1, description="Partitions the topic is created with.")
    engine: Literal["spark", "tableflow"] = Field(
        "spark",
        description="Who makes it a table: Spark, or Confluent's Tableflow, whose table is observed and checked.",
    )
    start: str = Field(
        "earliest",
        pattern=r"^(earliest|latest|\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))$",
        description="Where the first batch begins: `earliest`, `latest` or a time such as `2026-01-31T00:00:00Z`.",
    )
    mode: Literal["append", "dedup", "upsert", "debezium"] = Field(
        "append",
        description="`append`: one row a record. `dedup`: the first record of each key. `upsert`: the last record of "
        "each key; null deletes. `debezium`: the same from change events (before, after, op).",
    )
    key: Columns = Field((), description="Columns that identify a row; never null. Every mode but append needs them.")
    key_format: Format | None = Field(
        None, description="How the message key is encoded. Its columns join the value's. Left out: not decoded."
    )
    value_format: Format = Field("avro", description="How the message value is encoded.")
    value_schema_file: str = Field(
        "", description="For `json`: a JSON Schema of the value, relative to lakehouse.yaml. Without, one text column."
    )
    subject_strategy: Literal["topic", "record", "topic_record"] = Field(
        "topic", description="How producers name subjects: TopicNameStrategy, RecordName… or TopicRecordName…"
    )
    record: str = Field(
        "",
        description="Full name of the record type that becomes this table, where a topic holds several; records of "
        "other types are left to the entries that name them.",
    )
    errors: Literal["suspend", "skip", "log"] = Field(
        "suspend",
        description="A record that cannot be decoded: `suspend` stops before its batch, `skip` counts and drops it, "
        "`log` keeps it in the table's dead letters.",
    )
    dead_letter_topic: str = Field("", description="With `log`: a topic that gets the dead letters, too.")
    on_incompatible: Literal["stop", "dead_letter", "new_table"] = Field(
        "stop",
        description="A schema that does not fit the table: `stop`; `dead_letter` for its records; or `new_table`, "
        "called <table>__v2, beside the old one.",
    )
    checks: dict[str, Check] = Field({}, description="What must hold of the rows, by a name of your own.")
    sensitive: tuple[str, ...] = Field(
        (), description="Columns whose values are shown nowhere: of a failing row, only the key is."
    )
    metadata: Metadata = Metadata()
    partition_by: tuple[str, ...] = Field(
        (), description="Partitions of the table: columns or transforms, such as `day(kafka_timestamp)`."
    )
    sort_by: tuple[str, ...] = Field((), description="Order of rows in files, such as `symbol` or `price desc`.")
    retention: Retention = Retention()
    target_file_mb: int = Field(128, ge=1, description="Size that maintenance brings data files to, in megabytes.")
    max_records_per_batch: int = Field(5_000_000, ge=1, description="Most records a single commit takes.")
    max_lag_seconds: int = Field(
        900,
        ge=1,
        description="A table is stale when anything has waited longer than this for its next hop, in seconds.",
    )
    when_stale: Literal["tell", "run"] = Field(
        "tell",
        description="What happens to a stale table: its check fails, and with `run` a run is started that mends it.",
    )
    max_idle_seconds: int | None = Field(
        None, ge=60, description="The producer is thought to have stopped when the topic did not move for so long."
    )
    name: str = Field("", exclude=True, json_schema_extra={"readOnly": True}, description="Set from the key above.")
    line: int = Field(0, exclude=True, json_schema_extra={"readOnly": True}, description="Where it stands in its file.")
    value_schema: str = Field(
        "", exclude=True, json_schema_extra={"readOnly": True}, description="Content of value_schema_file."
    )

    @property
    def table(self) -> str:
        """Name of the Iceberg table (and, in upper case, of the Snowflake table)."""
        return self.table_name or naming.table_name(self.name)

    @property
    def topic(self) -> str:
        """Name of the topic in Kafka."""
        return self.kafka_topic or self.name

    @property
    def target_file_bytes(self) -> int:
        """The size of a data file."""
        return self.target_file_mb * 1_000_000

    @property
    def decoded_key(self) -> Format | None:
        """The format that keys are decoded with: an upsert's null value has nothing else to say what it deletes."""
        return self.key_format or ("string" if self.mode == "upsert" else None)

    @property
    def quarantine(self) -> dict[str, RowCheck]:
        """The checks whose failing rows become dead letters."""
        found = {name: check for name, check in self.checks.items() if check.severity == "quarantine"}
        return {name: check for name, check in found.items() if isinstance(check, RowCheck)}

    @property
    def keeps_dead_letters(self) -> bool:
        """Whether there is a table of dead letters."""
        return self.errors == "log" or bool(self.quarantine)

    @property
    def replaces(self) -> bool:
        """Whether a record replaces the row of its key."""
        return self.mode in ("upsert", "debezium")

    def subject(self, side: Literal["key", "value"]) -> str:
        """The subject of the registry that holds the schemas of keys or values (Confluent, Subject name strategy)."""
        if side == "value" and self.record:
            return {"record": self.record, "topic_record": f"{self.topic}-{self.record}"}.get(
                self.subject_strategy, f"{self.topic}-value"
            )
        return f"{self.topic}-{side}"


class Route(Topic):
    """Topics by a pattern, each with a table of its own: a new one becomes a table without a change here."""

    pattern: str = Field(description="Regular expression that the whole name of a topic matches.")
    table_name: str = Field(
        "",
        alias="table",
        description="Template of a table's name, with the pattern's named groups, such as `shop_{entity}`. "
        "Without, the name is made from the topic's.",
    )

    def routed(self, topic: str) -> Topic | None:
        """The topic of that name as an entry of its own; None when the pattern does not match it.

        Raises: ConfigError when the template makes no table name of it.
        """
        found = re.fullmatch(self.pattern, topic)
        if found is None or topic.startswith("__"):
            return None
        table = naming.table_name(self.table_name.format_map(found.groupdict()))
        settings = self.model_dump(exclude={"pattern", "table_name"}, by_alias=True)
        try:
            return Topic.model_validate({**settings, "name": topic, "value_schema": self.value_schema, "table": table})
        except ValidationError as error:
            said = f"'{table}' is no name of a table"
            raise ConfigError(f"Route '{self.name}': topic '{topic}': {said}. Correct the template") from error


System = Literal[
    "kafka",
    "schema_registry",
    "spark",
    "catalog",
    "glue",
    "snowflake",
    "alerts",
    "open_lineage",
    "athena",
    "rest_catalog",
]


class Config(Model):
    """The whole of lakehouse.yaml."""

    namespace: str = Field(
        pattern=r"^[a-z][a-z0-9_]{0,127}$", description="Iceberg namespace, Glue database and Snowflake schema."
    )
    topics: dict[str, Topic]
    routes: dict[str, Route] = Field(
        {}, description="Topics by pattern. A topic that has an entry of its own keeps it."
    )
    environments: dict[str, dict[System, dict[str, Setting]]] = Field(
        description="Per environment and system: the fields of that system's resource, as values or `{env: NAME}`."
    )
    deployments: dict[str, Deployment] = Field(
        {}, description="By environment: the cloud set-up that `lakehouse deploy` makes and takes away."
    )
    file: Path = Field(
        PROJECT / "lakehouse.yaml", exclude=True, json_schema_extra={"readOnly": True}, description="This file."
    )
    root: Path = Field(PROJECT, exclude=True, json_schema_extra={"readOnly": True}, description="Folder of this file.")

    def topic(self, name: str) -> Topic:
        """The declared topic of that name.

        Raises: ConfigError when there is none, with the nearest name.
        """
        if name not in self.topics:
            for topic in self.routed([name]):
                return topic
            raise ConfigError(f"Topic '{name}' is not declared in lakehouse.yaml.{_did_you_mean(name, self.topics)}")
        return self.topics[name]

    @property
    def by_spark(self) -> dict[str, Topic]:
        """The topics that Spark makes tables of, and not Tableflow."""
        return {name: topic for name, topic in self.topics.items() if topic.engine == "spark"}

    def deployment(self, environment: str) -> Deployment:
        """The cloud set-up of an environment.

        Raises: ConfigError when it has none.
        """
        if environment not in self.deployments:
            raise ConfigError(
                f"Environment '{environment}' has no deployment in lakehouse.yaml. Add one, such as "
                f"deployments: {{{environment}: {{name: production, account: '123456789012', region: us-east-1}}}}"
            )
        return self.deployments[environment]

    def routed(self, names: Iterable[str]) -> Iterator[Topic]:
        """The topics of those names that routes have and no entry does, each by the first route that matches."""
        for name in names:
            found = (route.routed(name) for route in self.routes.values() if name not in self.topics)
            yield from [topic for topic in found if topic][:1]

    def text(self, file: str) -> str:
        """The content of a file that the configuration names, such as a schema."""
        return (self.root / file).read_text()


def config_path() -> Path:
    """LAKEHOUSE_CONFIG, or lakehouse.yaml of this project."""
    return Path(os.environ.get("LAKEHOUSE_CONFIG") or PROJECT / "lakehouse.yaml")


def load(path: Path | None = None) -> Config:
    """Read and validate the configuration.

    Raises: ConfigError, one line a fault, each as `file:line: key: what is wrong. Remedy`.
    """
    path = path or config_path()
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read ({said}). Set LAKEHOUSE_CONFIG to your file") from error
    try:
        node, raw = yaml.compose(text, Loader=LOADER), yaml.load(text, Loader=LOADER) or {}  # noqa: S506
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ConfigError(f"{path.name}{line}: not valid YAML: {problem}. Correct the line") from error
    faults = duplicate_keys(node) + _set_elsewhere(raw)
    if not faults:
        for kind in ("topics", "routes"):
            if isinstance(raw, dict) and isinstance(raw.get(kind), dict):
                raw[kind] = {
                    name: _named(name, entry or {}, path.parent, line_of(node, (kind, name)))
                    if isinstance(entry, dict | None)
                    else entry
                    for name, entry in raw[kind].items()
                }
        try:
            config = Config.model_validate(
                {**raw, "root": path.resolve().parent, "file": path.resolve()} if isinstance(raw, dict) else raw
            )
            faults = list(_semantic_faults(config))
        except ValidationError as error:
            faults = [_fault(details) for details in error.errors()]
    if faults:
        raise ConfigError("\n".join(f"{path.name}:{line_of(node, loc)}: {dotted(loc)}: {said}" for loc, said in faults))
    return config


def _named(name: str, topic: dict[str, Any], folder: Path, line: int) -> dict[str, Any]:
    """A topic's settings, with its name, its line and the schema it points to. A file that is missing is told of
    later."""
    file = folder / str(topic.get("value_schema_file", ""))
    return {**topic, "name": name, "line": line, "value_schema": file.read_text() if file.is_file() else ""}


def json_schema() -> str:
    """The JSON Schema of lakehouse.yaml, as docs/lakehouse.schema.json holds it for editors."""
    schema = Config.model_json_schema()
    for model in (schema, schema["$defs"]["Topic"], schema["$defs"]["Route"]):
        model["properties"] = {k: v for k, v in model["properties"].items() if not v.get("readOnly")}
    for name in ("Topic", "Route"):
        key = schema["$defs"][name]["properties"]["key"]
        key["anyOf"] = [{"type": "string"}, {"type": key.pop("type"), "items": key.pop("items")}]
    return json.dumps(schema, indent=2) + "\n"


def _semantic_faults(config: Config) -> list[tuple[Location, str]]:
    """What the types cannot say: names that clash, references that lead nowhere, keys that are missing."""
    faults: list[tuple[Location, str]] = []
    seen: dict[str, str] = {}
    tables = {topic.table for topic in config.topics.values()}
    for name, route in config.routes.items():
        found = [*_route_faults(name, route, config), *_topic_faults(route, tables)]
        faults += [(("routes", name, *where), said) for where, said in found]
    for name, topic in config.topics.items():
        at = ("topics", name)
        if not naming.is_topic_name(topic.topic):
            faults.append((at, "not a Kafka topic name. Use letters, digits, '.', '_' and '-', at most 249"))
        if other := seen.get(topic.table):
            faults.append((at, f"becomes table '{topic.table}', and so does topic '{other}'. Rename one of them"))
        seen.setdefault(topic.table, name)
        if topic.table.endswith(naming.DEAD_LETTERS):
            faults.append((at, f"'{naming.DEAD_LETTERS}' names dead-letter tables. Rename the topic"))
        faults += [((*at, *where), said) for where, said in _topic_faults(topic, tables)]
        if topic.value_schema_file:
            faults += _missing_files(config, at, {"value_schema_file": topic.value_schema_file})
        match topic.source:
            case Datagen(schema_file=file):
                faults += _missing_files(config, (*at, "source"), {"schema_file": file})
                if len(topic.key) != 1 or topic.key_format not in (None, "string"):
                    faults.append(((*at, "source"), "datagen writes one string key. Add 'key: <one column>'"))
                else:
                    faults += _schema_faults(config, (*at, "source", "schema_file"), file, topic.key)
            case Derived() as source:
                if (made := config.topics.get(source.from_topic)) and made.engine == "tableflow":
                    said = f"'{source.from_topic}' is made a table by Tableflow; Spark derives from its own. Change one"
                    faults.append(((*at, "source", "from"), said))
                files = {"key_schema_file": source.key_schema_file, "value_schema_file": source.value_schema_file}
                for field, file in files.items():
                    if file:
                        faults += _missing_files(config, (*at, "source"), {field: file})
                        key = topic.key if field == "key_schema_file" else ()
                        faults += _schema_faults(config, (*at, "source", field), file, key)
                here = (*at, "source", "from")
                if source.from_topic not in config.topics:
                    hint = _did_you_mean(source.from_topic, config.topics)
                    faults.append((here, f"'{source.from_topic}' is not a topic declared in this file.{hint}"))
                elif config.topics[source.from_topic].mode != "append":
                    faults.append((here, f"'{source.from_topic}' is not an append table. Derive from one that is"))
                if source.group_by and (topic.mode != "upsert" or topic.key_format != "avro"):
                    faults.append((at, "a group replaces its row. Set 'mode: upsert' and 'key_format: avro'"))
                if topic.key_format not in (None, "avro"):
                    faults.append(((*at, "key_format"), "derived messages have Avro keys or none. Write avro"))
    return faults


def _route_faults(name: str, route: Route, config: Config) -> Iterator[tuple[Location, str]]:
    """What is wrong with a route whatever topics there are."""
    if name in config.topics:
        yield (), "is the name of a topic's entry, too. Rename the route"
    if not isinstance(route.source, Existing) or route.kafka_topic:
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
    if topic.decoded_key in SCALARS and topic.mode == "upsert" and len(topic.key) > 1:
        yield ("key",), f"a {topic.decoded_key} message key is one column. Name one, or set 'key_format: avro'"
    if len(set(topic.key)) < len(topic.key):
        yield ("key",), "names a column twice. Remove one"
    if topic.subject_strategy != "topic" and not topic.record:
        yield ("subject_strategy",), "names subjects after record types. Add 'record: <full name>'"
    if topic.record and topic.value_format not in REGISTERED:
        yield ("record",), f"{topic.value_format} values have no record type. Remove it"
    if topic.value_schema_file and topic.value_format != "json":
        yield ("value_schema_file",), f"{topic.value_format} values bring their schema. Remove it"
    if topic.mode == "debezium" and topic.value_format in (*SCALARS, "json") and not topic.value_schema_file:
        yield ("value_format",), "change events need a schema. Use avro, json_schema, protobuf, or a value_schema_file"
    if topic.dead_letter_topic and topic.errors != "log":
        yield ("dead_letter_topic",), "there are dead letters with 'errors: log' only. Set it"
    for where, terms in (("partition_by", topic.partition_by), ("sort_by", topic.sort_by)):
        for term in terms:
            try:
                layout.parse(term, ordered=where == "sort_by")
            except ValueError as error:
                yield (where,), str(error)


def _missing_files(config: Config, at: Location, files: dict[str, str]) -> list[tuple[Location, str]]:
    return [
        ((*at, field), f"file '{file}' does not exist in {config.root}. Correct the path")
        for field, file in files.items()
        if not (config.root / file).is_file()
    ]


def _schema_faults(config: Config, at: Location, file: str, key: tuple[str, ...] = ()) -> list[tuple[Location, str]]:
    """A schema file that is there must be a record, and have the columns of the topic's key."""
    if not (config.root / file).is_file():
        return []
    try:
        fields = avro.field_names(config.text(file))
    except (ValueError, SchemaError) as error:
        return [(at, f"'{file}' is not an Avro record schema: {error}. Correct the file")]
    missing = [column for column in key if column not in fields]
    return [
        (at, f"'{file}' has no field '{column}', which 'key' names.{_did_you_mean(column, fields)}")
        for column in missing
    ]


def _fault(details: dict[str, Any]) -> tuple[Location, str]:
    variants = ("datagen", "derived", "existing", "EnvRef", "str", "int")
    match details["loc"]:
        case (kind, name, "checks", check, _, *rest):
            loc: Location = (kind, name, "checks", check, *rest)
        case at:
            loc = tuple(part for part in at if part not in variants)
    match details["type"]:
        case "extra_forbidden":
            known = _fields_at(loc[:-1], details["loc"])
            return loc, f"no such key.{_did_you_mean(str(loc[-1]), known)} Known keys: {', '.join(known)}"
        case "missing":
            return loc, "missing. Add it"
        case "union_tag_not_found":
            return loc, f"has no 'type'. Add one of {', '.join(sorted(_types(loc)))}"
        case "union_tag_invalid":
            types, word = sorted(_types(loc)), str(details["ctx"]["tag"])
            return (*loc, "type"), f"'{word}' is none.{_did_you_mean(word, types)} Known types: {', '.join(types)}"
        case _:
            message = details["msg"][0].lower() + details["msg"][1:]
            return loc, f"{message} (found {details['input']!r}). Correct the value"


def _fields_at(loc: Location, raw: Location) -> list[str]:
    """The keys that lakehouse.yaml knows at this place."""
    match loc:
        case ():
            model: type[Model] = Config
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


def _types(loc: Location) -> dict[str, type[Model]]:
    """The models that a `type` chooses from at this place, by it."""
    kinds: tuple[type[Model], ...] = CHECKS if "checks" in loc else (Datagen, Derived, Existing)
    return {get_args(kind.model_fields["type"].annotation)[0]: kind for kind in kinds}


def _did_you_mean(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


def _set_elsewhere(raw: Any) -> list[tuple[Location, str]]:
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
