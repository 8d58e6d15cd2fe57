"""Settings of a topic and its table, which sources and checks read to validate their own."""

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from lakehouse import formats
from lakehouse.config.base import ConfigModel
from lakehouse.core.tables import metadata_columns, naming
from lakehouse.core.tables.naming import TableRef
from lakehouse.formats.format import Conversions
from lakehouse.formats.primitive_formats import StringFormat

IGNORED_KEYS = "none"
"""The `key_format` of message keys that are not decoded (the term of ksqlDB)."""

if TYPE_CHECKING:
    FormatName = str
    KeyFormatName = str
    MetadataName = str
else:
    FormatName = Literal[tuple(formats.registered())]
    KeyFormatName = Literal[(*formats.registered(), IGNORED_KEYS)]
    MetadataName = Literal[tuple(metadata_columns.registered())]

_Column = Annotated[str, Field(min_length=1)]
Columns = Annotated[
    tuple[_Column, ...],
    BeforeValidator(lambda v: (v,) if isinstance(v, str) else v, json_schema_input_type=_Column | tuple[_Column, ...]),
]
"""Names of columns; a single one needs no list."""


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


MAX_INT, MAX_LONG = 2**31 - 1, 2**63 - 1
"""Maximum numbers in Kafka, Spark and Iceberg."""
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


def _text_of(value: object) -> object:
    """Return a boolean or number as the text that an engine makes of it."""
    return str(value).lower() if isinstance(value, bool | int) else value


class Deletion(ConfigModel):
    """Records that delete the row of their key, although they have a value."""

    column: str = Field(min_length=1, description="Column of text, booleans or integers that marks them.")
    value: Annotated[
        str, BeforeValidator(_text_of), WithJsonSchema({"type": ["string", "boolean", "integer"]}), Field(min_length=1)
    ] = Field(description="Value of the column in such a record, such as `true`; others, and null, keep the row.")


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
    min_snapshots: int = Field(10, ge=1, le=MAX_INT, description="Number of newest publications that never expire.")


class ChangeEvents(ConfigModel):
    """Debezium's change events, with the connector's settings that their meaning depends on."""

    unavailable_value: str = Field(
        "__debezium_unavailable_value",
        min_length=1,
        description="`unavailable.value.placeholder` of the connector: the row keeps its value where an event has it.",
    )
    truncate: Literal["apply", "ignore"] = Field(
        "apply",
        description="Effect of a truncate: `apply` deletes all rows, which requires a topic with one partition; "
        "`ignore` keeps them.",
    )
    times: Literal["numbers", "converted"] = Field(
        "numbers",
        description="With avro, columns of the types in io.debezium.time: `numbers` and text as they are emitted, or "
        "`converted` to dates and timestamps (docs/types.md, Debezium's types).",
    )
    decimal_scale: int | None = Field(
        None,
        ge=0,
        le=38,
        description="With avro, digits after the point of columns of io.debezium.data.VariableScaleDecimal, which "
        "become `decimal(38, <decimal_scale>)`; a number that does not fit is undecodable. Default: a struct of scale "
        "and value, as it is emitted.",
    )


class TopicSettings(ConfigModel):
    """Settings of an entry of lakehouse.yaml; `Topic` has the types of its source and of its checks."""

    description: str = Field("", description="Description of the asset and the table.")
    owners: tuple[Annotated[str, Field(pattern=r"^(team:[\w-]+|[^@\s]+@[^@\s]+\.[^@\s]+)$")], ...] = Field(
        (), description="Owners who are notified: `team:trading` or an e-mail address."
    )
    group: str = Field(
        "", pattern=r"^\w*$", description="Group of the assets in Dagster. Default: the name of the table or route."
    )
    tags: dict[
        Annotated[str, Field(pattern=r"^([\w.-]{1,63}/)?[\w.-]{1,63}$")],
        Annotated[str, Field(pattern=r"^[\w.-]{0,63}$")],
    ] = Field({}, description="Tags of the assets in Dagster, by which they are selected, such as `domain: trading`.")
    automation: Literal["on_change", "none"] = Field(
        "on_change",
        description="Runs that lakehouse requests: `on_change` after each change upstream, or `none`, if schedules or "
        "automation conditions of your own request them.",
    )
    source: ConfigModel
    kafka_topic: str = Field("", description="Name of the topic in Kafka. Default: the name of this entry.")
    table_name: str = Field(
        "",
        alias="table",
        pattern=r"^([a-z][a-z0-9_]{0,127})?$",
        description="Name of the table: a-z, 0-9 and _, at most 128. Default: derived from the topic's name.",
    )
    partitions: int = Field(6, ge=1, le=MAX_INT, description="Number of partitions with which the topic is created.")
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
        "each key; a null value deletes the row. `debezium`: like upsert, from change events (before, after, op). A "
        "table keeps its mode and key: others are refused.",
    )
    key: Columns = Field((), description="Columns that identify a row; never null. Required by every mode but append.")
    key_format: KeyFormatName | None = Field(
        None,
        description="Format of the message key, whose columns are added to the value's. If both have a column of "
        "`key`, they must agree. `none`: message keys are ignored, and the value has the columns of `key`. Default: "
        "`string` in mode upsert, which is refused if the registry has a schema of the keys; the format of the value "
        "in mode debezium; otherwise `none`.",
    )
    delete: Deletion | None = Field(
        None, description="With `mode: upsert`: the column and value of records that delete the row of their key."
    )
    debezium: ChangeEvents = Field(ChangeEvents(), description="With `mode: debezium`: the connector's settings.")
    value_format: FormatName = Field("avro", description="Format of the message value.")
    wide_decimals: Literal["refuse", "limit"] = Field(
        "refuse",
        description="Reaction to Avro decimals of more than 38 digits, which Connect declares if "
        "`connect.decimal.precision` is missing: `refuse` the schema; or `limit` the column to 38 digits, beyond which "
        "a value is undecodable.",
    )
    value_schema_file: str = Field(
        "", description="JSON Schema of `json` values, relative to lakehouse.yaml. Default: one column with the text."
    )
    subject_strategy: Literal["topic", "record", "topic_record"] = Field(
        "topic", description="Subject names of the producers: TopicNameStrategy, RecordName… or TopicRecordName…"
    )
    record: str = Field(
        "",
        description="Full name of the record type that this table contains, if the topic has several types. Records "
        "of other types are left to the entries that name them. A null value has no type and has its outcome in "
        "the table of each type.",
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
        "`new_table`, which continues in a new table <table>__v2, also after a change of `mode` or `key`.",
    )
    checks: Mapping[str, ConfigModel]
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
    maintenance: Literal["lakehouse", "external"] = Field(
        "lakehouse",
        description="What compacts the table, expires its snapshots and deletes orphan files: `lakehouse`, or "
        "`external`, a service of the catalog or of the storage. Either way, lakehouse drops abandoned branches and "
        "deletes rows according to `retention.rows`.",
    )
    target_file_mb: int = Field(
        128, ge=1, le=1_000_000, description="Size of data files after compaction, in megabytes."
    )
    continuous: bool = Field(
        False, description="The job `stream` ingests it continuously, with seconds of latency, instead of single runs."
    )
    max_records_per_batch: int = Field(
        5_000_000, ge=1, le=MAX_LONG, description="Maximum number of records of a batch."
    )
    max_lag_seconds: int = Field(
        900,
        ge=1,
        le=MAX_DAYS * 86_400,
        description="Maximum lag of the table and of each reader, in seconds. Beyond it, the table is stale.",
    )
    on_stale: Literal["alert", "run"] = Field(
        "alert",
        description="Reaction to a stale table: `alert` fails its check, and `run` also starts a run that updates it.",
    )
    max_idle_seconds: int | None = Field(
        None,
        ge=60,
        le=MAX_DAYS * 86_400,
        description="Seconds without new records after which the producer is reported as stopped.",
    )
    name: str = Field("", exclude=True, json_schema_extra={"readOnly": True}, description="The key of this entry.")
    line: int = Field(0, exclude=True, json_schema_extra={"readOnly": True}, description="Line of the entry.")
    file: Path | None = Field(
        None, exclude=True, json_schema_extra={"readOnly": True}, description="File of the entry."
    )
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
        """The format of keys, or None if they are not decoded.

        Upserts decode them by default, because only the key of a null value identifies the row to delete. Change events
        too: the old row of a deletion has arbitrary values in columns that are no key.
        """
        if self.key_format == IGNORED_KEYS:
            return None
        return self.key_format or {"upsert": StringFormat.name, "debezium": self.value_format}.get(self.mode)

    @property
    def conversions(self) -> Conversions:
        """The settings that decide the columns of some Avro types."""
        if self.mode != "debezium":
            return Conversions(self.wide_decimals)
        return Conversions(self.wide_decimals, self.debezium.times == "converted", self.debezium.decimal_scale)

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


class Declarations(ConfigModel):
    """The part of lakehouse.yaml that sources and checks may read; `Config` has the rest."""

    namespace: str = Field(
        pattern=r"^[a-z][a-z0-9_]{0,127}$", description="Iceberg namespace, Glue database and Snowflake schema."
    )
    topics: Mapping[str, TopicSettings]
    root: Path

    def text(self, file: str) -> str:
        """Return the content of a file that the configuration names, such as a schema."""
        return (self.root / file).read_text()
