"""The content of lakehouse.yaml: topics, routes, environments and deployments."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationError, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from lakehouse import formats
from lakehouse.config import checks as check_types
from lakehouse.config import sources
from lakehouse.config.base import ConfigModel, one_of
from lakehouse.config.checks import Check, RowCheck
from lakehouse.config.deployment import Deployment
from lakehouse.config.environment import SettingValue, System
from lakehouse.config.sources import Existing, Source
from lakehouse.core.errors import ConfigError
from lakehouse.core.offsets.bookmark import TOPIC as BOOKMARKS
from lakehouse.core.tables import metadata_columns, naming
from lakehouse.core.tables.naming import TableRef
from lakehouse.core.text import did_you_mean
from lakehouse.formats.primitive_formats import StringFormat

if TYPE_CHECKING:
    DeclaredCheck = Check
    DeclaredSource = Source
    FormatName = str
    MetadataName = str
else:
    DeclaredCheck = one_of(check_types.registered().values())
    DeclaredSource = one_of(sources.registered().values())
    FormatName = Literal[tuple(formats.registered())]
    MetadataName = Literal[tuple(metadata_columns.registered())]


Columns = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else v)
]


class Metadata(ConfigModel):
    """Selection and names of the metadata columns of a table."""

    columns: tuple[MetadataName, ...] = Field(
        ("partition", "offset", "timestamp", "schema_id"),
        description="Metadata columns, in order. `partition` and `offset` are always present.",
    )
    naming: metadata_columns.Naming = Field(
        "portable",
        description="Set of names: `portable` (kafka_offset), `confluent` ($$offset, which Tableflow calls DEFAULT) or "
        "`confluent_portable` (cflt_metadata_offset, which Tableflow calls PORTABLE). With `engine: tableflow`, one of "
        "the latter two; by default `confluent_portable`. A table keeps its set: another one is refused.",
    )

    @cached_property
    def names(self) -> dict[str, str]:
        """The names of the columns in the table, by their internal names."""
        return metadata_columns.names(dict.fromkeys((*self.columns, *metadata_columns.REQUIRED)), self.naming)

    @property
    def place(self) -> tuple[str, str]:
        """The names of the columns in the table that have a record's partition and offset."""
        return self.names["kafka_partition"], self.names["kafka_offset"]


MAX_DAYS = 36_500
"""Maximum duration in days, before which the calendar has dates."""


def _duration(value: object) -> object:
    """Parse a duration such as `30d`, `12h` or `90m`. A number has no unit: pydantic would read it as seconds."""
    if isinstance(value, timedelta):
        return value
    match = re.fullmatch(r"(\d{1,9})([dhm])", value) if isinstance(value, str) else None
    minutes = {"d": 1440, "h": 60, "m": 1}[match[2]] * int(match[1]) if match else 0
    if not 1 <= minutes <= MAX_DAYS * 1440:
        raise PydanticCustomError(
            "duration", f"must be days, hours or minutes such as 30d, 12h or 90m, from 1m to {MAX_DAYS}d"
        )
    return timedelta(minutes=minutes)


def _written(value: timedelta) -> str:
    """Format a duration for `_duration`, in the largest unit that is exact."""
    minutes = round(value.total_seconds() / 60)
    unit, length = next((unit, n) for unit, n in (("d", 1440), ("h", 60), ("m", 1)) if minutes % n == 0)
    return f"{minutes // length}{unit}"


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(_written, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^\d+[dhm]$"}),
]


class Retention(ConfigModel):
    """Retention of records, rows and snapshots. Durations are written `30d`, `12h`, `90m`."""

    records: Duration | None = Field(
        None, description="Time that Kafka keeps the records of a topic that is created. Default: Kafka's own setting."
    )
    rows: Duration | None = Field(
        None,
        description="Age of the Kafka timestamp at which rows are deleted. Default: rows are never deleted. Not for a "
        "topic from which another is derived.",
    )
    snapshots: Duration = Field(
        "7d", description="Age at which snapshots expire, which ends time travel to them.", validate_default=True
    )
    min_snapshots: int = Field(10, ge=1, description="Number of newest publications that never expire.")


class Topic(ConfigModel):
    """A Kafka topic and the table that contains its records."""

    description: str = Field("", description="Description of the asset and the table.")
    owners: tuple[Annotated[str, Field(pattern=r"^(team:[\w-]+|[^@\s]+@[^@\s]+\.[^@\s]+)$")], ...] = Field(
        (), description="Owners who are notified: `team:trading` or an e-mail address."
    )
    source: DeclaredSource = Field(Existing(), description="Producer of the records, by its `type`.")
    kafka_topic: str = Field("", description="Name of the topic in Kafka. Default: the name of this entry.")
    table_name: str = Field(
        "",
        alias="table",
        pattern=r"^([a-z][a-z0-9_]{0,127})?$",
        description="Name of the table: a-z, 0-9 and _, at most 128. Default: derived from the topic's name.",
    )
    partitions: int = Field(6, ge=1, description="Number of partitions with which the topic is created.")
    engine: Literal["spark", "tableflow"] = Field(
        "spark",
        description="Writer of the table: Spark, or Confluent's Tableflow, whose table is only observed and checked.",
    )
    start: str = Field(
        "earliest",
        pattern=r"^(earliest|latest|\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))$",
        description="Start of the first batch: `earliest`, `latest` or a time such as `2026-01-31T00:00:00Z`.",
    )
    mode: Literal["append", "dedup", "upsert", "debezium"] = Field(
        "append",
        description="`append`: one row per record. `dedup`: the first record of each key. `upsert`: the last record of "
        "each key; a null value deletes the row. `debezium`: like upsert, from change events (before, after, op).",
    )
    key: Columns = Field((), description="Columns that identify a row; never null. Required by every mode but append.")
    key_format: FormatName | None = Field(
        None, description="Format of the message key, whose columns are added to the value's. Default: not decoded."
    )
    value_format: FormatName = Field("avro", description="Format of the message value.")
    value_schema_file: str = Field(
        "", description="JSON Schema of `json` values, relative to lakehouse.yaml. Default: one column with the text."
    )
    subject_strategy: Literal["topic", "record", "topic_record"] = Field(
        "topic", description="Subject names of the producers: TopicNameStrategy, RecordName… or TopicRecordName…"
    )
    record: str = Field(
        "",
        description="Full name of the record type that this table contains, if the topic has several types. Records "
        "of other types are left to the entries that name them.",
    )
    errors: Literal["suspend", "skip", "log"] = Field(
        "suspend",
        description="Reaction to a record that cannot be decoded: `suspend` stops before its batch, `skip` counts and "
        "drops it unless it aborts the Spark job, `log` stores it in the table's dead letters.",
    )
    dead_letter_topic: str = Field("", description="With `errors: log`: topic to which dead letters are produced too.")
    on_incompatible: Literal["stop", "dead_letter", "new_table"] = Field(
        "stop",
        description="Reaction to a schema that does not fit the table: `stop`; `dead_letter` for its records; or "
        "`new_table`, which continues in a new table <table>__v2.",
    )
    checks: dict[str, DeclaredCheck] = Field({}, description="Checks of the rows, by a name of your choice.")
    sensitive: tuple[str, ...] = Field(
        (),
        description="Columns, or fields as dotted paths, whose values are shown only in the table itself, under any "
        "name that they had (docs/checks.md, Sensitive columns).",
    )
    metadata: Metadata = Field(Metadata(), description="Metadata columns of the table.")
    partition_by: tuple[str, ...] = Field(
        (), description="Partitioning of the table: columns or transforms, such as `day(kafka_timestamp)`."
    )
    sort_by: tuple[str, ...] = Field((), description="Sort order of rows in files, such as `symbol` or `price desc`.")
    retention: Retention = Field(Retention(), description="Retention of records, rows and snapshots.")
    target_file_mb: int = Field(128, ge=1, description="Size of data files after compaction, in megabytes.")
    continuous: bool = Field(
        False, description="The job `stream` ingests it continuously, with seconds of latency, instead of single runs."
    )
    max_records_per_batch: int = Field(5_000_000, ge=1, description="Maximum number of records of a batch.")
    max_lag_seconds: int = Field(
        900, ge=1, description="Maximum lag of the table and of each reader, in seconds. Beyond it, the table is stale."
    )
    on_stale: Literal["alert", "run"] = Field(
        "alert",
        description="Reaction to a stale table: `alert` fails its check, and `run` also starts a run that updates it.",
    )
    max_idle_seconds: int | None = Field(
        None, ge=60, description="Seconds without new records after which the producer is reported as stopped."
    )
    name: str = Field("", exclude=True, json_schema_extra={"readOnly": True}, description="The key of this entry.")
    line: int = Field(0, exclude=True, json_schema_extra={"readOnly": True}, description="Line of the entry.")
    value_schema: str = Field(
        "", exclude=True, json_schema_extra={"readOnly": True}, description="Content of value_schema_file."
    )

    @model_validator(mode="before")
    @classmethod
    def _name_as_tableflow_does(cls, entry: object) -> object:
        """Complete an entry whose table Tableflow creates with Tableflow's names of metadata columns."""
        if not isinstance(entry, dict) or entry.get("engine") != "tableflow":
            return entry
        metadata = entry.get("metadata", {})
        return (
            entry | {"metadata": {"naming": "confluent_portable", **metadata}} if isinstance(metadata, dict) else entry
        )

    @property
    def is_ingested(self) -> bool:
        """True if ingestion writes the table: each snapshot records the offsets up to which it has the topic's records.

        Otherwise Confluent's Tableflow writes it, to a catalog of its own and without offsets.
        """
        return self.engine == "spark"

    @property
    def table(self) -> str:
        """The name of the Iceberg table and, in upper case, of the Snowflake table."""
        return self.table_name or naming.table_name(self.name)

    def table_in(self, namespace: str) -> TableRef:
        """Return the table that the first records go to. Another one may continue it (`Catalog.chain`)."""
        return TableRef(namespace, self.table)

    @property
    def topic(self) -> str:
        """The name of the topic in Kafka."""
        return self.kafka_topic or self.name

    @property
    def target_file_bytes(self) -> int:
        """The target size of a data file in bytes."""
        return self.target_file_mb * 1_000_000

    @property
    def deletes_rows(self) -> bool:
        """True if rows are deleted at some age."""
        return self.retention.rows is not None

    @property
    def effective_key_format(self) -> str | None:
        """The format of keys; upserts decode them always, because a null value does not identify the row to delete."""
        return self.key_format or (StringFormat.name if self.mode == "upsert" else None)

    @property
    def quarantine(self) -> dict[str, RowCheck]:
        """The checks whose failing rows become dead letters, by name."""
        checks = {name: check for name, check in self.checks.items() if check.severity == "quarantine"}
        return {name: check for name, check in checks.items() if isinstance(check, RowCheck)}

    @property
    def keeps_dead_letters(self) -> bool:
        """True if the topic has a table of dead letters."""
        return self.errors == "log" or bool(self.quarantine)

    @property
    def min_snapshot_age(self) -> timedelta:
        """The time for which snapshots must be kept, since a reader within `max_lag_seconds` may still use them."""
        return max(2 * timedelta(seconds=self.max_lag_seconds), timedelta(hours=1))

    @property
    def replaces_rows(self) -> bool:
        """True if a record replaces the row of its key."""
        return self.mode in ("upsert", "debezium")

    def visible(self, text: str) -> str:
        """Return a system's text about a failure, or a placeholder if the text may quote sensitive values."""
        return "withheld: it may quote values of sensitive columns" if text and self.sensitive else text

    def subject(self, side: Literal["key", "value"]) -> str:
        """Return the registry's subject of the schemas of keys or values (Confluent, Subject name strategy)."""
        if side == "value" and self.record:
            return {"record": self.record, "topic_record": f"{self.topic}-{self.record}"}.get(
                self.subject_strategy, f"{self.topic}-value"
            )
        return f"{self.topic}-{side}"


class Route(Topic):
    """Topics that match a pattern, each with a table of its own. New topics need no change of the configuration."""

    pattern: str = Field(description="Regular expression that matches the whole name of a topic.")
    table_name: str = Field(
        "",
        alias="table",
        description="Template of table names with the pattern's named groups, such as `shop_{entity}`. "
        "Default: derived from the topic's name.",
    )

    def topic_named(self, name: str) -> Topic | None:
        """Return the topic with a name as an entry of its own, or None if the pattern does not match it.

        Raises:
            ConfigError: The template yields no valid table name, or names a group that the topic's name does not have.
        """
        match = re.fullmatch(self.pattern, name)
        if match is None or name.startswith("__"):
            return None
        groups = {group: text for group, text in match.groupdict().items() if text is not None}
        try:
            table = naming.table_name(self.table_name.format_map(groups))
        except KeyError as error:
            raise ConfigError(
                f"Route '{self.name}': topic '{name}' does not have the optional group {error} of the pattern, which "
                f"the template of the table names. Make the group required, or give this topic an entry"
            ) from error
        settings = self.model_dump(exclude={"pattern", "table_name"}, by_alias=True)
        try:
            return Topic.model_validate({**settings, "name": name, "value_schema": self.value_schema, "table": table})
        except ValidationError as error:
            problem = f"'{table}' is not a valid table name"
            raise ConfigError(f"Route '{self.name}': topic '{name}': {problem}. Correct the template") from error


class TableNames:
    """The table names of the topics that were accepted so far."""

    def __init__(self, topics: Iterable[Topic] = ()) -> None:
        """Accept the tables of topics whose names were checked before."""
        self._families: dict[str, list[Topic]] = defaultdict(list)
        for topic in topics:
            self.add(topic)

    def add(self, topic: Topic) -> None:
        """Accept the table of a topic."""
        self._families[naming.family(topic.table)[0]].append(topic)

    def conflict(self, topic: Topic) -> str | None:
        """Return why a topic's table name is invalid or conflicts with an accepted one, or None."""
        table = topic.table
        if table.endswith(naming.DEAD_LETTERS):
            return f"names ending in '{naming.DEAD_LETTERS}' are dead-letter tables. Rename the topic"
        if len(table) > naming.MAX_TABLE_CHARACTERS:
            limit = (
                f"a table name has at most {naming.MAX_TABLE_CHARACTERS} characters, '{table[:40]}…' has {len(table)}"
            )
            return f"{limit}. Add 'table: <shorter name>'"
        for other in self._families[naming.family(table)[0]]:
            if other.table == table:
                return f"maps to table '{table}', like topic '{other.name}'. Rename one of them"
            older, newer = sorted((topic, other), key=lambda one: naming.family(one.table)[1])
            if older.on_incompatible == "new_table":
                return (
                    f"table '{newer.table}' is where topic '{older.name}' may continue (on_incompatible: new_table), "
                    f"but topic '{newer.name}' maps to it. Add 'table: <another name>' to one of them"
                )
        return None


PROJECT = Path(__file__).resolve().parent.parent.parent
"""The folder that contains lakehouse.yaml, schemas/ and workspace.yaml."""


class Config(ConfigModel):
    """The content of lakehouse.yaml."""

    namespace: str = Field(
        pattern=r"^[a-z][a-z0-9_]{0,127}$", description="Iceberg namespace, Glue database and Snowflake schema."
    )
    topics: dict[str, Topic] = Field(description="Kafka topics and their tables, by a name of your choice.")
    routes: dict[str, Route] = Field(
        {}, description="Topics by pattern. An entry of `topics` has precedence over all routes."
    )
    environments: dict[str, dict[System, dict[str, SettingValue]]] = Field(
        description="Settings by environment and system: fields of the system's resource, as values or `{env: NAME}`."
    )
    deployments: dict[str, Deployment] = Field(
        {}, description="Cloud set-up by environment, which `lakehouse deploy` creates and deletes."
    )
    file: Path = Field(
        PROJECT / "lakehouse.yaml", exclude=True, json_schema_extra={"readOnly": True}, description="This file."
    )
    root: Path = Field(PROJECT, exclude=True, json_schema_extra={"readOnly": True}, description="Folder of the file.")

    def topic(self, name: str) -> Topic:
        """Return the topic with a name.

        Raises:
            ConfigError: The topic is not declared, or its route cannot name its table.
        """
        if name not in self.topics:
            for _, _, match in self.match_routes([name]):
                if isinstance(match, ConfigError):
                    raise match
                return match
            raise ConfigError(f"Topic '{name}' is not declared in {self.file}.{did_you_mean(name, self.topics)}")
        return self.topics[name]

    def select(self, names: Collection[str], kafka_topics: Iterable[str]) -> list[Topic]:
        """Return the topics with these names. The name of a route stands for its topics in Kafka.

        Raises:
            ConfigError: As `topic`.
        """
        chosen = {name: self.topic(name) for name in names if name not in self.routes}
        for route, name, match in self.match_routes(kafka_topics):
            if route.name in names and isinstance(match, Topic):
                chosen[name] = match
        return [*chosen.values()]

    def topic_written_by_spark(self, name: str) -> Topic:
        """Return the topic with a name.

        Raises:
            ConfigError: As `topic`, or Tableflow writes its table.
        """
        topic = self.topic(name)
        if not topic.is_ingested:
            raise ConfigError(
                f"Confluent's Tableflow writes the table of '{name}', and not Spark. Nothing was changed. Operate it "
                f"in Confluent Cloud"
            )
        return topic

    @property
    def spark_topics(self) -> dict[str, Topic]:
        """The declared topics whose tables Spark writes, by name."""
        return {name: topic for name, topic in self.topics.items() if topic.is_ingested}

    def deployment(self, environment: str) -> Deployment:
        """Return the cloud set-up of an environment.

        Raises:
            ConfigError: The environment has none.
        """
        if environment not in self.deployments:
            raise ConfigError(
                f"Environment '{environment}' has no deployment in lakehouse.yaml. Add one, such as "
                f"deployments: {{{environment}: {{name: production, account: '123456789012', region: us-east-1}}}}"
            )
        return self.deployments[environment]

    def routed_topics(self, names: Iterable[str]) -> Iterator[Topic]:
        """Yield the valid topics of `match_routes`."""
        yield from (match for _, _, match in self.match_routes(names) if isinstance(match, Topic))

    def match_routes(self, names: Iterable[str]) -> Iterator[tuple[Route, str, Topic | ConfigError]]:
        """Match names of topics in Kafka with routes.

        Anyone who may create topics may choose a name that is no table name, or that conflicts with an entry.
        Such a name yields an error, and the other names are matched as usual.

        Two routed topics may map to one table. The topic whose records the table contains continues, and the table's
        stored offsets refuse runs of the other. A choice by name could displace the first topic by a new one.

        Yields:
            In the order of names: the first route that matches, the name, and its topic or an error.
        """
        accepted = TableNames(self.topics.values())
        # Dead letters that were ingested would become dead letters again, endlessly.
        internal = {entry.dead_letter_topic for entry in (*self.topics.values(), *self.routes.values())} | {BOOKMARKS}
        for name in sorted(names):
            for route in self.routes.values() if name not in self.topics and name not in internal else ():
                try:
                    match: Topic | ConfigError | None = route.topic_named(name)
                except ConfigError as error:
                    match = error
                if match is not None:
                    yield route, name, self._checked(route, match, accepted)
                    break

    def _checked(self, route: Route, match: Topic | ConfigError, accepted: TableNames) -> Topic | ConfigError:
        """Return a routed topic, or an error if its table is, or may become, another topic's."""
        if isinstance(match, ConfigError):
            return match
        fault = accepted.conflict(match)
        # Kafka may list a topic of this name before the topic that continues in its table.
        if naming.family(match.table)[1] > 1 and any(r.on_incompatible == "new_table" for r in self.routes.values()):
            fault = f"table '{match.table}' may be the continuation of another one (on_incompatible: new_table)"
            fault += ". Declare the topic under 'topics' with another 'table'"
        return ConfigError(f"Route '{route.name}': topic '{match.name}': {fault}") if fault else match

    def text(self, file: str) -> str:
        """Return the content of a file that the configuration names, such as a schema."""
        return (self.root / file).read_text()
