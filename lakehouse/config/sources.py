"""Sources of the records of a topic.

To add one, write a subclass of Source and add it to SOURCES. A separate distribution names its class as an entry point
of the group `lakehouse.sources`.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from lakehouse.config.base import ConfigModel, Fault, Location, type_of
from lakehouse.config.settings import IGNORED_KEYS, Declarations, TopicSettings
from lakehouse.core.errors import SchemaError
from lakehouse.core.registry import implementations
from lakehouse.core.text import did_you_mean
from lakehouse.formats.avro import avro_format
from lakehouse.formats.avro.avro_format import AvroFormat
from lakehouse.formats.primitive_formats import StringFormat


class Source(ConfigModel):
    """A source of the records of a topic. A subclass declares its name as `type: Literal[…]`."""

    is_external: ClassVar[bool] = False
    """True if others create the topic, so that it is only read and never changed."""

    writes: ClassVar[bool] = False
    """True if `producer` writes records, which requires write access and stops while the topic is paused."""

    producer: ClassVar[str] = ""
    """The function that is called when the topic's asset is materialized, after the topic exists: `module:function`.

    Its arguments are the configuration, the topic and the clients; it returns None or
    lakehouse.pipeline.derivation.derivation.Produced. It is a name and not an import, so that loading the definitions
    does not load its dependencies.
    """

    @property
    def upstream(self) -> str:
        """The declared topic from whose table this topic is computed; empty if there is none."""
        return ""

    @property
    def schema_files(self) -> tuple[str, ...]:
        """The Avro schemas that together have all columns of the topic, relative to lakehouse.yaml.

        Empty if the columns are not known from files.
        """
        return ()

    def connector(self, entry: str) -> str:
        """Return the name of the managed connector in Confluent Cloud that fills the topic of an entry, or ''."""
        return ""

    def faults(self, config: Declarations, topic: TopicSettings) -> Iterator[Fault]:
        """Yield problems of the settings of a topic with this source.

        Args:
            config: The configuration, whose files may be read.
        """
        yield from ()


def is_file(config: Declarations, file: str) -> bool:
    """Return whether a file exists in the folder of the configuration; a schema in place of its path is none."""
    try:
        return (config.root / file).is_file()
    except OSError:
        return False


def missing_file(config: Declarations, file: str) -> str:
    """Return why a file of the configuration cannot be read, with the remedy; empty if it can."""
    if is_file(config, file):
        return ""
    path = config.root / file
    problem = f"file '{file}' does not exist in {config.root}"
    # The name may be a whole schema, which is too long for a path.
    with suppress(OSError):
        if path.is_dir():
            problem = f"'{file}' is a folder"
        elif path.is_symlink():
            problem = f"'{file}' is a link to a file that does not exist"
    return f"{problem}. Correct the path"


def file_faults(config: Declarations, at: Location, file: str, key: Collection[str] = ()) -> Iterator[Fault]:
    """Yield problems of an Avro schema file: it must be a record that has the columns of the key."""
    if problem := missing_file(config, file):
        yield at, problem
        return
    try:
        fields = avro_format.field_names(config.text(file))
    except UnicodeDecodeError:
        yield at, f"'{file}' has no text in UTF-8. Save the file as UTF-8"
        return
    except (ValueError, SchemaError) as error:
        yield at, f"'{file}' is not an Avro record schema: {str(error).partition('. ')[0]}. Correct the file"
        return
    for column in key:
        if column not in fields:
            problem = f"'{file}' has no field '{column}', which is part of 'key'.{did_you_mean(column, fields)}"
            yield at, f"{problem} Correct 'key', or the file"


class Existing(Source):
    """A topic that others create and produce to. It is only read, never changed."""

    type: Literal["existing"] = "existing"
    is_external = True


class Derived(Source):
    """Records that Spark computes from the published table of another topic."""

    type: Literal["derived"]
    producer = "lakehouse.pipeline.derivation.derivation:derive"
    writes = True
    from_topic: str = Field(alias="from", description="The declared topic whose table is read.")
    transform: str = Field(
        pattern=r"^[\w.]+:\w+$", description="`module:function`: a function that takes and returns a DataFrame."
    )
    group_by: tuple[str, ...] = Field(
        (),
        description="Columns of the source table. `transform` gets all rows of every group that has new rows. "
        "Default: `transform` gets only the new rows, each once.",
    )
    key_schema_file: str = Field(
        "", description="Avro schema of the message key, relative to lakehouse.yaml. Default: derived from the rows."
    )
    value_schema_file: str = Field(
        "", description="Avro schema of the message value, relative to lakehouse.yaml. Default: derived from the rows."
    )

    @property
    def upstream(self) -> str:
        return self.from_topic

    @property
    def schema_files(self) -> tuple[str, ...]:
        files = (self.value_schema_file, self.key_schema_file)
        return tuple(filter(None, files)) if self.value_schema_file else ()

    def faults(self, config: Declarations, topic: TopicSettings) -> Iterator[Fault]:
        source = config.topics.get(self.from_topic)
        if source and not source.is_ingested and topic.continuous:
            problem = f"Tableflow writes the table of '{self.from_topic}', whose snapshots no stream observes"
            yield ("continuous",), f"{problem}. Remove 'continuous', or use 'engine: spark' there"
        for field, file, key in (
            ("key_schema_file", self.key_schema_file, topic.key),
            ("value_schema_file", self.value_schema_file, ()),
        ):
            if file:
                yield from file_faults(config, ("source", field), file, key)
        if source is None:
            hint = did_you_mean(self.from_topic, config.topics)
            problem = f"'{self.from_topic}' is not a topic declared in this file.{hint}"
            yield ("source", "from"), f"{problem} Correct the name, or declare the topic"
        elif source.mode != "append":
            problem = f"the table of '{self.from_topic}' has 'mode: {source.mode}', but its rows must never change"
            yield ("source", "from"), f"{problem}. Derive from a topic with 'mode: append'"
        elif source.deletes_rows:
            problem = f"the table of '{self.from_topic}' has 'retention.rows', which deletes rows before they are"
            yield ("source", "from"), f"{problem} derived, and from groups. Remove 'retention.rows' there"
        if self.group_by and (topic.mode != "upsert" or topic.key_format != AvroFormat.name):
            yield (), "'group_by' replaces the row of each group. Set 'mode: upsert' and 'key_format: avro'"
        if topic.key_format not in (None, IGNORED_KEYS, AvroFormat.name):
            yield ("key_format",), "derived messages have Avro keys or none. Set 'key_format: avro' or remove it"


QUICKSTARTS: Mapping[str, str] = {
    "CLICKSTREAM_CODES": "code",
    "CLICKSTREAM": "ip",
    "CLICKSTREAM_USERS": "user_id",
    "ORDERS": "orderid",
    "RATINGS": "rating_id",
    "USERS": "userid",
    "USERS_": "userid",
    "PAGEVIEWS": "viewtime",
    "STOCK_TRADES": "symbol",
    "INVENTORY": "id",
    "PRODUCT": "id",
    "PURCHASES": "id",
    "TRANSACTIONS": "transaction_id",
    "STORES": "store_id",
    "CREDIT_CARDS": "card_id",
    "CAMPAIGN_FINANCE": "candidate_id",
    "FLEET_MGMT_DESCRIPTION": "vehicle_id",
    "FLEET_MGMT_LOCATION": "vehicle_id",
    "FLEET_MGMT_SENSORS": "vehicle_id",
    "PIZZA_ORDERS": "store_id",
    "PIZZA_ORDERS_COMPLETED": "store_id",
    "PIZZA_ORDERS_CANCELLED": "store_id",
    "INSURANCE_OFFERS": "offer_id",
    "INSURANCE_CUSTOMERS": "customer_id",
    "INSURANCE_CUSTOMER_ACTIVITY": "activity_id",
    "GAMING_GAMES": "id",
    "GAMING_PLAYERS": "player_id",
    "GAMING_PLAYER_ACTIVITY": "player_id",
    "PAYROLL_EMPLOYEE": "employee_id",
    "PAYROLL_EMPLOYEE_LOCATION": "employee_id",
    "PAYROLL_BONUS": "employee_id",
    "SYSLOG_LOGS": "host",
    "DEVICE_INFORMATION": "device_ip",
    "SIEM_LOGS": "hostname",
    "SHOES": "id",
    "SHOE_CUSTOMERS": "id",
    "SHOE_ORDERS": "order_id",
    "SHOE_CLICKSTREAM": "product_id",
}
"""The message key of each quickstart (confluentinc/kafka-connect-datagen, Quickstart.java)."""

if TYPE_CHECKING:
    QuickstartName = str
else:
    QuickstartName = Literal[tuple(QUICKSTARTS)]

MIN_INTERVAL_MS = 10
"""The least `max.interval` that Confluent Cloud accepts (Datagen Source Connector, configuration properties)."""


class Datagen(Source):
    """Synthetic records, as Confluent's Datagen connector generates them."""

    type: Literal["datagen"]
    producer = "lakehouse.pipeline.datagen:register"
    schema_file: str = Field(
        description="Avro schema with the generator's hints (`arg.properties`), relative to lakehouse.yaml."
    )
    quickstart: QuickstartName | None = Field(
        None,
        description="Quickstart of Confluent's connector, such as STOCK_TRADES, which determines the message key; "
        "`schema_file` is then a copy of its schema. Without, the connector gets `schema_file` and `key`.",
    )
    records_per_second: float = Field(50, gt=0, description="Records per second after the initial records.")
    initial_records: int = Field(
        0, ge=0, description="Records that the embedded stack produces at once when the topic is created."
    )

    @property
    def schema_files(self) -> tuple[str, ...]:
        return (self.schema_file,)

    def connector(self, entry: str) -> str:
        return f"datagen-{entry}"

    def message_key(self, topic: TopicSettings) -> str:
        """Return the field of the record that is the message key."""
        return QUICKSTARTS[self.quickstart] if self.quickstart else topic.key[0]

    def connector_settings(self, config: Declarations, topic: TopicSettings) -> dict[str, str]:
        """Return the settings with which Confluent's connector fills a topic as the embedded producer does."""
        # A task sleeps a random whole number of milliseconds below max.interval, (max.interval - 1) / 2 on average.
        shortest_mean_ms = (MIN_INTERVAL_MS - 1) / 2
        tasks = math.ceil(self.records_per_second * shortest_mean_ms / 1000)
        rate = {"max.interval": str(round(2000 * tasks / self.records_per_second) + 1), "tasks.max": str(tasks)}
        if self.quickstart:
            return {"quickstart": self.quickstart, **rate}
        schema = config.text(self.schema_file)
        return {"schema.string": schema, "schema.keyfield": self.message_key(topic), **rate}

    def faults(self, config: Declarations, topic: TopicSettings) -> Iterator[Fault]:
        has_string_key = topic.key_format in (None, IGNORED_KEYS, StringFormat.name)
        if not has_string_key or not (self.quickstart or len(topic.key) == 1):
            yield ("source",), "datagen generates one string key per record. Add 'key: <one column>'"
            yield from file_faults(config, ("source", "schema_file"), self.schema_file)
            return
        message_key = self.message_key(topic)
        if topic.effective_key_format and topic.key != (message_key,):
            yield ("key",), f"the messages of quickstart {self.quickstart} have the key '{message_key}'. Write it"
        columns = dict.fromkeys((*topic.key, message_key))
        yield from file_faults(config, ("source", "schema_file"), self.schema_file, columns)


SOURCES: Sequence[type[Source]] = (Datagen, Derived, Existing)
"""The sources of this project."""


@cache
def registered() -> Mapping[str, type[Source]]:
    """Return all sources by type, those of installed distributions included."""
    return implementations(SOURCES, "lakehouse.sources", type_of)
