"""What lakehouse.yaml says of a topic, or of all topics of a pattern."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationError, WithJsonSchema

from lakehouse import formats
from lakehouse.config import checks as check_types
from lakehouse.config import sources
from lakehouse.config.base import Model, one_of
from lakehouse.config.checks import Check, RowCheck
from lakehouse.config.sources.existing import Existing
from lakehouse.config.sources.source import Source
from lakehouse.core import metadata, naming
from lakehouse.core.errors import ConfigError
from lakehouse.formats.primitive import StringFormat

Columns = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else v)
]

if TYPE_CHECKING:
    DeclaredCheck = Check
    DeclaredSource = Source
    FormatName = str
    MetadataName = str
else:
    DeclaredCheck = one_of(check_types.registered().values())
    DeclaredSource = one_of(sources.registered().values())
    FormatName = Literal[tuple(formats.registered())]
    MetadataName = Literal[tuple(metadata.registered())]


class Metadata(Model):
    """Which metadata columns a table has."""

    columns: tuple[MetadataName, ...] = Field(
        ("partition", "offset", "timestamp", "schema_id"),
        description="Metadata columns, in order; partition and offset are always there.",
    )
    naming: metadata.Naming = Field(
        "portable",
        description="`portable`: kafka_offset. `confluent`: $$offset, as Tableflow names them. Tableflow's own "
        "`PORTABLE` (cflt_metadata_offset) is neither.",
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
    """How long what is kept, by maintenance and by Kafka. Durations are written `30d`, `12h`, `90m`."""

    records: Duration | None = Field(
        None, description="How long Kafka keeps the records of a topic that is created; by default, as Kafka decides."
    )
    rows: Duration | None = Field(None, description="Rows whose Kafka timestamp is older are deleted; none by default.")
    snapshots: Duration = Field(
        "7d", description="Older snapshots are forgotten: how far time travel goes.", validate_default=True
    )
    min_snapshots: int = Field(10, ge=1, description="So many publications are kept, however old.")


class Topic(Model):
    """One Kafka topic and the table it becomes."""

    description: str = ""
    owners: tuple[Annotated[str, Field(pattern=r"^(team:[\w-]+|[^@\s]+@[^@\s]+\.[^@\s]+)$")], ...] = Field(
        (), description="Who answers for it: `team:trading` or an e-mail address."
    )
    source: DeclaredSource = Existing()
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
    key_format: FormatName | None = Field(
        None, description="How the message key is encoded. Its columns join the value's. Left out: not decoded."
    )
    value_format: FormatName = Field("avro", description="How the message value is encoded.")
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
    checks: dict[str, DeclaredCheck] = Field({}, description="What must hold of the rows, by a name of your own.")
    sensitive: tuple[str, ...] = Field(
        (),
        description="Columns, or fields as dotted paths, whose values are shown nowhere but in the table, under any "
        "name that they had (docs/checks.md, Sensitive columns).",
    )
    metadata: Metadata = Metadata()
    partition_by: tuple[str, ...] = Field(
        (), description="Partitions of the table: columns or transforms, such as `day(kafka_timestamp)`."
    )
    sort_by: tuple[str, ...] = Field((), description="Order of rows in files, such as `symbol` or `price desc`.")
    retention: Retention = Retention()
    target_file_mb: int = Field(128, ge=1, description="Size that maintenance brings data files to, in megabytes.")
    continuous: bool = Field(
        False, description="The job `stream` takes it on and on, seconds after records come; no runs of its own do."
    )
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
    def decoded_key(self) -> str | None:
        """The format that keys are decoded with: an upsert's null value has nothing else to say what it deletes."""
        return self.key_format or (StringFormat.name if self.mode == "upsert" else None)

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
    def readers_need(self) -> timedelta:
        """For how long a reader that is not called stale may read a snapshot: its files must stay."""
        return max(2 * timedelta(seconds=self.max_lag_seconds), timedelta(hours=1))

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
