"""Synthetic records as a source."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from lakehouse.config.sources.declarations import Declarations, TopicSettings
from lakehouse.config.sources.source import Fault, Source, file_faults
from lakehouse.formats.primitive_formats import StringFormat

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
    producer = "lakehouse.pipeline.generated:register"
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
        """The schema of the generated records."""
        return (self.schema_file,)

    def connector(self, entry: str) -> str:
        """Return the name of Confluent's managed Datagen connector."""
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
        """Yield problems of the key and of the schema file."""
        has_string_key = topic.key_format in (None, StringFormat.name)
        if not has_string_key or not (self.quickstart or len(topic.key) == 1):
            yield ("source",), "datagen generates one string key per record. Add 'key: <one column>'"
            yield from file_faults(config, ("source", "schema_file"), self.schema_file)
            return
        message_key = self.message_key(topic)
        if topic.effective_key_format and topic.key != (message_key,):
            yield ("key",), f"the messages of quickstart {self.quickstart} have the key '{message_key}'. Write it"
        columns = dict.fromkeys((*topic.key, message_key))
        yield from file_faults(config, ("source", "schema_file"), self.schema_file, columns)
